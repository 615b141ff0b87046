"""The log of all traffic on the wire, line by line, with passwords redacted.

logging.getLogger("ocs_drivers.wire").setLevel(logging.DEBUG)
"""

from __future__ import annotations

import logging
import re
from typing import Protocol

logger = logging.getLogger("ocs_drivers.wire")


class Listener(Protocol):
    """Observer of every exchange, without passwords."""

    def on_sent(self, device: str, text: str) -> None:
        """Handle a line that was sent to the device."""

    def on_received(self, device: str) -> None:
        """Handle the arrival of bytes from the device."""


_listener: Listener | None = None


def set_listener(listener: Listener | None) -> None:
    """Set the listener for all traffic; None removes it."""
    global _listener  # noqa: PLW0603  one for the process, as loggers are
    _listener = listener


_TL1_PASSWORD = re.compile(r"(ACT-USER:[^:]*:[^:]*:[^:]*:[^:]*:)[^;]*", re.IGNORECASE)
_URL_CREDENTIALS = re.compile(r"//.*@")


def redact(text: str) -> str:
    """Return the text without the password of a TL1 login and without credentials in a URL.

    >>> redact("ACT-USER::admin:1::secret;")
    'ACT-USER::admin:1::***;'
    >>> redact("polatis+tl1://admin:p@ss/word@host:3082")
    'polatis+tl1://***@host:3082'
    """
    return _URL_CREDENTIALS.sub("//***@", _TL1_PASSWORD.sub(r"\1***", text))


def log_sent(device: str, text: str) -> None:
    """Log a line that was sent to the device."""
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("%s > %s", device, redact(text.rstrip("\r\n")))
    if _listener is not None:
        _listener.on_sent(device, redact(text.rstrip("\r\n")))


def log_received(device: str, data: bytes) -> None:
    """Log bytes received from the device, one record per line."""
    if logger.isEnabledFor(logging.DEBUG):
        for line in data.decode("ascii", "backslashreplace").splitlines():
            if line.strip():
                logger.debug("%s < %s", device, redact(line))
    if _listener is not None:
        _listener.on_received(device)
