"""One client's connection to a simulated switch, with everything that can be wrong with a line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NoReturn, Protocol

from sim.models.clock import Clock
from sim.twins.wire.line_faults import Delivery, LineFaults
from sim.twins.wire.transcript import Transcript

_READ_BYTES = 1 << 16


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
            await self._reply(answer, ending)

    async def _reply(self, data: bytes, ending: bytes) -> None:
        if self._faults.reply_delay_s:
            self._faults.fired["delay_reply"] += 1
            await self._clock.sleep(self._faults.reply_delay_s)
        data, broken = self._faults.take_reply(data) if data else (data, False)
        self.send(data if broken else data + ending)
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
