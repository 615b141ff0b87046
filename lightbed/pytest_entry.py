"""Entry point of the pytest plugin, which warns if another `testbed` precedes ours on the import path.

`python -m pytest` puts the current folder first on the path, so a repository with its own folder `testbed/` hides ours.
Tests that need no lab are not affected.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

OUR_PACKAGE = Path(__file__).resolve().parent.parent / "testbed"


def find_shadow() -> Path | None:
    """Return the folder or file that is imported as `testbed` instead of ours, or None."""
    spec = find_spec("testbed")
    locations = [*(spec.submodule_search_locations or ()), spec.origin or ""] if spec else []
    paths = [Path(location) for location in locations if location]
    return (
        paths[0]
        if paths and not any(OUR_PACKAGE in (path.resolve(), path.resolve().parent) for path in paths)
        else None
    )


SHADOW = find_shadow()
SHADOW_MESSAGE = (
    f"{SHADOW} is imported as `testbed` instead of lightbed's package: run `pytest`, not `python -m pytest`, "
    "or give that folder another name"
)
pytest_plugins = [] if SHADOW else ["testbed.pytest_plugin"]


def pytest_load_initial_conftests(args: list[str]) -> None:
    """Reject options of the lab if the plugin that reads them is not loaded."""
    if SHADOW and any(argument == "--lab" or argument.startswith(("--lab=", "--lab-")) for argument in args):
        raise pytest.UsageError(f"the fixture testbed_lab is not available: {SHADOW_MESSAGE}")


def pytest_configure(config: pytest.Config) -> None:
    """Warn once that the plugin is not loaded."""
    if SHADOW:
        config.issue_config_time_warning(
            pytest.PytestConfigWarning(f"no fixture testbed_lab: {SHADOW_MESSAGE}"), stacklevel=2
        )
