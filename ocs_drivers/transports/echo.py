"""Devices that repeat each TL1 command before they answer it; this removes the repetition."""

from __future__ import annotations

import re

from ocs_drivers.timing import Deadline
from ocs_drivers.transports.transport import Transport

_LOGIN = re.compile(rb"ACT-USER:[^:]*:[^:]*:[^:]*:[^:]*:(?=.)", re.IGNORECASE)


class EchoCancelled:
    """A transport on which the device may repeat each command before it answers, in any pieces.

    What it repeats is known, so nothing else is ever removed; a device that repeats nothing is received as it is.
    The password of a login may be repeated as it was, or hidden, as it is in a recording.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._expected = b""
        self._hides_rest = False
        self._held = b""

    @property
    def is_open(self) -> bool:
        """True if there is a connection, as far as we know."""
        return self._transport.is_open

    def open(self, timeout_s: float) -> None:
        """Connect."""
        self._expected = self._held = b""
        self._transport.open(timeout_s)

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def has_input(self) -> bool:
        """Return True if something can be read at once."""
        return self._transport.has_input()

    def send(self, data: bytes, deadline: Deadline) -> None:
        """Send a command, and expect it to be repeated."""
        login = _LOGIN.match(data)
        self._expected, self._hides_rest = (login[0], True) if login else (data.strip(), False)
        self._transport.send(data, deadline)

    def receive(self, deadline: Deadline) -> bytes:
        """Return what has arrived without the repetition; nothing, when that was all or may yet become it."""
        received = self._held + self._transport.receive(deadline)
        before, found, after = received.partition(self._expected) if self._expected else (received, b"", b"")
        if found and self._hides_rest:
            _, end, rest = after.partition(b";")
            if not end:
                self._held = found + after
                return before
            after = rest
        if found:
            self._expected = self._held = b""
            return before + after
        begun = self._count_begun(received)
        self._held = received[len(received) - begun :]
        return received[: len(received) - begun]

    def _count_begun(self, received: bytes) -> int:
        """Count the bytes at the end that may be the beginning of what we expect to be repeated."""
        longest = min(len(received), len(self._expected) - 1)
        return next((n for n in range(longest, 0, -1) if received.endswith(self._expected[:n])), 0)
