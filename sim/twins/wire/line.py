"""One client's connection to a simulated device: its faults, the record of every byte, and the line itself."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Literal, NoReturn, Protocol

from sim.models.clock import Clock

_KEPT_ENTRIES = 10_000
_READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Entry:
    """Some bytes of one session. `seconds` are of the device's clock."""

    seconds: float
    front: str
    session: int
    direction: Literal["in", "out"]
    data: bytes

    def as_json(self) -> Mapping[str, Any]:
        """Return the same as JSON values; bytes become characters of the same number."""
        return {
            "seconds": round(self.seconds, 6),
            "front": self.front,
            "session": self.session,
            "direction": self.direction,
            "data": self.data.decode("latin-1"),
        }


class Transcript:
    """The latest entries of all sessions, in the order of events."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: deque[Entry] = deque(maxlen=_KEPT_ENTRIES)

    def record(self, front: str, session: int, direction: Literal["in", "out"], data: bytes) -> None:
        """Note what was read or written."""
        self._entries.append(Entry(self._clock.now(), front, session, direction, data))

    def entries(self) -> tuple[Entry, ...]:
        """Return all that is kept, oldest first."""
        return tuple(self._entries)

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()


class Delivery(Enum):
    """Effect of a broken connection on the command that was just received."""

    ANSWERED = auto()
    NOT_RECEIVED = auto()
    NOT_ANSWERED = auto()


@dataclass(slots=True)
class LineFaults:
    """Faults of all lines of a device. Each `take_...` uses one up.

    The counts say how many of the next commands or replies are hit, over all clients. A connection that
    closes after so many commands has executed the last of them, without answering, or not even received it.
    A `half_open` line receives and sends nothing. `fired` counts how often each fault took effect.
    """

    garbage_replies: int = 0
    reply_delay_s: float = 0.0
    close_after_commands: int | None = None
    close_executes: bool = True
    close_after_bytes: int | None = None
    max_sessions: int | None = None
    half_open: bool = False
    fired: Counter[str] = field(default_factory=Counter)
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    def take_delivery(self) -> Delivery:
        """Return the delivery of the command just received."""
        if self.close_after_commands is None:
            return Delivery.ANSWERED
        self.close_after_commands -= 1
        if self.close_after_commands > 0:
            return Delivery.ANSWERED
        self.close_after_commands = None
        self.fired["close_connection"] += 1
        return Delivery.NOT_ANSWERED if self.close_executes else Delivery.NOT_RECEIVED

    def take_reply(self, reply: bytes) -> tuple[bytes, bool]:
        """Return the bytes that go out for `reply`, and True if the connection breaks after them."""
        if self.garbage_replies:
            self.garbage_replies -= 1
            self.fired["garbage"] += 1
            # its ending stays, so that a reader who waits for an ending gets one
            noise = bytes(self.rng.choice(b"#%~^{}\x15\x7f\xfe") for _ in range(max(4, len(reply) - 2)))
            reply = noise + reply[-2:]
        if self.close_after_bytes is None:
            return reply, False
        kept, self.close_after_bytes = self.close_after_bytes, None
        self.fired["close_connection"] += 1
        return reply[:kept], True


class Reader(Protocol):
    """Source of the bytes of a client: a socket, an SSH session, a serial line or memory."""

    async def read(self, n: int, /) -> bytes:
        """Return the next bytes, at most `n`; empty at the end."""
        ...


class Writer(Protocol):
    """Sink of the bytes to a client."""

    def write(self, data: bytes, /) -> object:
        """Send `data` as soon as may be."""
        ...

    async def drain(self) -> None:
        """Return when the client may take more."""
        ...

    def is_closing(self) -> bool:
        """Return True if the session has ended."""
        ...

    def close(self) -> object:
        """End it, after what was written."""
        ...


class LineBroken(ConnectionError):
    """A fault broke the connection."""


class Line:
    """Reads and writes one connection, records both, and lets the faults have their way."""

    def __init__(
        self,
        frontend: str,
        session: int,
        streams: tuple[Reader, Writer],
        *,
        faults: LineFaults,
        transcript: Transcript,
        clock: Clock,
    ) -> None:
        self._frontend = frontend
        self._session = session
        self._reader, self._writer = streams
        self._faults = faults
        self._transcript = transcript
        self._clock = clock

    async def read(self) -> bytes:
        """Return the next bytes; empty at the end."""
        data = await self._reader.read(_READ_BYTES)
        while data and self._faults.half_open:
            self._faults.fired["half_open"] += 1
            data = await self._reader.read(_READ_BYTES)
        self._transcript.record(self._frontend, self._session, "in", data)
        return data

    async def respond(self, execute: Callable[[], Awaitable[bytes]], ending: bytes = b"") -> None:
        """Execute one command and send its answer, if it has one, and then `ending`, which garbage does not touch.

        Raises `LineBroken` when a fault breaks the line before, instead of or within the answer.
        """
        delivery = self._faults.take_delivery()
        if delivery is not Delivery.NOT_RECEIVED:
            answer = await execute()
        if delivery is not Delivery.ANSWERED:
            self._break()
        if answer or ending:
            if self._faults.reply_delay_s:
                self._faults.fired["delay_reply"] += 1
                await self._clock.sleep(self._faults.reply_delay_s)
            answer, broken = self._faults.take_reply(answer) if answer else (answer, False)
            self.send(answer if broken else answer + ending)
            await self._writer.drain()
            if broken:
                self._break()

    def send(self, data: bytes) -> None:
        """Send something nobody asked for."""
        if not self._writer.is_closing() and not self._faults.half_open:
            self._transcript.record(self._frontend, self._session, "out", data)
            self._writer.write(data)

    def disconnect(self) -> None:
        """End the session from the device's side, after what was sent."""
        self._writer.close()

    @property
    def clock(self) -> Clock:
        """The time the device lives in."""
        return self._clock

    def _break(self) -> NoReturn:
        # Closing sends what is left and then ends, so that exactly the wanted bytes arrive.
        self._writer.close()
        raise LineBroken
