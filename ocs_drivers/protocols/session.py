"""The base of all sessions: one connection over a transport, replaced after a failure, shared by several threads."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from ocs_drivers.errors import ConnectError, OcsError, Timeout
from ocs_drivers.model import Event
from ocs_drivers.timing import SYSTEM_CLOCK, Clock, Deadline, make_answer_deadline, split_deadline
from ocs_drivers.transports.transport import Transport, make_connection_lost, make_timeout

MAX_STORED_EVENTS = 1024

MIN_CONNECT_S = 0.001
"""Minimum timeout to connect: a socket timeout of 0 would mean non-blocking."""


EARLY_S = 0.05
"""Tolerance for a partial wait, in seconds: a transport that times out earlier than this has failed."""


class TransportSession(ABC):
    """One session with a device; a protocol adds `_start` and its exchanges.

    An exchange holds the lock, calls `make_ready`, and runs inside `_close_on_failure`, so that a late answer is
    never taken for the next one. The next exchange after a failure makes a new connection.
    """

    def __init__(
        self, transport: Transport, *, device: str, timeout_s: float, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._transport = transport
        self._device = device
        self._timeout_s = timeout_s
        self._clock = clock
        self._lock = threading.RLock()
        self._events: deque[Event] = deque(maxlen=MAX_STORED_EVENTS)
        self._event_count = 0
        self._connection_count = 0
        self._is_in_use = False

    @abstractmethod
    def _start(self) -> None:
        """Initialise a new connection: log in, or query the identity of the device."""

    def _log_out(self) -> None:  # noqa: B027 - most protocols have no login
        """Log out, if the protocol has a login."""

    def _process_input(self) -> None:
        """Process pending input; by default, close the connection if there is any."""
        if self._transport.is_open and self._transport.has_input():
            self._transport.close()

    def open(self) -> None:
        """Connect and log in. Raises `ConnectError`, `LoginFailed`, `Timeout`, `ProtocolDesync`, `DeviceError`."""
        with self._lock:
            self._transport.close()
            self._connect()
            self._is_in_use = True

    def close(self) -> None:
        """Log out and close the connection; further exchanges raise `ConnectionLost` until opened again."""
        with self._lock:
            self._is_in_use = False
            self._log_out()
            self._transport.close()

    def disconnect(self) -> None:
        """Drop the connection; the next exchange makes a new one."""
        with self._lock:
            self._transport.close()

    @property
    def is_in_use(self) -> bool:
        """True from `open` to `close`; the next exchange replaces a broken connection."""
        return self._is_in_use

    @property
    def connection_count(self) -> int:
        """Number of connections made so far. After a reconnection another device may answer; messages may be lost."""
        return self._connection_count

    @property
    def event_count(self) -> int:
        """Number of unsolicited messages received since the session was created."""
        return self._event_count

    def events(self, since: int) -> tuple[Event, ...]:
        """Process pending input; return the unsolicited messages after number `since`."""
        with self._lock:
            if self._is_in_use:
                self._process_input()
            return tuple(event for event in self._events if event.number > since)

    def lock(self) -> AbstractContextManager[object]:
        """Return a re-entrant lock that keeps other threads out for several exchanges."""
        return self._lock

    def make_ready(self) -> None:
        """Ensure a live connection before a write. This sends nothing except a login on a new connection.

        A connection that the device has closed, or that has unexpected input, is replaced. Raises `ConnectionLost`
        after `close`.
        """
        with self._lock:
            if not self._is_in_use:
                raise make_connection_lost(self._device, "it is closed; open the switch first")
            self._process_input()
            if not self._transport.is_open:
                self._connect()

    def _connect(self) -> None:
        deadline = make_answer_deadline(self._timeout_s, self._clock)
        if deadline.silence_s is not None and deadline.is_over:
            raise make_timeout(self._device, deadline)
        try:
            self._transport.open(max(deadline.remaining_s(), MIN_CONNECT_S))
        except ConnectError as error:
            if deadline.silence_s is not None and deadline.is_over:
                raise make_timeout(self._device, deadline) from error
            raise
        self._connection_count += 1
        self._start()

    def _receive(self, deadline: Deadline) -> bytes:
        """Return the bytes that have arrived, at least one. Log the progress of a long wait during a step."""
        if not deadline.allow_read():
            raise make_timeout(self._device, deadline)
        for part_deadline in split_deadline(deadline):
            try:
                return self._transport.receive(part_deadline)
            except Timeout:
                if not part_deadline.is_part or part_deadline.remaining_s() > EARLY_S:
                    raise
        raise make_timeout(self._device, deadline)

    def _store_event(self, kind: str, lines: tuple[str, ...]) -> None:
        """Store an unsolicited message for `events`."""
        self._event_count += 1
        self._events.append(Event(self._event_count, self._clock.now(), kind, lines))

    @contextmanager
    def _close_on_failure(self, sent_command: str) -> Iterator[None]:
        """Close the connection on any exception, even Ctrl-C; add the device and the text sent to an `OcsError`."""
        try:
            yield
        except BaseException as error:
            self._transport.close()
            if isinstance(error, OcsError):
                error.locate(device=self._device, sent=sent_command)
            raise
