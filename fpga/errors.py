"""The root of the errors of count-action modules, buses and tools.

FpgaError
├── CountActionError      a text or a datapath that is not valid; `.errors` say where            (user)
├── ProgramError          a program that is not valid, or not for its datapath                   (user)
├── DatapathError         the hardware is not that of the program, or does not accept beats      (device)
├── BusError              a register bus cannot be opened, or failed                             (device)
└── HdlError              a tool of the hardware flow is missing or failed                       (user)
"""

from __future__ import annotations

from lightbed.errors import LightbedError


class FpgaError(LightbedError, code="fpga.error", who="user"):
    """Root of all errors raised by `fpga`."""
