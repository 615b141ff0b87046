"""Accepting clients on a socket that somebody else has bound, and refusing them for a while.

`asyncio.start_server` closes its socket for good; a device that is switched off and on again must
refuse and then accept on the same address, which inside a network namespace only the same socket can.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Protocol

Client = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_BACKLOG = 64
_LINE_LIMIT_BYTES = 1 << 20
_FREE_PORT_ATTEMPTS = 20


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a TCP socket bound to `host:port`, in the network namespace of the calling thread.

    For port 0 a free port is looked up and then bound by its number: the kernel keeps a numbered port
    over `Listener.refuse`, and would choose another one for a socket that was bound to 0.
    Raises `OSError` when the address is taken or not ours.
    """
    if port:
        return _bind(host, port)
    for _ in range(_FREE_PORT_ATTEMPTS):
        with contextlib.suppress(OSError):  # somebody took the port between looking and binding
            return _bind(host, _free_port(host))
    return _bind(host, 0)


def _free_port(host: str) -> int:
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
    """Listener that accepts the clients of one frontend, on whatever wire."""

    @property
    def address(self) -> str:
        """Address: `host:port`, or a path."""

    @property
    def clients(self) -> int:
        """Number of clients."""

    def open(self) -> None:
        """Accept clients from now on."""

    async def refuse(self) -> None:
        """Accept nobody from now on."""

    def drop_clients(self) -> int:
        """Break every session; return how many there were."""

    async def close(self) -> None:
        """Break every session, for good."""


class SocketListener(ABC):
    """Accepts clients on a bound socket; a subclass serves each of them in `serve`, and counts and drops them."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._accepting: asyncio.Task[None] | None = None
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """`host:port` of the socket."""
        host, port = self._sock.getsockname()[:2]
        return f"{host}:{port}"

    @property
    def is_open(self) -> bool:
        """True while clients are accepted."""
        return self._accepting is not None

    @property
    @abstractmethod
    def clients(self) -> int:
        """Number of connections."""

    def open(self) -> None:
        """Accept clients from now on."""
        if self._accepting is None:
            self._sock.setblocking(False)
            self._sock.listen(_BACKLOG)
            self._accepting = asyncio.get_running_loop().create_task(self._accept())

    async def refuse(self) -> None:
        """Refuse new clients from now on (the kernel answers them with a reset); `open` ends it."""
        accepting, self._accepting = self._accepting, None
        if accepting is None:
            return
        accepting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await accepting
        with contextlib.suppress(OSError):
            # On Linux this ends listening and keeps the address, so that `listen` may follow again.
            self._sock.shutdown(socket.SHUT_RDWR)

    @abstractmethod
    def drop_clients(self) -> int:
        """Break every connection; return how many there were."""

    async def close(self) -> None:
        """Break every connection and close the socket."""
        await self.refuse()
        self.drop_clients()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        self._sock.close()

    @abstractmethod
    async def serve(self, connection: socket.socket) -> None:
        """Serve one accepted client until it leaves, and close its connection."""

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(self._sock)
            with contextlib.suppress(OSError):  # the client is gone already
                # Not left to asyncio: it looks at the protocol number, which accepted sockets may lack.
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = loop.create_task(self.serve(connection))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)


class Listener(SocketListener):
    """Runs `client` for every connection made to `sock`, until closed."""

    def __init__(self, sock: socket.socket, client: Client) -> None:
        super().__init__(sock)
        self._client = client
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def clients(self) -> int:
        """Number of connections."""
        return len(self._writers)

    def drop_clients(self) -> int:
        """Break every connection; return how many there were."""
        for writer in self._writers:
            writer.transport.abort()
        return len(self._writers)

    async def serve(self, connection: socket.socket) -> None:
        """Serve one client until it leaves."""
        try:
            reader, writer = await asyncio.open_connection(sock=connection, limit=_LINE_LIMIT_BYTES)
        except OSError:
            connection.close()  # the client is gone already
            return
        self._writers.add(writer)
        try:
            await self._client(reader, writer)
        except ConnectionError:
            pass  # the client went away in the middle, as clients do
        finally:
            writer.close()
            try:
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()
            finally:
                self._writers.discard(writer)
