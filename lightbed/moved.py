"""Modules by the paths that they had in the release before: importable for one release, with a warning."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class MovedModules(MetaPathFinder, Loader):
    """Imports modules of `moved`, and all that is in rooms of it, from their new paths."""

    def __init__(self, moved: Mapping[str, str]) -> None:
        self.moved = dict(moved)
        self._specs: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for a module that has moved, None for all others."""
        new = self.new_path(fullname)
        return ModuleSpec(fullname, self) if new and find_spec(new) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module at its new path."""
        new = self.new_path(spec.name)
        warnings.warn(f"{spec.name} is now {new}", DeprecationWarning, stacklevel=2)
        module = importlib.import_module(new)
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own spec back: it has run at its new path, and stays there."""
        former = module.__spec__.name if module.__spec__ else ""
        module.__spec__ = self._specs.pop(former, module.__spec__)

    def get_code(self, fullname: str) -> Any:
        """Return the code of a module, which `python -m` runs."""
        loader: Any = getattr(find_spec(self.new_path(fullname)), "loader", None)
        return loader.get_code(self.new_path(fullname))

    def new_path(self, former: str) -> str:
        """Return the new path of a module; empty when it has not moved."""
        if former in self.moved:
            return self.moved[former]
        room, _, name = former.rpartition(".")
        new_room = self.new_path(room) if room else ""
        return new_room and f"{new_room}.{name}"


def keep_importable(package: str, moved: Mapping[str, str]) -> None:
    """Make modules of a package importable as before: `moved` maps former paths below it to new ones.

    This finder is the first: folders that an upgrade left behind are not packages, and no module is imported twice.
    """
    sys.meta_path.insert(
        0, MovedModules({f"{package}.{old}": f"{package}.{new}" for old, new in moved.items()})
    )
