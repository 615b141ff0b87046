"""Child processes that run our modules, and import them from this installation in any current folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def make_module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module.

    `-P` keeps the current folder off the import path, because it may contain another `sim/` or `testbed/`.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def make_child_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return a copy of `environment` in which this installation comes first on the import path."""
    root = str(Path(__file__).resolve().parent.parent)
    inherited_path = environment.get("PYTHONPATH", "")
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, (root, inherited_path)))}
