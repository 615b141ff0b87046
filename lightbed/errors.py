"""The root of every error that lightbed raises, sorted by who must act.

    LightbedError
    ├── ocs_drivers.errors.OcsError             switches and patch panels
    ├── fpga.errors.FpgaError                   count-action modules, buses and tools
    ├── lightning.errors.LightningError         photonic inference
    └── testbed.errors.TestbedError             labs, plans and measurements

A class is one row of a table, with its `code` and with `who` must act in its header:

    class ConnectError(TransportError, code="ocs.transport.connect"): ...

Codes are stable: command line, journal and service share them. A class without `code` or `who` inherits them.
"""

from __future__ import annotations

from typing import ClassVar, Literal

Who = Literal["user", "device", "conflict", "unknown", "ourselves"]
"""Who must act, in this order: fix the input, check the device, resolve a conflict, find out the state, file a bug."""


class LightbedError(Exception):
    """Root of all errors. The message says what happened, why, and what to do; `hint` is only what to do.

    `exit_code` is the exit code of a command that ends with this error.
    """

    code: str = "error"
    who: ClassVar[Who] = "ourselves"
    hint: str = ""
    exit_code: ClassVar[int] = 1

    def __init_subclass__(cls, *, code: str = "", who: Who | None = None) -> None:
        """Take `code` and `who` from the header of a class."""
        super().__init_subclass__()
        cls.code = code or cls.code
        cls.who = who or cls.who
