"""Modules that are loaded when they are first used, for commands that are over in a fraction of a second."""

from __future__ import annotations

import importlib.util
import sys
from threading import RLock
from types import ModuleType
from typing import Any


class _OnDemand(ModuleType):
    """A package before its code has run, which the first look at anything in it makes an ordinary one.

    `importlib.util.LazyLoader` does not do: a mere `import` looks at `__spec__`, which loads the module.
    """

    def __getattr__(self, name: str) -> Any:
        state = self.__dict__
        with state["_lock"]:
            path = state.pop("_path", None)
            if path is not None:  # nobody was here before, not even the code that is run now
                state["__path__"] = path
                self.__spec__.loader.exec_module(self)  # type: ignore[union-attr]
                self.__class__ = ModuleType  # type: ignore[assignment]
        try:
            return state[name]
        except KeyError:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None


def load_on_demand(*packages: str) -> None:
    """Make the import of packages wait until something of them is used, in this process.

    PyVISA imports NumPy for transfers of binary data and psutil for the search for instruments. A switch needs
    neither, and they are half of the processor time of a short command. What is loaded already, or not installed,
    stays as it is.
    """
    for name in packages:
        spec = None if name in sys.modules else importlib.util.find_spec(name)
        if spec is None or spec.submodule_search_locations is None:
            continue
        module = _OnDemand(name)
        module.__spec__, module.__file__, module.__loader__ = spec, spec.origin, spec.loader
        module.__package__ = name
        module.__dict__.update(_lock=RLock(), _path=spec.submodule_search_locations)
        sys.modules[name] = module
