"""The root of every error that lightbed raises, sorted by who must act.

    LightbedError
    ├── ocs_drivers.errors.OcsError             switches and patch panels
    ├── fpga.errors.FpgaError                   count-action modules, buses and tools
    ├── lightning.errors.LightningError         photonic inference
    └── testbed.errors.TestbedError             labs, plans and measurements

Every class has a stable `code`, which command line, journal and service share.
"""

from __future__ import annotations

from typing import ClassVar, Literal

Who = Literal["user", "device", "conflict", "unknown", "ourselves"]
"""The one who must act: fix the input, look at the device, resolve a conflict, look what happened, file a bug."""


CODES: dict[str, Who] = {
    "operation.none": "user",
    "operation.running": "conflict",
    "operation.stopped": "conflict",
    "operation.superseded": "conflict",
    "plan.stale": "conflict",
    "lease.denied": "conflict",
    "confirm.pending": "conflict",
    "confirm.none": "user",
    "confirm.unarmed": "ourselves",
    "rollback.none": "user",
}
"""Codes of refusals of operations, with who must act; a class with such a code takes `who` from here."""


class LightbedError(Exception):
    """Root of all errors. The message says what, why and what to do; `hint` is the last of these, alone."""

    code: str = "error"
    who: ClassVar[Who] = "ourselves"
    hint: str = ""
