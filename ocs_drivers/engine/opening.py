"""Hints for a switch that could not be opened: the limit of sessions, the port and the scheme of the address."""

from __future__ import annotations

import re

from ocs_drivers.errors import (
    AddressError,
    AuthError,
    ConnectError,
    ConnectionLost,
    DeviceError,
    OcsError,
    TransportError,
    Unsupported,
)

CHECK_PORT = "Check the port and the scheme of the address: something else may answer there."
ANOTHER_MAKE = "Or check the port and the scheme of the address: another make of switch may answer there."
SESSIONS = (
    "It may have no session left: close other clients, or wait until the device ends those that are idle."
)

_CLOSED = re.compile("closed|reset|lost", re.IGNORECASE)
"""In the reason of a `ConnectError` when somebody was there, and left."""

_NO_SESSION = re.compile(
    r"\b(sessions?|logins?|users?)\b.*\b(reached|exceeded|limit|full|in use)\b", re.IGNORECASE
)
_TOO_MANY = re.compile(r"\b(maximum|max|too many|no more)\b.*\b(sessions?|logins?|users?)\b", re.IGNORECASE)

_NO_SUCH_PAGE = frozenset({"404", "405", "406", "415", "501"})
"""HTTP statuses of a server that has nothing where the scheme asks."""

_NO_SUCH_COMMAND = re.compile(r"(?<!\d)-113\b")
"""The error that SCPI has for a command that the device does not know."""


def advise(error: OcsError) -> None:
    """Complete the hint of an error that ended the opening of a switch."""
    hints = [error.hint]
    hints += [hint for hint in _hints(error) if not _is_said(hint, error.hint)]
    error.hint = " ".join(filter(None, hints))
    error.locate(device=error.device)


def _hints(error: OcsError) -> list[str]:
    """Return what may be the reason; a refusal in the language of the scheme means the right port."""
    if _is_session_limit(error):
        return [SESSIONS]
    if isinstance(error, TransportError):
        closed = isinstance(error, ConnectionLost) or (
            isinstance(error, ConnectError) and _CLOSED.search(error.what)
        )
        return [SESSIONS, CHECK_PORT] if closed else [CHECK_PORT]
    if isinstance(error, DeviceError) and error.device_code in _NO_SUCH_PAGE:
        return [CHECK_PORT]
    is_unknown = isinstance(error, DeviceError | AddressError) and _NO_SUCH_COMMAND.search(error.what)
    if is_unknown or isinstance(error, AuthError) or (isinstance(error, Unsupported) and error.sent):
        return [ANOTHER_MAKE]
    return []


def _is_session_limit(error: OcsError) -> bool:
    """Return True if the device itself says that it has no session left."""
    text = f"{error.what} {error.received}"
    is_refusal = isinstance(error, DeviceError | AuthError)
    return is_refusal and bool(_NO_SESSION.search(text) or _TOO_MANY.search(text))


def _is_said(hint: str, already: str) -> bool:
    said = "session" if hint is SESSIONS else "check the port"
    return said in already.lower()
