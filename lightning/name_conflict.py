"""A foreign package of the name `lightning`: PyTorch Lightning, which cannot share an environment with this one.

Both install into a folder `lightning`, and whichever came last has overwritten files of the other. If ours came last
or lies first on the path, our own modules find theirs when they are imported (`check_installed`). If theirs did, ours
are never imported; so the distribution also installs a line that Python runs when it starts
(`lightning/name_conflict.pth` at the top of site-packages), which calls `watch`: then the look is taken when anybody
imports `lightning`.

This file imports next to nothing, because of that line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

OURS = frozenset(("name_conflict.py", "neighbours.py"))
"""This module, and its name in the release before: one of them is in every folder of ours."""
THEIRS = ("pytorch", "fabric", "__about__.py", "__version__.py")
"""Entries of PyTorch Lightning's folder that ours does not have."""
HINT = (
    "Give lightbed an environment of its own; or, if their package is not needed under this name: "
    "pip uninstall -y lightning; pip install pytorch-lightning (imported as pytorch_lightning, which does not"
    " collide); pip install --force-reinstall --no-deps with the wheel or the checkout of lightbed"
)


def check_installed(file: str) -> None:
    """Raise `ImportError` with the hint when a foreign `lightning` is installed; `file` is one of our modules."""
    _raise_for(foreign([os.path.dirname(os.path.dirname(file)), *sys.path]))  # noqa: PTH120  see above


def watch() -> None:
    """Check from now on whenever `lightning` is imported, whoever's it is."""
    if not any(isinstance(each, _Watch) for each in sys.meta_path):
        sys.meta_path.insert(0, _Watch())


class _Watch:
    """A finder that finds nothing, but refuses an import that would not end well."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> None:
        """Look, when the name is ours."""
        if name == "lightning":
            _raise_for(foreign(sys.path))


def _raise_for(found: str) -> None:
    if found:
        raise ImportError(
            f"another package named lightning (PyTorch Lightning) is installed here: {found}. {HINT}",
            name="lightning",
        )


def foreign(folders: Iterable[str]) -> str:
    """Return where a foreign `lightning` shows in these folders of the path; empty where it does not."""
    for folder in dict.fromkeys(each or os.curdir for each in folders):
        try:
            names = {each for each in os.listdir(folder) if each.startswith("light")}  # noqa: PTH208
        except OSError:
            continue
        if record := _record(names, "lightning-"):
            return f"{os.path.join(folder, record)} tells of it"  # noqa: PTH118
        if "lightning" in names:
            package = os.path.join(folder, "lightning")  # noqa: PTH118
            if found := _in_package(package, ours_by_record=bool(_record(names, "lightbed-"))):
                return found
    return ""


def _record(names: Iterable[str], distribution: str) -> str:
    """Return the record that an installer keeps about this distribution; empty where it is not installed."""
    records = (each for each in sorted(names) if each.endswith((".dist-info", ".egg-info")))
    return next((each for each in records if each.startswith(distribution)), "")


def _in_package(package: str, *, ours_by_record: bool) -> str:
    """Return what is not ours in a folder `lightning`. Early versions of ours are known by their record only."""
    try:
        names = set(os.listdir(package))  # noqa: PTH208
    except OSError:
        return ""
    theirs = [each for each in THEIRS if each in names]
    if theirs:
        return f"{os.path.join(package, theirs[0])} is not ours"  # noqa: PTH118
    if OURS & names or ours_by_record or "__init__.py" not in names:
        return ""
    return f"{package} is another package"
