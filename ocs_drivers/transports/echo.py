"""Devices that repeat each TL1 command before they answer it; this removes the repetition."""

from __future__ import annotations

from ocs_drivers.timing import Deadline
from ocs_drivers.transports.transport import Transport


class EchoCancelled:
    """A transport on which the device may repeat each command before it answers, in any pieces.

    What it repeats is known, so nothing else is ever removed; a device that repeats nothing is received as it is.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._expected = b""
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
        self._expected = data.strip()
        self._transport.send(data, deadline)

    def receive(self, deadline: Deadline) -> bytes:
        """Return what has arrived without the repetition; nothing, when that was all or may yet become it."""
        received = self._held + self._transport.receive(deadline)
        before, found, after = received.partition(self._expected) if self._expected else (received, b"", b"")
        if found:
            self._expected = self._held = b""
            return before + after
        begun = self._begun(received)
        self._held = received[len(received) - begun :]
        return received[: len(received) - begun]

    def _begun(self, received: bytes) -> int:
        """Count the bytes at the end that may be the beginning of what we expect to be repeated."""
        longest = min(len(received), len(self._expected) - 1)
        return next((n for n in range(longest, 0, -1) if received.endswith(self._expected[:n])), 0)
