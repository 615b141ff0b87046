"""A serial line to a simulated switch: a pseudo terminal with the speed of a real line.

Clients open a symbolic link. Its path stays the same when the line disappears and returns, like the device file of a
serial adapter that is unplugged and plugged in again.
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
"""A start bit, eight data bits and a stop bit."""

_READ_BYTES = 4096
_DRAIN_TIMEOUT_S = 1.0
_POLL_INTERVAL_S = 0.002

ClientHandler = Callable[[Reader, Writer], Awaitable[None]]
"""Serves one session through its reader and writer."""


class SerialLine:
    """Listener that runs `client_handler` on a pseudo terminal, with the interface of a `Listener`.

    A serial line has no connections. One session lasts as long as the line, even if several processes open the line in
    turn. Every byte takes 10/`baud` seconds of `clock`, in both directions.
    """

    def __init__(self, client_handler: ClientHandler, *, baud: int, clock: Clock | None = None) -> None:
        self._client_handler = client_handler
        self._baud = baud
        self._clock = clock or RealClock()
        self._folder = Path(tempfile.mkdtemp(prefix="serial-"))
        self._link_path = self._folder / "tty"
        self._wire: _Wire | None = None
        self._session: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """Path that clients open."""
        return str(self._link_path)

    @property
    def is_open(self) -> bool:
        """True if the path exists now."""
        return self._link_path.is_symlink()

    @property
    def client_count(self) -> int:
        """1 while the line exists, otherwise 0. The twin cannot see which processes have opened the line."""
        return int(self._wire is not None)

    def open(self) -> None:
        """Create the line at its path."""
        if self._wire is None:
            self._wire = _Wire(self._baud, self._clock)
            self._session = asyncio.get_running_loop().create_task(self._serve_client(self._wire))
        if not self.is_open:
            self._link_path.symlink_to(self._wire.path)

    async def refuse(self) -> None:
        """Remove the path. A client that has already opened the line can still use it."""
        self._link_path.unlink(missing_ok=True)

    def drop_clients(self) -> int:
        """Break the line, and return the number of broken lines (0 or 1). If the path exists, create a new line."""
        broken_lines = self.client_count
        self._drop_wire()
        return broken_lines

    async def close(self) -> None:
        """Remove the line for good."""
        await self.refuse()
        session = self._session
        self._drop_wire()
        if session is not None:
            session.cancel()
            await asyncio.gather(session, return_exceptions=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _drop_wire(self) -> None:
        wire, self._wire = self._wire, None
        if wire is None:
            return
        wire.disconnect()
        if self.is_open:
            self._link_path.unlink()
            self.open()

    async def _serve_client(self, wire: _Wire) -> None:
        try:
            await self._client_handler(wire.reader, wire)
        except ConnectionError:
            pass  # a fault broke the line
        finally:
            await wire.wait_until_drained()
            if self._wire is wire:
                self._drop_wire()


class _Wire:
    """One pseudo terminal. `reader` yields bytes of the client, and `write` sends bytes to it, both at line speed."""

    def __init__(self, baud: int, clock: Clock) -> None:
        self._master, self._slave = os.openpty()
        tty.setraw(self._slave)  # otherwise the kernel would echo and translate
        os.set_blocking(self._master, False)
        self.path = os.ttyname(self._slave)
        self.reader = asyncio.StreamReader()
        self._pacer = _Pacer(baud, clock)
        self._receive_queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._send_buffer = bytearray()
        self._data_event = asyncio.Event()
        self._drained_event = asyncio.Event()
        self._drained_event.set()
        self._is_closing = False
        loop = asyncio.get_running_loop()
        loop.add_reader(self._master, self._read_available)
        self._tasks = [loop.create_task(self._receive()), loop.create_task(self._send_queued_bytes())]

    # -- interface for `Line`

    @property
    def transport(self) -> _Wire:
        """This object, so that `transport.abort()` breaks the line."""
        return self

    def write(self, data: bytes) -> None:
        """Queue bytes to be sent at line speed."""
        if data and not self._is_closing:
            self._send_buffer += data
            self._drained_event.clear()
            self._data_event.set()

    async def drain(self) -> None:
        """Wait until all bytes are sent. Raise `ConnectionResetError` if the line was broken."""
        await self._drained_event.wait()
        if self._master < 0:
            raise ConnectionResetError("the line has vanished")

    def close(self) -> None:
        """Accept no more bytes. Bytes that were written before are still sent."""
        self._is_closing = True

    def is_closing(self) -> bool:
        """Return True if no more bytes are accepted."""
        return self._is_closing

    async def wait_closed(self) -> None:
        """Wait for the client to read the last bytes, like `wait_until_drained`."""
        await self.wait_until_drained()

    def abort(self) -> None:
        """Break the line at once."""
        self.disconnect()

    # -- inside

    async def wait_until_drained(self) -> None:
        """Wait up to `_DRAIN_TIMEOUT_S` until the client has read the last bytes.

        When a pseudo terminal is closed, it discards unread bytes.
        """
        if self._master < 0:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wait_until_read(), _DRAIN_TIMEOUT_S)

    async def _wait_until_read(self) -> None:
        await self._drained_event.wait()
        while self._master >= 0 and self._count_unread():  # noqa: ASYNC110 - the kernel sends no event
            await asyncio.sleep(_POLL_INTERVAL_S)

    def _count_unread(self) -> int:
        """Return the number of bytes that the client has not read yet, including bytes inside the kernel."""
        poll = select.poll()  # polling makes the kernel deliver its bytes, which FIONREAD alone would miss
        poll.register(self._slave, select.POLLIN)
        poll.poll(0)
        count = array.array("i", [0])
        fcntl.ioctl(self._slave, termios.FIONREAD, count)
        return count[0]

    def disconnect(self) -> None:
        """Close both ends of the pseudo terminal. A client that has opened it gets an error."""
        if self._master < 0:
            return
        asyncio.get_running_loop().remove_reader(self._master)
        for task in self._tasks:
            task.cancel()
        for descriptor in (self._master, self._slave):
            os.close(descriptor)
        self._master, self._is_closing = -1, True
        self._drained_event.set()
        self.reader.feed_eof()

    def _read_available(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._receive_queue.put_nowait(os.read(self._master, _READ_BYTES))

    async def _receive(self) -> None:
        while True:
            data = await self._receive_queue.get()
            await self._pacer.pass_bytes(len(data))
            self.reader.feed_data(data)

    async def _send_queued_bytes(self) -> None:
        while True:
            await self._data_event.wait()
            piece = bytes(self._send_buffer[: self._pacer.chunk_bytes])
            del self._send_buffer[: self._pacer.chunk_bytes]
            await self._pacer.pass_bytes(len(piece))
            while piece:
                try:
                    piece = piece[os.write(self._master, piece) :]
                except BlockingIOError:  # no client reads, and the kernel's buffer of about 4 kB is full
                    await asyncio.sleep(_POLL_INTERVAL_S)
            if not self._send_buffer:
                self._data_event.clear()
                self._drained_event.set()


class _Pacer:
    """Transmission time of bytes. Both directions share the line speed, because devices only answer requests."""

    def __init__(self, baud: int, clock: Clock) -> None:
        self._byte_s = BITS_PER_BYTE / baud
        self._clock = clock
        self._free_time_s = 0.0
        self.chunk_bytes = max(1, baud // 2000)

    async def pass_bytes(self, count: int) -> None:
        """Wait until all earlier bytes, and then `count` bytes, have been transmitted."""
        self._free_time_s = max(self._free_time_s, self._clock.now()) + count * self._byte_s
        await self._clock.sleep(self._free_time_s - self._clock.now())
