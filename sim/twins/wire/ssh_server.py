"""An SSH server of a simulated device: one account, a host key made at the start, and a shell with a terminal.

What the client types arrives as it was typed, unechoed and unedited: the device behind it does that itself. Needs
the extra `sim` (asyncssh).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import asyncssh

from sim.twins.wire.line import Reader, Writer
from sim.twins.wire.listener import SocketListener

Client = Callable[[Reader, Writer], Awaitable[None]]

LOGIN_TIMEOUT_S = 30.0


class ShellWriter:
    """The twin's way to the client of a shell; the part of `asyncio.StreamWriter` that a `Line` uses."""

    def __init__(self, channel: asyncssh.SSHServerChannel[bytes], closed: asyncio.Event) -> None:
        self._channel = channel
        self._closed = closed

    @property
    def transport(self) -> asyncssh.SSHServerConnection:
        """The connection below; `abort` breaks it."""
        return self._channel.get_connection()  # type: ignore[return-value]

    def write(self, data: bytes) -> None:
        """Send bytes to the client; lost when the shell has ended."""
        if not self.is_closing():
            self._channel.write(data)

    async def drain(self) -> None:
        """Raise `ConnectionResetError` when the connection is broken."""
        if self._closed.is_set():
            raise ConnectionResetError("the shell has ended")

    def close(self) -> None:
        """End the shell, and with it the connection; the client still gets what was written."""
        if not self.is_closing():
            self._channel.exit(0)

    def is_closing(self) -> bool:
        """Return True if nothing can be sent any more."""
        return self._closed.is_set() or self._channel.is_closing()

    async def wait_closed(self) -> None:
        """Wait for the end of the shell."""
        await self._closed.wait()


class _Shell(asyncssh.SSHServerSession[bytes]):
    """One shell: a stream of what is typed, and `client` to answer it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._typed = asyncio.StreamReader()
        self._closed = asyncio.Event()
        self._talking: asyncio.Task[None] | None = None
        self._channel: asyncssh.SSHServerChannel[bytes] | None = None

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self._channel = chan

    def pty_requested(self, *_: object) -> bool:
        return True

    def shell_requested(self) -> bool:
        return True

    def session_started(self) -> None:
        self._talking = asyncio.get_running_loop().create_task(self._talk())

    def data_received(self, data: bytes, datatype: int | None) -> None:
        self._typed.feed_data(data)

    def eof_received(self) -> bool:
        self._typed.feed_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed.set()
        self._typed.feed_eof()
        if self._channel is not None:
            self._channel.get_connection().close()  # a switch has nothing to offer besides its shell

    async def _talk(self) -> None:
        assert self._channel is not None  # connection_made comes first
        writer = ShellWriter(self._channel, self._closed)
        try:
            await self._client(self._typed, writer)
        except ConnectionError:
            pass  # the client went away in the middle, as clients do
        finally:
            writer.close()


class _Account(asyncssh.SSHServer):
    """Lets one user in, by password."""

    def __init__(self, account: tuple[str, str], client: Client) -> None:
        self._account = account
        self._client = client

    def begin_auth(self, username: str) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == self._account

    def session_requested(self) -> asyncssh.SSHServerSession[bytes]:
        return _Shell(self._client)


class SshServer(SocketListener):
    """Runs `client` for every shell opened on `sock`, until closed."""

    def __init__(self, sock: socket.socket, account: tuple[str, str], client: Client) -> None:
        super().__init__(sock)
        self._account = account
        self._client = client
        self._key = asyncssh.generate_private_key("ssh-ed25519")
        self._connections: set[asyncssh.SSHServerConnection] = set()

    @property
    def clients(self) -> int:
        """Number of connections that have logged in."""
        return len(self._connections)

    def drop_clients(self) -> int:
        """Break every connection, also those that have yet to log in; return how many had."""
        dropped = list(self._connections)
        for connection in dropped:
            connection.abort()
        for task in self._serving:
            task.cancel()
        return len(dropped)

    async def serve(self, connection: socket.socket) -> None:
        """Greet one client, and wait for its end."""
        try:
            session = await asyncssh.run_server(
                connection,
                server_factory=lambda: _Account(self._account, self._client),
                server_host_keys=[self._key],
                login_timeout=LOGIN_TIMEOUT_S,
                line_editor=False,
                encoding=None,
            )
        except (OSError, asyncssh.Error):
            connection.close()  # the client is gone, or nobody we let in
            return
        self._connections.add(session)
        try:
            await session.wait_closed()
        finally:
            session.abort()
            self._connections.discard(session)
