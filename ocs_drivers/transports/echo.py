"""Removal of the echo of devices that repeat each TL1 command before they answer it."""

from __future__ import annotations

import re

from ocs_drivers.timing import Deadline
from ocs_drivers.transports.transport import Transport

_LOGIN = re.compile(rb"ACT-USER:[^:]*:[^:]*:[^:]*:[^:]*:(?=.)", re.IGNORECASE)


class EchoCanceller:
    """A transport that removes the echo of each command, however it is split.

    Only text that equals the last command is removed; input without an echo passes unchanged. The device may echo or
    hide the password of a login.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._expected_echo = b""
        self._may_hide_password = False
        self._partial_echo = b""

    @property
    def is_open(self) -> bool:
        """True if there is a connection that is not known to be broken."""
        return self._transport.is_open

    def open(self, timeout_s: float) -> None:
        """Connect."""
        self._expected_echo = self._partial_echo = b""
        self._transport.open(timeout_s)

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def has_input(self) -> bool:
        """Return True if `receive` would not wait."""
        return self._transport.has_input()

    def send(self, data: bytes, deadline: Deadline) -> None:
        """Send a command, and expect its echo."""
        login = _LOGIN.match(data)
        self._expected_echo, self._may_hide_password = (login[0], True) if login else (data.strip(), False)
        self._transport.send(data, deadline)

    def receive(self, deadline: Deadline) -> bytes:
        """Return the bytes that have arrived, without the echo or a beginning of the echo; possibly empty."""
        received = self._partial_echo + self._transport.receive(deadline)
        text_before, echo, text_after = (
            received.partition(self._expected_echo) if self._expected_echo else (received, b"", b"")
        )
        if echo and self._may_hide_password:
            _, end, remainder = text_after.partition(b";")
            if not end:
                self._partial_echo = echo + text_after
                return text_before
            text_after = remainder
        if echo:
            self._expected_echo = self._partial_echo = b""
            return text_before + text_after
        partial_length = self._count_partial_echo(received)
        self._partial_echo = received[len(received) - partial_length :]
        return received[: len(received) - partial_length]

    def _count_partial_echo(self, received: bytes) -> int:
        """Return the number of bytes at the end that may be the beginning of the echo."""
        longest = min(len(received), len(self._expected_echo) - 1)
        return next((n for n in range(longest, 0, -1) if received.endswith(self._expected_echo[:n])), 0)
