"""Entry of the plugin of pytest, which says so where another `testbed` stands before ours on the import path.

`python -m pytest` puts the current folder first: in a repository with a `testbed/` of its own that is the one which is
imported, and it has no plugin. Tests that want no lab run there all the same.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

OURS = Path(__file__).resolve().parent.parent / "testbed"


def find_shadow() -> Path | None:
    """Return the folder or file that is imported as `testbed` in place of ours, None where ours is."""
    spec = find_spec("testbed")
    places = [*(spec.submodule_search_locations or ()), spec.origin or ""] if spec else []
    found = [Path(place) for place in places if place]
    return (
        found[0]
        if found and not any(OURS in (path.resolve(), path.resolve().parent) for path in found)
        else None
    )


SHADOW = find_shadow()
WHY = (
    f"{SHADOW} is imported as `testbed` in place of the package of lightbed: run `pytest`, not `python -m pytest`, "
    "or give that folder another name"
)
pytest_plugins = [] if SHADOW else ["testbed.pytest_plugin"]


def pytest_load_initial_conftests(args: list[str]) -> None:
    """Refuse options of the lab that nobody is there to read."""
    if SHADOW and any(word == "--lab" or word.startswith(("--lab=", "--lab-")) for word in args):
        raise pytest.UsageError(f"the fixture testbed_lab is not available: {WHY}")


def pytest_configure(config: pytest.Config) -> None:
    """Warn once."""
    if SHADOW:
        config.issue_config_time_warning(
            pytest.PytestConfigWarning(f"no fixture testbed_lab: {WHY}"), stacklevel=2
        )
