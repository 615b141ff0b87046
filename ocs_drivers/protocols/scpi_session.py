"""An SCPI session over any transport: one exchange of queries and answers at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from ocs_drivers.errors import (
    AnotherDevice,
    ConnectError,
    ConnectionLost,
    DeviceError,
    ProtocolDesync,
    TransportError,
)
from ocs_drivers.model import Identity
from ocs_drivers.protocols import scpi
from ocs_drivers.protocols.session import TransportSession
from ocs_drivers.timing import SYSTEM_CLOCK, Clock, Deadline, make_answer_deadline, record_answer
from ocs_drivers.transports import wire
from ocs_drivers.transports.transport import Transport, make_not_open

_T = TypeVar("_T")
_MAX_QUEUE_ENTRIES = 64
"""Maximum number of entries read from an error queue, for a device whose queue never ends."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """SCPI commands that differ between instruments.

    `identity_query` is sent on every new connection; `decode_identity` decodes its answer. `error_query` asks for the
    oldest entry of the error queue; it is empty for a device without a queue.
    """

    terminator: bytes = b"\n"
    identity_query: str = scpi.IDENTITY_QUERY
    decode_identity: Callable[[str], Identity] = scpi.decode_identity
    error_query: str = scpi.ERROR_QUERY


STANDARD_DIALECT = Dialect()


class ScpiSession(TransportSession):
    """Queries and answers on one connection; several threads may share it.

    A lock is held over each exchange, so that each thread receives its own answer. Any failure of an exchange closes
    the connection, so that a late answer is never taken for the next one. The next exchange reconnects, and raises
    `AnotherDevice` if the serial number differs.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        device: str,
        timeout_s: float,
        clock: Clock = SYSTEM_CLOCK,
        dialect: Dialect = STANDARD_DIALECT,
    ) -> None:
        super().__init__(transport, device=device, timeout_s=timeout_s, clock=clock)
        self._dialect = dialect
        self._reader = scpi.ReplyReader()
        self._replies: deque[str] = deque()
        self._identity: Identity | None = None

    @property
    def identity(self) -> Identity:
        """Identity that the device reported when the connection was made."""
        if self._identity is None:
            raise make_not_open(self._device)
        return self._identity

    def _process_input(self) -> None:
        """Discard the late LF of a CRLF; close the connection if any other input is pending."""
        if not self._transport.is_open or not self._transport.has_input():
            return
        try:
            if self._transport.receive(Deadline(0, self._clock)).strip(b"\r\n"):
                self._transport.close()
        except TransportError:
            self._transport.close()

    def ask(self, query: str, decode: Callable[[str], _T], *, timeout_s: float | None = None) -> _T:
        """Return the decoded answer to one query, or to a chain in which only the last command has an answer.

        Never sends twice: for queries that may be repeated, see `ask_with_retry`.
        """
        with self._exchange(query, timeout_s) as next_reply:
            return decode(next_reply())

    def send_command(self, command: str) -> None:
        """Send a command without a reply; only later queries show its effect."""
        with self._exchange(command):
            pass

    def ask_with_retry(self, query: str, decode: Callable[[str], _T]) -> _T:
        """Call `ask`, and again on a new connection if the device had closed the old one. For reads only."""
        try:
            return self.ask(query, decode)
        except ConnectionLost:
            return self.ask(query, decode)

    def ask_all_with_retry(self, queries: Sequence[str], decode: Callable[[Sequence[str]], _T]) -> _T:
        """Return the decoded answers to several queries in one round trip, repeated as in `ask_with_retry`."""
        try:
            return self._ask_all(queries, decode)
        except ConnectionLost:
            return self._ask_all(queries, decode)

    def _ask_all(self, queries: Sequence[str], decode: Callable[[Sequence[str]], _T]) -> _T:
        with self._exchange(";".join(queries)) as next_reply:
            return decode([next_reply() for _ in queries])

    def ask_with_errors(
        self, query: str, decode: Callable[[str], _T]
    ) -> tuple[_T | None, tuple[DeviceError, ...]]:
        """Return the answer, or None if the query was refused, and the errors in the queue.

        The answer and the first entry of the queue take one round trip, every further entry another. A refused query
        has no answer, so the first reply is the entry of the queue.
        """
        with self._exchange(f"{query};{self._dialect.error_query}") as next_reply:
            answer: _T | None = None
            reply = next_reply()
            if not scpi.is_queued_error(reply):
                answer = decode(reply)
                reply = next_reply()
            entry = scpi.decode_error(reply)
            if answer is None and entry.number == 0:
                raise ProtocolDesync("the device sent neither an answer nor an error", received=reply)
        return answer, self._read_remaining_errors(entry, query)

    def drain_errors(self, command: str) -> tuple[DeviceError, ...]:
        """Read the device's error queue until it is empty; return its errors, oldest first."""
        return self._read_remaining_errors(self.ask(self._dialect.error_query, scpi.decode_error), command)

    def _read_remaining_errors(self, entry: scpi.QueuedError, sent_command: str) -> tuple[DeviceError, ...]:
        errors: list[DeviceError] = []
        while entry.number != 0 and len(errors) < _MAX_QUEUE_ENTRIES:
            errors.append(self._make_device_error(entry, sent_command))
            entry = self.ask(self._dialect.error_query, scpi.decode_error)
        return tuple(errors)

    def _make_device_error(self, entry: scpi.QueuedError, sent_command: str) -> DeviceError:
        return DeviceError(
            f"the device refused: {entry.number}, {entry.text}",
            device_code=str(entry.number),
            device=self._device,
            sent=sent_command,
        )

    def _start(self) -> None:
        """Query the identity, to detect an open port that does not belong to a switch."""
        self._reader = scpi.ReplyReader()
        self._replies.clear()
        try:
            with self._query(self._dialect.identity_query, self._timeout_s) as next_reply:
                identity = self._dialect.decode_identity(next_reply())
        except ConnectionLost as error:
            raise ConnectError(
                "the device closed the connection before it identified itself",
                device=self._device,
                hint="It may serve one client at a time, or another program may listen on that port.",
            ) from error
        self._check_same_device(identity)

    def _check_same_device(self, identity: Identity) -> None:
        if self._identity is not None and self._identity.serial != identity.serial:
            self._transport.close()
            raise AnotherDevice(
                f"another device answers: serial number {identity.serial}, not {self._identity.serial}",
                device=self._device,
                hint="Check the network address, then make a new driver for this device.",
            )
        self._identity = identity

    @contextmanager
    def _exchange(self, command: str, timeout_s: float | None = None) -> Iterator[Callable[[], str]]:
        with self._lock:
            self.make_ready()
            timeout_s = self._timeout_s if timeout_s is None else timeout_s
            with self._query(command, timeout_s) as next_reply:
                yield next_reply

    @contextmanager
    def _query(self, command: str, timeout_s: float) -> Iterator[Callable[[], str]]:
        """Send a command and yield a function that returns its next reply."""
        deadline = make_answer_deadline(timeout_s, self._clock)
        with self._close_on_failure(command):
            wire.log_sent(self._device, command)
            self._transport.send(command.encode("ascii") + self._dialect.terminator, deadline)
            yield lambda: self._read_reply(deadline)
            if self._replies:
                raise ProtocolDesync("the device sent more replies than queries", received=self._replies[0])

    def _read_reply(self, deadline: Deadline) -> str:
        while not self._replies:
            data = self._receive(deadline)
            wire.log_received(self._device, data)
            self._replies.extend(self._reader.feed(data))
        record_answer()
        return self._replies.popleft()
