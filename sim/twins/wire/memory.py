"""Sessions with a simulated switch without any socket, for tests on the virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from sim.twins.wire.line import Reader, Writer

Client = Callable[[Reader, Writer], Awaitable[None]]


class _Writer:
    """The device's way to the client: bytes that lie there until somebody takes them."""

    def __init__(self) -> None:
        self.waiting = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        if not self.closed:
            self.waiting += data

    async def drain(self) -> None:
        if self.closed:
            raise ConnectionResetError

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


class MemoryClient:
    """The client's end: what it sends, what has come, and whether the device has closed the connection."""

    def __init__(self, serve: Client) -> None:
        self._reader = asyncio.StreamReader()
        self._writer = _Writer()
        self._left = False
        self._task = asyncio.get_running_loop().create_task(self._run(serve))

    async def _run(self, serve: Client) -> None:
        try:
            with suppress(ConnectionError):
                await serve(self._reader, self._writer)
        finally:
            self._writer.close()

    @property
    def closed(self) -> bool:
        """True if the device has closed the connection."""
        return self._writer.closed

    def send(self, data: bytes) -> None:
        """Send bytes to the device. Raises `ConnectionResetError` when either end has closed the connection."""
        if self.closed or self._left:
            raise ConnectionResetError(
                "the device has closed the connection" if self.closed else "this end is closed"
            )
        self._reader.feed_data(data)

    def receive(self) -> bytes:
        """Take what has come so far."""
        data, self._writer.waiting = self._writer.waiting, b""
        return data

    def close(self) -> None:
        """Close this end."""
        self._left = True
        if not self.closed:
            self._reader.feed_eof()

    def drop(self) -> None:
        """Break the connection from the device's side: what was not taken is lost."""
        self._task.cancel()
        self._writer.waiting = b""
        self._writer.close()

    async def wait_ended(self) -> None:
        """Return when the device's half has come to its end."""
        await asyncio.gather(self._task, return_exceptions=True)


class MemoryListener:
    """Stands where a listener stands, and lets clients of this process in."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._inside: list[MemoryClient] = []
        self._open = True

    def attach(self) -> MemoryClient:
        """Return a new session. Raises `ConnectionRefusedError` while clients are refused."""
        if not self._open:
            raise ConnectionRefusedError("the device refuses clients")
        self._inside = [client for client in self._inside if not client.closed]
        self._inside.append(MemoryClient(self._client))
        return self._inside[-1]

    @property
    def address(self) -> str:
        """Placeholder for `host:port`."""
        return "memory:0"

    @property
    def is_open(self) -> bool:
        """True if clients are let in now."""
        return self._open

    @property
    def clients(self) -> int:
        """Number of sessions."""
        return sum(not client.closed for client in self._inside)

    def open(self) -> None:
        """Accept clients from now on."""
        self._open = True

    async def refuse(self) -> None:
        """Refuse clients from now on."""
        self._open = False

    def drop_clients(self) -> int:
        """Break every session; return how many there were."""
        living = [client for client in self._inside if not client.closed]
        for client in living:
            client.drop()
        return len(living)

    async def close(self) -> None:
        """Break every session, for good."""
        self._open = False
        self.drop_clients()
        for client in self._inside:
            await client.wait_ended()
