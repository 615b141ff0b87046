"""The root of the errors of count-action modules, buses and tools.

FpgaError
├── CountActionError      a text or a datapath that is not a valid one; `.errors` say where      (user)
├── ProgramError          a program that cannot be, or not for this datapath                     (user)
├── DatapathError         the datapath did not do what was asked                               (device)
├── BusError              a register bus that cannot be opened, or failed                        (device)
└── HdlError              a tool of the hardware flow is missing or failed                       (user)
"""

from __future__ import annotations

from lightbed.errors import LightbedError


class FpgaError(LightbedError, code="fpga.error", who="user"):
    """Root of all errors raised by `fpga`."""
