"""SSH server of a simulated device: one account, a host key generated at start, shells and single commands.

Input to a shell reaches the device unchanged, and the device itself echoes and edits lines. A single command (`ssh HOST
COMMAND`) also reaches the device unchanged, and ends with an exit status. As with OpenSSH, a connection accepts any
number of shells and commands, concurrently or in turn, until the client ends it. Needs the extra `sim` (asyncssh).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import asyncssh

from sim.twins.wire.line import Reader, Writer
from sim.twins.wire.listener import SocketListener

ClientHandler = Callable[[Reader, Writer], Awaitable[None]]
CommandHandler = Callable[[Reader, Writer, str], Awaitable[int]]
"""Executes one command for a client, and returns its exit status."""

LOGIN_TIMEOUT_S = 30.0


class ShellWriter:
    """Writer to the client of a session. It has the methods of `asyncio.StreamWriter` that a `Line` uses.

    Without a terminal, it sends CR LF as LF, because on a real host the terminal makes CR LF from LF.
    """

    def __init__(
        self,
        channel: asyncssh.SSHServerChannel[bytes],
        closed_event: asyncio.Event,
        *,
        has_terminal: bool = True,
    ) -> None:
        self.exit_status: int | None = 0
        self._channel = channel
        self._closed_event = closed_event
        self._has_terminal = has_terminal

    @property
    def transport(self) -> asyncssh.SSHServerConnection:
        """The SSH connection. Its `abort` breaks the connection."""
        return self._channel.get_connection()  # type: ignore[return-value]

    def write(self, data: bytes) -> None:
        """Send bytes to the client, or discard them if the session has ended."""
        if not self.is_closing():
            self._channel.write(data if self._has_terminal else data.replace(b"\r\n", b"\n"))

    async def drain(self) -> None:
        """Raise `ConnectionResetError` if the session has ended. Never wait."""
        if self._closed_event.is_set():
            raise ConnectionResetError("the shell has ended")

    def close(self) -> None:
        """Send all written bytes, then end the session.

        Send the exit status too, unless it is None because the command did not complete.
        """
        if self.is_closing():
            return
        if self.exit_status is None:
            self._channel.close()
        else:
            self._channel.exit(self.exit_status)

    def is_closing(self) -> bool:
        """Return True if nothing more can be sent."""
        return self._closed_event.is_set() or self._channel.is_closing()

    async def wait_closed(self) -> None:
        """Wait until the session has ended."""
        await self._closed_event.wait()


class _Session(asyncssh.SSHServerSession[bytes]):
    """One SSH session: a shell that `client_handler` serves, or one command that `command_handler` runs.

    With `ends_connection`, the connection ends with the session.
    """

    def __init__(
        self, client_handler: ClientHandler, command_handler: CommandHandler | None, *, ends_connection: bool
    ) -> None:
        self._client_handler = client_handler
        self._command_handler = command_handler
        self._ends_connection = ends_connection
        self._command: str | None = None
        self._has_terminal = False
        self._input = asyncio.StreamReader()
        self._closed_event = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._channel: asyncssh.SSHServerChannel[bytes] | None = None

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self._channel = chan

    def pty_requested(self, *_: object) -> bool:
        self._has_terminal = True
        return True

    def shell_requested(self) -> bool:
        return True

    def exec_requested(self, command: str) -> bool:
        self._command = command
        return self._command_handler is not None

    def session_started(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def data_received(self, data: bytes, datatype: int | None) -> None:
        self._input.feed_data(data)

    def eof_received(self) -> bool:
        self._input.feed_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed_event.set()
        self._input.feed_eof()
        if self._channel is not None and self._ends_connection:
            self._channel.get_connection().close()

    async def _run(self) -> None:
        assert self._channel is not None  # connection_made comes first
        is_shell = self._command is None
        writer = ShellWriter(self._channel, self._closed_event, has_terminal=is_shell or self._has_terminal)
        try:
            if self._command is None or self._command_handler is None:
                await self._client_handler(self._input, writer)
            else:
                writer.exit_status = None
                writer.exit_status = await self._command_handler(self._input, writer, self._command)
        except ConnectionError:
            self._ends_connection = True  # the client disconnected, or a fault broke the line
        finally:
            writer.close()


class _Account(asyncssh.SSHServer):
    """Authentication of a connection: one user, by password."""

    def __init__(
        self,
        account: tuple[str, str],
        client_handler: ClientHandler,
        command_handler: CommandHandler | None,
        *,
        is_single_session: bool,
    ) -> None:
        self._account = account
        self._client_handler = client_handler
        self._command_handler = command_handler
        self._is_single_session = is_single_session

    def begin_auth(self, username: str) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == self._account

    def session_requested(self) -> asyncssh.SSHServerSession[bytes]:
        return _Session(self._client_handler, self._command_handler, ends_connection=self._is_single_session)


class SshServer(SocketListener):
    """Listener that runs `client_handler` for every shell on `sock`, and `command_handler` for every single command.

    Without `command_handler`, the server refuses single commands. With `is_single_session`, a connection ends with its
    first session.
    """

    def __init__(
        self,
        sock: socket.socket,
        account: tuple[str, str],
        client_handler: ClientHandler,
        command_handler: CommandHandler | None = None,
        *,
        is_single_session: bool = False,
    ) -> None:
        super().__init__(sock)
        self._account = account
        self._client_handler = client_handler
        self._command_handler = command_handler
        self._is_single_session = is_single_session
        self._host_key = asyncssh.generate_private_key("ssh-ed25519")
        self._connections: set[asyncssh.SSHServerConnection] = set()

    @property
    def client_count(self) -> int:
        """Number of connections that have logged in."""
        return len(self._connections)

    def drop_clients(self) -> int:
        """Break every connection, even before its login. Return the number of logged-in connections."""
        logged_in_connections = list(self._connections)
        for connection in logged_in_connections:
            connection.abort()
        for task in self._client_tasks:
            task.cancel()
        return len(logged_in_connections)

    async def serve(self, connection: socket.socket) -> None:
        """Run the SSH handshake with one client, and wait for the end of its connection."""
        try:
            ssh_connection = await asyncssh.run_server(
                connection,
                server_factory=lambda: _Account(
                    self._account,
                    self._client_handler,
                    self._command_handler,
                    is_single_session=self._is_single_session,
                ),
                server_host_keys=[self._host_key],
                login_timeout=LOGIN_TIMEOUT_S,
                line_editor=False,
                encoding=None,
            )
        except (OSError, asyncssh.Error):
            connection.close()  # the client disconnected, or failed to log in
            return
        self._connections.add(ssh_connection)
        try:
            await ssh_connection.wait_closed()
        finally:
            ssh_connection.abort()
            self._connections.discard(ssh_connection)
