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
    """Imports a module of `moved` from its new path; both paths then name one module."""

    def __init__(self, moved: Mapping[str, str]) -> None:
        self._moved = dict(moved)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for a module that has moved, None for all others."""
        return ModuleSpec(fullname, self) if fullname in self._moved else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module at its new path."""
        new = self._moved[spec.name]
        warnings.warn(f"{spec.name} is now {new}", DeprecationWarning, stacklevel=2)
        return importlib.import_module(new)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing more: the module has run at its new path."""


def keep_importable(moved: Mapping[str, str]) -> None:
    """Let the modules that are keys be imported as before; values are their new paths."""
    sys.meta_path.append(MovedModules(moved))
