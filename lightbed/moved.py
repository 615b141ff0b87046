"""Modules by the paths that they had in the release before: importable for one release, with a warning."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class MovedModules(MetaPathFinder, Loader):
    """Imports modules of `moved`, and all that is in rooms of it, from their new paths."""

    def __init__(self, moved: Mapping[str, str]) -> None:
        self._moved = dict(moved)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for a module that has moved, None for all others."""
        return ModuleSpec(fullname, self) if self._new_path(fullname) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module at its new path."""
        new = self._new_path(spec.name)
        warnings.warn(f"{spec.name} is now {new}", DeprecationWarning, stacklevel=2)
        return importlib.import_module(new)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing more: the module has run at its new path."""

    def _new_path(self, former: str) -> str:
        """Return the new path of a module; empty when it has not moved."""
        if former in self._moved:
            return self._moved[former]
        room, _, name = former.rpartition(".")
        new_room = self._new_path(room) if room else ""
        return new_room and f"{new_room}.{name}"


def keep_importable(package: str, moved: Mapping[str, str]) -> None:
    """Let modules of a package be imported as before: `moved` maps former paths below it to new ones.

    This finder is the first: folders that an upgrade left behind are not packages, and no module is imported twice.
    """
    sys.meta_path.insert(
        0, MovedModules({f"{package}.{old}": f"{package}.{new}" for old, new in moved.items()})
    )
