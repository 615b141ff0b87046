"""Devices with deadlines: protection against a board that does not answer.

| module | purpose |
|---|---|
| `board` | `qick://host` (Pyro4) and `qick://local` |
| `deadline`, `guard` | deadlines for every device |
| `identity` | the stable name that ties a calibration to its device |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightbed.lazy import make_lazy_attributes

if TYPE_CHECKING:
    from lightning.kit.devices.deadline import Patience

__all__ = ["Patience"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = make_lazy_attributes(__name__, {"deadline": "Patience"})
