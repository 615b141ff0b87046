"""Accepting clients on a socket that somebody else has bound, and refusing them for a while.

`asyncio.start_server` closes its socket for good; a device that is switched off and on again must
refuse and then accept on the same address, which inside a network namespace only the same socket can.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

Client = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_BACKLOG = 64
_LINE_LIMIT_BYTES = 1 << 20
_FREE_PORT_ATTEMPTS = 20


def bound_socket(host: str, port: int) -> socket.socket:
    """A TCP socket bound to `host:port`, in the network namespace of the calling thread.

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


class Listener:
    """Runs `client` for every connection made to `sock`, until closed."""

    def __init__(self, sock: socket.socket, client: Client) -> None:
        self._sock = sock
        self._client = client
        self._accepting: asyncio.Task[None] | None = None
        self._conversations: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def address(self) -> str:
        """`host:port` of the socket."""
        host, port = self._sock.getsockname()[:2]
        return f"{host}:{port}"

    @property
    def is_open(self) -> bool:
        """Whether clients are accepted now."""
        return self._accepting is not None

    @property
    def clients(self) -> int:
        """How many connections there are."""
        return len(self._conversations)

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

    def drop_clients(self) -> int:
        """Break every connection; gives how many there were."""
        for writer in self._conversations.values():
            writer.transport.abort()
        return len(self._conversations)

    async def close(self) -> None:
        """Break every connection and close the socket."""
        await self.refuse()
        self.drop_clients()
        for task in list(self._conversations):
            task.cancel()
        await asyncio.gather(*self._conversations, return_exceptions=True)
        self._sock.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(self._sock)
            try:
                # Not left to asyncio: it looks at the protocol number, which accepted sockets may lack.
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                streams = await asyncio.open_connection(sock=connection, limit=_LINE_LIMIT_BYTES)
            except OSError:
                connection.close()  # the client is gone already
                continue
            task = loop.create_task(self._converse(*streams))
            self._conversations[task] = streams[1]
            task.add_done_callback(self._conversations.pop)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._client(reader, writer)
        except ConnectionError:
            pass  # the client went away in the middle, as clients do
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
