"""Devices: where an address leads, and what stands between us and a board that hangs.

| module | what it is for |
|---|---|
| `address` | `connect("sim://kit")`: the scheme names an entry point |
| `board` | `qick://host` (Pyro4) and `qick://local` |
| `deadline`, `guard`, `worker` | deadlines for every device |
| `identity` | a name by which a calibration knows its device |
| `recording`, `replay` | an acquisition in a file, and the device that the file makes |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightbed.lazy import lazy_names

if TYPE_CHECKING:
    from lightning.devices.address import connect
    from lightning.devices.deadline import Patience

__all__ = ["Patience", "connect"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "address": "connect",
            "deadline": "Patience",
        },
    )
