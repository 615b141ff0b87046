"""The connection of one client to a simulated device, its faults, and the transcript of all bytes."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Literal, NoReturn, Protocol

from sim.models.clock import Clock

_MAX_ENTRIES = 10_000
_READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class TranscriptEntry:
    """Bytes that one session read or wrote at once. `time_s` is the time on the device's clock."""

    time_s: float
    frontend: str
    session: int
    direction: Literal["in", "out"]
    data: bytes

    def as_json(self) -> Mapping[str, Any]:
        """Return the entry as JSON values. Each byte becomes the latin-1 character of its value."""
        return {
            "seconds": round(self.time_s, 6),
            "front": self.frontend,
            "session": self.session,
            "direction": self.direction,
            "data": self.data.decode("latin-1"),
        }


class Transcript:
    """The latest 10,000 entries of all sessions, in chronological order."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: deque[TranscriptEntry] = deque(maxlen=_MAX_ENTRIES)

    def record(
        self, frontend: str, session_number: int, direction: Literal["in", "out"], data: bytes
    ) -> None:
        """Append an entry with the current time."""
        self._entries.append(TranscriptEntry(self._clock.now(), frontend, session_number, direction, data))

    def list_entries(self) -> tuple[TranscriptEntry, ...]:
        """Return the stored entries, oldest first."""
        return tuple(self._entries)

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()


class Delivery(Enum):
    """Outcome of a command when faults may break its connection."""

    ANSWERED = auto()
    NOT_RECEIVED = auto()
    NOT_ANSWERED = auto()


@dataclass(slots=True)
class LineFaults:
    """Faults of all lines of a device. Its methods count down the faults that they apply.

    Counts refer to the next commands or replies of all clients together.

    - `garbage_replies`: number of replies that become noise.
    - `reply_delay_s`: delay of every reply.
    - `close_after_commands`: the n-th command breaks its connection. With `close_executes`, the device executes the
      command but does not answer; otherwise it does not receive the command.
    - `close_after_bytes`: the next reply breaks its connection after so many bytes.
    - `is_half_open`: lines receive and send nothing.
    - `fire_counts`: how often each fault took effect.
    """

    garbage_replies: int = 0
    reply_delay_s: float = 0.0
    close_after_commands: int | None = None
    close_executes: bool = True
    close_after_bytes: int | None = None
    max_sessions: int | None = None
    is_half_open: bool = False
    fire_counts: Counter[str] = field(default_factory=Counter)
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    def determine_delivery(self) -> Delivery:
        """Return the outcome of the command that was just received, and count down `close_after_commands`."""
        if self.close_after_commands is None:
            return Delivery.ANSWERED
        self.close_after_commands -= 1
        if self.close_after_commands > 0:
            return Delivery.ANSWERED
        self.close_after_commands = None
        self.fire_counts["close_connection"] += 1
        return Delivery.NOT_ANSWERED if self.close_executes else Delivery.NOT_RECEIVED

    def apply_to_reply(self, reply: bytes) -> tuple[bytes, bool]:
        """Return the bytes to send for `reply`, and whether the connection must break after these bytes."""
        if self.garbage_replies:
            self.garbage_replies -= 1
            self.fire_counts["garbage"] += 1
            # Keep the line ending, because a client may wait for it.
            noise = bytes(self.rng.choice(b"#%~^{}\x15\x7f\xfe") for _ in range(max(4, len(reply) - 2)))
            reply = noise + reply[-2:]
        if self.close_after_bytes is None:
            return reply, False
        length, self.close_after_bytes = self.close_after_bytes, None
        self.fire_counts["close_connection"] += 1
        return reply[:length], True


class Reader(Protocol):
    """Source of the bytes of a client: a socket, an SSH session, a serial line or memory."""

    async def read(self, n: int, /) -> bytes:
        """Return the next bytes, at most `n`, or empty bytes at the end."""
        ...


class Writer(Protocol):
    """Sink of the bytes to a client."""

    def write(self, data: bytes, /) -> object:
        """Send `data` without blocking."""
        ...

    async def drain(self) -> None:
        """Wait until more data may be written."""
        ...

    def is_closing(self) -> bool:
        """Return True if the session has ended."""
        ...

    def close(self) -> object:
        """Send all written data, then end the session."""
        ...


class LineBroken(ConnectionError):
    """A fault has broken the connection."""


class Line:
    """The connection of one client. It records all bytes in the transcript, and applies the faults."""

    def __init__(
        self,
        frontend: str,
        session_number: int,
        streams: tuple[Reader, Writer],
        *,
        faults: LineFaults,
        transcript: Transcript,
        clock: Clock,
    ) -> None:
        self._frontend = frontend
        self._session = session_number
        self._reader, self._writer = streams
        self._faults = faults
        self._transcript = transcript
        self._clock = clock

    async def read(self) -> bytes:
        """Return the next bytes, or empty bytes at the end."""
        data = await self._reader.read(_READ_BYTES)
        while data and self._faults.is_half_open:
            self._faults.fire_counts["half_open"] += 1
            data = await self._reader.read(_READ_BYTES)
        self._transcript.record(self._frontend, self._session, "in", data)
        return data

    async def respond(self, execute: Callable[[], Awaitable[bytes]], ending: bytes = b"") -> None:
        """Execute one command, and send its answer followed by `ending`. Either may be empty.

        The fault `garbage` changes the answer but not `ending`. Raise `LineBroken` if a fault breaks the connection:
        before the command, before its answer, or within the answer.
        """
        delivery = self._faults.determine_delivery()
        if delivery is not Delivery.NOT_RECEIVED:
            answer = await execute()
        if delivery is not Delivery.ANSWERED:
            self._break()
        if answer or ending:
            if self._faults.reply_delay_s:
                self._faults.fire_counts["delay_reply"] += 1
                await self._clock.sleep(self._faults.reply_delay_s)
            answer, is_broken = self._faults.apply_to_reply(answer) if answer else (answer, False)
            self.send(answer if is_broken else answer + ending)
            await self._writer.drain()
            if is_broken:
                self._break()

    def send(self, data: bytes) -> None:
        """Send unsolicited bytes. Discard them if the session has ended or the line is half open."""
        if not self._writer.is_closing() and not self._faults.is_half_open:
            self._transcript.record(self._frontend, self._session, "out", data)
            self._writer.write(data)

    def disconnect(self) -> None:
        """Send all written data, then end the session, as the device does."""
        self._writer.close()

    @property
    def clock(self) -> Clock:
        """Clock of the device."""
        return self._clock

    def _break(self) -> NoReturn:
        # `close` instead of `abort` sends buffered bytes, so the client gets exactly `close_after_bytes` bytes.
        self._writer.close()
        raise LineBroken
