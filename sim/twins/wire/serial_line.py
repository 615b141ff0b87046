"""A serial line with a simulated switch at its end: a pseudo terminal that is as slow as a real line.

The path a client opens is a link that stays the same when the line vanishes and comes back, as that of an
unplugged adapter does.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import os
import select
import shutil
import tempfile
import termios
import tty
from collections.abc import Awaitable, Callable
from pathlib import Path

from sim.models.clock import Clock, RealClock
from sim.twins.wire.line import Reader, Writer

BITS_PER_BYTE = 10
"""Start bit, eight data bits, stop bit."""

_READ_BYTES = 4096
_LAST_WORDS_S = 1.0
_POLL_S = 0.002

Client = Callable[[Reader, Writer], Awaitable[None]]
"""A session on what it reads and what it writes."""


class SerialLine:
    """Runs `client` on a pseudo terminal; the same outside as a `Listener`.

    There is no connecting on a serial line: one session goes on for as long as the line is there,
    whoever opens it in turn. Every byte takes 10/`baud` seconds of `clock`, both ways.
    """

    def __init__(self, client: Client, *, baud: int, clock: Clock | None = None) -> None:
        self._client = client
        self._baud = baud
        self._clock = clock or RealClock()
        self._folder = Path(tempfile.mkdtemp(prefix="serial-"))
        self._link = self._folder / "tty"
        self._wire: _Wire | None = None
        self._session: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """The path to open."""
        return str(self._link)

    @property
    def is_open(self) -> bool:
        """True if there is a line at the path now."""
        return self._link.is_symlink()

    @property
    def clients(self) -> int:
        """1 while the line exists, else 0, because the twin cannot see who has it open."""
        return int(self._wire is not None)

    def open(self) -> None:
        """Create the line at its path."""
        if self._wire is None:
            self._wire = _Wire(self._baud, self._clock)
            self._session = asyncio.get_running_loop().create_task(self._serve_client(self._wire))
        if not self.is_open:
            self._link.symlink_to(self._wire.path)

    async def refuse(self) -> None:
        """Take the path away; who has the line open keeps it."""
        self._link.unlink(missing_ok=True)

    def drop_clients(self) -> int:
        """Remove the line under whoever has it open; where the path is there, a new line takes its place."""
        dropped = self.clients
        self._vanish()
        return dropped

    async def close(self) -> None:
        """Remove the line for good."""
        await self.refuse()
        session = self._session
        self._vanish()
        if session is not None:
            session.cancel()
            await asyncio.gather(session, return_exceptions=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _vanish(self) -> None:
        wire, self._wire = self._wire, None
        if wire is None:
            return
        wire.disconnect()
        if self.is_open:
            self._link.unlink()
            self.open()

    async def _serve_client(self, wire: _Wire) -> None:
        try:
            await self._client(wire.reader, wire)
        except ConnectionError:
            pass  # a fault broke the line in the middle
        finally:
            await wire.finish()
            if self._wire is wire:
                self._vanish()


class _Wire:
    """One pseudo terminal: what the client writes arrives at `reader`; `write` goes to the client, at line speed."""

    def __init__(self, baud: int, clock: Clock) -> None:
        self._master, self._slave = os.openpty()
        tty.setraw(self._slave)  # or the kernel echoes and translates
        os.set_blocking(self._master, False)
        self.path = os.ttyname(self._slave)
        self.reader = asyncio.StreamReader()
        self._pace = _Pace(baud, clock)
        self._arriving: asyncio.Queue[bytes] = asyncio.Queue()
        self._leaving = bytearray()
        self._has_more = asyncio.Event()
        self._all_sent = asyncio.Event()
        self._all_sent.set()
        self._closing = False
        loop = asyncio.get_running_loop()
        loop.add_reader(self._master, self._read_arrived)
        self._tasks = [loop.create_task(self._take_in()), loop.create_task(self._give_out())]

    # -- what a `Line` uses

    @property
    def transport(self) -> _Wire:
        """Itself: `transport.abort()` breaks the line."""
        return self

    def write(self, data: bytes) -> None:
        """Send, in time."""
        if data and not self._closing:
            self._leaving += data
            self._all_sent.clear()
            self._has_more.set()

    async def drain(self) -> None:
        """Return when everything is on the line. Raises `ConnectionResetError` when the line vanished."""
        await self._all_sent.wait()
        if self._master < 0:
            raise ConnectionResetError("the line has vanished")

    def close(self) -> None:
        """Send no more; what was sent before still arrives."""
        self._closing = True

    def is_closing(self) -> bool:
        """Return True if no more can be sent."""
        return self._closing

    async def wait_closed(self) -> None:
        """Return when the last words were taken."""
        await self.finish()

    def abort(self) -> None:
        """Break the line at once."""
        self.disconnect()

    # -- inside

    async def finish(self) -> None:
        """Wait a while for the last bytes to be read: a pseudo terminal forgets them when it is closed."""
        if self._master < 0:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._read_out(), _LAST_WORDS_S)

    async def _read_out(self) -> None:
        await self._all_sent.wait()
        while self._master >= 0 and self._unread():  # noqa: ASYNC110 - the kernel tells nobody
            await asyncio.sleep(_POLL_S)

    def _unread(self) -> int:
        """Return bytes that the client has yet to read, those included that the kernel has yet to bring to its end."""
        look = select.poll()  # which waits until the kernel has brought them; the count alone would miss them
        look.register(self._slave, select.POLLIN)
        look.poll(0)
        count = array.array("i", [0])
        fcntl.ioctl(self._slave, termios.FIONREAD, count)
        return count[0]

    def disconnect(self) -> None:
        """Close both ends: whoever has the line open finds it gone."""
        if self._master < 0:
            return
        asyncio.get_running_loop().remove_reader(self._master)
        for task in self._tasks:
            task.cancel()
        for descriptor in (self._master, self._slave):
            os.close(descriptor)
        self._master, self._closing = -1, True
        self._all_sent.set()
        self.reader.feed_eof()

    def _read_arrived(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._arriving.put_nowait(os.read(self._master, _READ_BYTES))

    async def _take_in(self) -> None:
        while True:
            data = await self._arriving.get()
            await self._pace.pass_bytes(len(data))
            self.reader.feed_data(data)

    async def _give_out(self) -> None:
        while True:
            await self._has_more.wait()
            piece = bytes(self._leaving[: self._pace.piece])
            del self._leaving[: self._pace.piece]
            await self._pace.pass_bytes(len(piece))
            while piece:
                try:
                    piece = piece[os.write(self._master, piece) :]
                except BlockingIOError:  # nobody reads; the kernel holds some 4 kB
                    await asyncio.sleep(_POLL_S)
            if not self._leaving:
                self._has_more.clear()
                self._all_sent.set()


class _Pace:
    """Time that bytes take on the line. Both ways share it, as the devices answer only when asked."""

    def __init__(self, baud: int, clock: Clock) -> None:
        self._byte_s = BITS_PER_BYTE / baud
        self._clock = clock
        self._free_at_s = 0.0
        self.piece = max(1, baud // 2000)

    async def pass_bytes(self, count: int) -> None:
        """Return when so many bytes have passed after those before them."""
        self._free_at_s = max(self._free_at_s, self._clock.now()) + count * self._byte_s
        await self._clock.sleep(self._free_at_s - self._clock.now())
