"""The interface between drivers and sessions, whatever the protocol."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from ocs_drivers.model import Event


class Session(Protocol):
    """Session of a driver with its device; those of `ocs_drivers.protocols` are such."""

    def open(self) -> object:
        """Connect and log in."""

    def close(self) -> None:
        """Log out and close the connection; does nothing when closed."""

    def disconnect(self) -> None:
        """Drop the connection, for the next exchange to make a new one."""

    @property
    def in_use(self) -> bool:
        """True from `open` to `close`."""

    @property
    def event_count(self) -> int:
        """Number of unsolicited messages that have come in since it was made."""

    @property
    def connections(self) -> int:
        """Number of connections made; when it grows, messages may have been missed in between."""

    def events(self, since: int) -> tuple[Event, ...]:
        """Return the unsolicited messages after number `since`; asked for where the device sends any."""

    def lock(self) -> AbstractContextManager[object]:
        """Return a re-entrant lock that holds off other threads over several exchanges."""

    def ready(self) -> None:
        """Make sure of a fresh connection with a login; takes in what waits. Raises `ConnectionLost` when closed."""
