"""Hints for an address where something answers, but not as a device of its scheme does."""

from __future__ import annotations

import re

from ocs_drivers.errors import ConnectError, ConnectionLost, DeviceError, OcsError, TransportError

CHECK_PORT = "Check the port and the scheme of the address: something else may answer there."
SESSIONS = (
    "It may have no session left: close other clients, or wait until the device ends those that are idle."
)

_CLOSED = re.compile("closed|reset|lost", re.IGNORECASE)
"""In the reason of a `ConnectError` when somebody was there, and left."""


def advise(error: OcsError) -> None:
    """Complete the hint of an error that ended the opening of a switch: the port, and the limit of sessions."""
    if not isinstance(error, TransportError | DeviceError):
        return
    closed = isinstance(error, ConnectionLost) or (
        isinstance(error, ConnectError) and _CLOSED.search(error.what)
    )
    hints = [error.hint, *([SESSIONS] if closed and "session" not in error.hint else [])]
    if "check the port" not in error.hint.lower():
        hints.append(CHECK_PORT)
    error.hint = " ".join(filter(None, hints))
    error.locate(device=error.device)
