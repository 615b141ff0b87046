"""In-memory sessions with a simulated switch, without sockets, for tests on a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from sim.twins.wire.line import Reader, Writer

ClientHandler = Callable[[Reader, Writer], Awaitable[None]]


class _Writer:
    """The device's writer. It keeps bytes in `pending_bytes` until the client receives them."""

    def __init__(self) -> None:
        self.pending_bytes = b""
        self.is_closed = False

    def write(self, data: bytes) -> None:
        if not self.is_closed:
            self.pending_bytes += data

    async def drain(self) -> None:
        if self.is_closed:
            raise ConnectionResetError

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True


class MemoryClient:
    """The client's end of an in-memory session."""

    def __init__(self, serve: ClientHandler) -> None:
        self._reader = asyncio.StreamReader()
        self._writer = _Writer()
        self._is_closed_locally = False
        self._task = asyncio.get_running_loop().create_task(self._run(serve))

    async def _run(self, serve: ClientHandler) -> None:
        try:
            with suppress(ConnectionError):
                await serve(self._reader, self._writer)
        finally:
            self._writer.close()

    @property
    def is_closed(self) -> bool:
        """True if the device has closed the connection."""
        return self._writer.is_closed

    def send(self, data: bytes) -> None:
        """Send bytes to the device. Raise `ConnectionResetError` if either end has closed the connection."""
        if self.is_closed or self._is_closed_locally:
            raise ConnectionResetError(
                "the device has closed the connection" if self.is_closed else "this end is closed"
            )
        self._reader.feed_data(data)

    def receive(self) -> bytes:
        """Return the bytes received since the last call."""
        data, self._writer.pending_bytes = self._writer.pending_bytes, b""
        return data

    def close(self) -> None:
        """Close this end."""
        self._is_closed_locally = True
        if not self.is_closed:
            self._reader.feed_eof()

    def break_connection(self) -> None:
        """Break the connection, as the device does. Bytes that the client has not received are lost."""
        self._task.cancel()
        self._writer.pending_bytes = b""
        self._writer.close()

    async def wait_ended(self) -> None:
        """Wait until the device's side of the session has ended."""
        await asyncio.gather(self._task, return_exceptions=True)


class MemoryListener:
    """Listener for clients in the same process."""

    def __init__(self, client_handler: ClientHandler) -> None:
        self._client_handler = client_handler
        self._clients: list[MemoryClient] = []
        self._is_open = True

    def attach(self) -> MemoryClient:
        """Open a new session. Raise `ConnectionRefusedError` while clients are refused."""
        if not self._is_open:
            raise ConnectionRefusedError("the device refuses clients")
        self._clients = [client for client in self._clients if not client.is_closed]
        self._clients.append(MemoryClient(self._client_handler))
        return self._clients[-1]

    @property
    def address(self) -> str:
        """Placeholder for `host:port`."""
        return "memory:0"

    @property
    def is_open(self) -> bool:
        """True while the listener accepts clients."""
        return self._is_open

    @property
    def client_count(self) -> int:
        """Number of sessions."""
        return sum(not client.is_closed for client in self._clients)

    def open(self) -> None:
        """Accept clients from now on."""
        self._is_open = True

    async def refuse(self) -> None:
        """Refuse new clients from now on."""
        self._is_open = False

    def drop_clients(self) -> int:
        """Break every session, and return their number."""
        open_clients = [client for client in self._clients if not client.is_closed]
        for client in open_clients:
            client.break_connection()
        return len(open_clients)

    async def close(self) -> None:
        """Break every session, refuse new clients, and wait until all sessions have ended."""
        self._is_open = False
        self.drop_clients()
        for client in self._clients:
            await client.wait_ended()
