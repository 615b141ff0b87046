"""An SSH server of a simulated device: one account, a host key made at the start, a shell, and single commands.

What the client types in a shell arrives as it was typed, unechoed and unedited: the device behind it does that itself.
A request to execute one command (`ssh HOST COMMAND`) is handed to the device as it came, and ends with an exit status.
A connection takes any number of shells and commands, at once or in turn, as OpenSSH does; the client ends it.
Needs the extra `sim` (asyncssh).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import asyncssh

from sim.twins.wire.line import Reader, Writer
from sim.twins.wire.listener import SocketListener

Client = Callable[[Reader, Writer], Awaitable[None]]
Execution = Callable[[Reader, Writer, str], Awaitable[int]]
"""Executes one command for a client; gives its exit status."""

LOGIN_TIMEOUT_S = 30.0


class ShellWriter:
    """The twin's way to the client of a shell; the part of `asyncio.StreamWriter` that a `Line` uses.

    Without a terminal, lines end with LF only, as the terminal is what makes CR LF of it.
    """

    def __init__(
        self, channel: asyncssh.SSHServerChannel[bytes], closed: asyncio.Event, *, terminal: bool = True
    ) -> None:
        self.exit_status: int | None = 0
        self._channel = channel
        self._closed = closed
        self._terminal = terminal

    @property
    def transport(self) -> asyncssh.SSHServerConnection:
        """The connection below; `abort` breaks it."""
        return self._channel.get_connection()  # type: ignore[return-value]

    def write(self, data: bytes) -> None:
        """Send bytes to the client; lost when the shell has ended."""
        if not self.is_closing():
            self._channel.write(data if self._terminal else data.replace(b"\r\n", b"\n"))

    async def drain(self) -> None:
        """Raise `ConnectionResetError` when the connection is broken."""
        if self._closed.is_set():
            raise ConnectionResetError("the shell has ended")

    def close(self) -> None:
        """End the session; the client still gets what was written.

        Without an exit status, as of a command that was not executed to its end, the channel is closed alone.
        """
        if self.is_closing():
            return
        if self.exit_status is None:
            self._channel.close()
        else:
            self._channel.exit(self.exit_status)

    def is_closing(self) -> bool:
        """Return True if nothing can be sent any more."""
        return self._closed.is_set() or self._channel.is_closing()

    async def wait_closed(self) -> None:
        """Wait for the end of the shell."""
        await self._closed.wait()


class _Session(asyncssh.SSHServerSession[bytes]):
    """One session: a shell with `client` to answer what is typed, or one command for `execution`.

    With `ends_connection` the connection ends with it.
    """

    def __init__(self, client: Client, execution: Execution | None, *, ends_connection: bool) -> None:
        self._client = client
        self._execution = execution
        self._ends_connection = ends_connection
        self._command: str | None = None
        self._terminal = False
        self._typed = asyncio.StreamReader()
        self._closed = asyncio.Event()
        self._talking: asyncio.Task[None] | None = None
        self._channel: asyncssh.SSHServerChannel[bytes] | None = None

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self._channel = chan

    def pty_requested(self, *_: object) -> bool:
        self._terminal = True
        return True

    def shell_requested(self) -> bool:
        return True

    def exec_requested(self, command: str) -> bool:
        self._command = command
        return self._execution is not None

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
        if self._channel is not None and self._ends_connection:
            self._channel.get_connection().close()

    async def _talk(self) -> None:
        assert self._channel is not None  # connection_made comes first
        is_shell = self._command is None
        writer = ShellWriter(self._channel, self._closed, terminal=is_shell or self._terminal)
        try:
            if self._command is None or self._execution is None:
                await self._client(self._typed, writer)
            else:
                writer.exit_status = None
                writer.exit_status = await self._execution(self._typed, writer, self._command)
        except ConnectionError:
            self._ends_connection = True  # the client went away in the middle, or a fault breaks the line
        finally:
            writer.close()


class _Account(asyncssh.SSHServer):
    """Lets one user in, by password."""

    def __init__(
        self, account: tuple[str, str], client: Client, execution: Execution | None, *, one_session: bool
    ) -> None:
        self._account = account
        self._client = client
        self._execution = execution
        self._one_session = one_session

    def begin_auth(self, username: str) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == self._account

    def session_requested(self) -> asyncssh.SSHServerSession[bytes]:
        return _Session(self._client, self._execution, ends_connection=self._one_session)


class SshServer(SocketListener):
    """Runs `client` for every shell opened on `sock` and `execution` for every single command, until closed.

    Without an `execution` such requests are refused. With `one_session` a connection ends with its first session.
    """

    def __init__(
        self,
        sock: socket.socket,
        account: tuple[str, str],
        client: Client,
        execution: Execution | None = None,
        *,
        one_session: bool = False,
    ) -> None:
        super().__init__(sock)
        self._account = account
        self._client = client
        self._execution = execution
        self._one_session = one_session
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
                server_factory=lambda: _Account(
                    self._account, self._client, self._execution, one_session=self._one_session
                ),
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
