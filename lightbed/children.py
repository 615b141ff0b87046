"""Processes that run a module of ours: whatever lies in the current folder, they import this very installation."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module.

    `-P` keeps the current folder off the import path: a repository may have a `sim/` or a `testbed/` of its own.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def child_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return an environment with the folder that holds this installation first on the import path."""
    root = str(Path(__file__).resolve().parent.parent)
    rest = environment.get("PYTHONPATH", "")
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, (root, rest)))}
