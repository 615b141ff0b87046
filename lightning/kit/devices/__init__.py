"""Devices behind deadlines: what stands between us and a board that does not answer.

| module | what it is for |
|---|---|
| `board` | `qick://host` (Pyro4) and `qick://local` |
| `deadline`, `guard`, `worker` | deadlines for every device |
| `identity` | a name by which a calibration knows its device |
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lightbed.lazy import lazy_names

if TYPE_CHECKING:
    from lightning.kit.devices.deadline import Patience

__all__ = ["Patience"]

if not TYPE_CHECKING:
    _find, __dir__ = lazy_names(__name__, {"deadline": "Patience"})

    def __getattr__(name: str) -> Any:
        """Return a name of this package; `connect` was here in the release before, and stands above it now."""
        return import_module("lightning.kit.connection").connect if name == "connect" else _find(name)
