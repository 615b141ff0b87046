"""Listeners on a bound socket. A listener can refuse clients for a while, and accept clients again later.

A device that is switched off and on again must first refuse clients, and later accept them at the same address. Inside
a network namespace, only the same socket can do so, but `asyncio.start_server` closes its socket for good.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Protocol

ClientHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_BACKLOG = 64
_LINE_LIMIT_BYTES = 1 << 20
_FREE_PORT_ATTEMPTS = 20


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a TCP socket bound to `host:port`, in the network namespace of the calling thread.

    For port 0, find a free port and bind it by its number. The socket then keeps its port during `Listener.refuse`,
    whereas a socket bound to port 0 would get another port. Raise `OSError` if the address is in use or not local.
    """
    if port:
        return _bind(host, port)
    for _ in range(_FREE_PORT_ATTEMPTS):
        with contextlib.suppress(OSError):  # another process may take the port in between
            return _bind(host, _find_free_port(host))
    return _bind(host, 0)


def _find_free_port(host: str) -> int:
    with _bind(host, 0) as probe:
        return int(probe.getsockname()[1])


def _bind(host: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


class AnyListener(Protocol):
    """Interface of all listeners. A listener accepts the clients of one frontend."""

    @property
    def address(self) -> str:
        """Address of the listener: `host:port`, or a path."""

    @property
    def client_count(self) -> int:
        """Number of clients."""

    def open(self) -> None:
        """Accept clients from now on."""

    async def refuse(self) -> None:
        """Refuse new clients from now on."""

    def drop_clients(self) -> int:
        """Break every session, and return their number."""

    async def close(self) -> None:
        """Break every session, and stop listening for good."""


class SocketListener(ABC):
    """Listener on a bound socket. Subclasses serve, count and drop the clients."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._accept_task: asyncio.Task[None] | None = None
        self._client_tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """`host:port` of the socket."""
        host, port = self._sock.getsockname()[:2]
        return f"{host}:{port}"

    @property
    def is_open(self) -> bool:
        """True while the listener accepts clients."""
        return self._accept_task is not None

    @property
    @abstractmethod
    def client_count(self) -> int:
        """Number of connections."""

    def open(self) -> None:
        """Accept clients from now on."""
        if self._accept_task is None:
            self._sock.setblocking(False)
            self._sock.listen(_BACKLOG)
            self._accept_task = asyncio.get_running_loop().create_task(self._accept_clients())

    async def refuse(self) -> None:
        """Refuse new clients until `open` is called. The kernel resets their connections."""
        accept_task, self._accept_task = self._accept_task, None
        if accept_task is None:
            return
        accept_task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await accept_task
        with contextlib.suppress(OSError):
            # On Linux, shutdown stops listening but keeps the address, so `listen` can be called again.
            self._sock.shutdown(socket.SHUT_RDWR)

    @abstractmethod
    def drop_clients(self) -> int:
        """Break every connection, and return their number."""

    async def close(self) -> None:
        """Break every connection, and close the socket."""
        await self.refuse()
        self.drop_clients()
        for task in self._client_tasks:
            task.cancel()
        await asyncio.gather(*self._client_tasks, return_exceptions=True)
        self._sock.close()

    @abstractmethod
    async def serve(self, connection: socket.socket) -> None:
        """Serve one accepted client until it disconnects, then close its connection."""

    async def _accept_clients(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(self._sock)
            with contextlib.suppress(OSError):  # the client may have disconnected
                # asyncio sets this option only if the socket's protocol number is TCP. Accepted sockets may lack it.
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = loop.create_task(self.serve(connection))
            self._client_tasks.add(task)
            task.add_done_callback(self._client_tasks.discard)


class Listener(SocketListener):
    """Listener that runs `client_handler` for every connection to `sock`."""

    def __init__(self, sock: socket.socket, client_handler: ClientHandler) -> None:
        super().__init__(sock)
        self._client_handler = client_handler
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def client_count(self) -> int:
        """Number of connections."""
        return len(self._writers)

    def drop_clients(self) -> int:
        """Break every connection, and return their number."""
        for writer in self._writers:
            writer.transport.abort()
        return len(self._writers)

    async def serve(self, connection: socket.socket) -> None:
        """Serve one client until it disconnects."""
        try:
            reader, writer = await asyncio.open_connection(sock=connection, limit=_LINE_LIMIT_BYTES)
        except OSError:
            connection.close()  # the client has already disconnected
            return
        self._writers.add(writer)
        try:
            await self._client_handler(reader, writer)
        except ConnectionError:
            pass  # clients may disconnect at any time
        finally:
            writer.close()
            try:
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()
            finally:
                self._writers.discard(writer)
