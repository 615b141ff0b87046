"""An interactive shell over SSH as a transport (extra `ssh`).

All SSH connections of the process share one event loop in a background thread, which starts with the first
connection. A closed transport leaves no task and no socket on the loop.

The first rule that applies decides about the device's host key:

1. If the address has the option `known_hosts`, that file must contain the key.
2. If `~/.ssh/known_hosts` contains the host, it must contain the key.
3. Otherwise the transport trusts and stores the first key, and logs a warning (`ocs_drivers.ssh`): most switches
   generate their own unsigned key. A different key at a later connection raises `AnotherDevice` before the password is
   sent.

The user's keys and agent are not offered, because a device counts every refused key as a failed login. Name a key with
the option `key`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Coroutine
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from lightbed.wording import describe_extra
from ocs_drivers.credentials import Credentials
from ocs_drivers.errors import AddressError, AnotherDevice, ConnectError, LoginFailed, OcsError, Unsupported
from ocs_drivers.timing import Deadline
from ocs_drivers.transports.transport import make_connect_error, make_connection_lost, make_timeout

if TYPE_CHECKING:
    import asyncssh

logger = logging.getLogger("ocs_drivers.ssh")

DEFAULT_PORT = 22

TERMINAL = "vt100"
TERMINAL_SIZE = (1000, 1000)
"""Columns and rows of the terminal: large, so that the device neither wraps nor pages its output."""

CLOSE_TIMEOUT_S = 1.0
"""Time limit of closing a connection."""

_T = TypeVar("_T")


def import_asyncssh() -> ModuleType:
    """Return the module asyncssh. Raise `Unsupported` if it is not installed."""
    try:
        import asyncssh
    except ImportError as error:
        raise Unsupported("asyncssh is not installed", hint=f"To use it, {describe_extra('ssh')}.") from error
    return asyncssh


class HostKeys:
    """Check of the device's host key, as the module docstring describes."""

    def __init__(self, device: str, known_hosts: str | None) -> None:
        self._device = device
        self._known_hosts_file = known_hosts
        self._is_in_known_hosts = (
            False  # True if a known_hosts file decides, so `accept_host_key` must refuse
        )
        self._first_key: bytes | None = None
        self.refusal: OcsError | None = None

    def make_known_hosts(self, port: int) -> Any:
        """Return asyncssh's `known_hosts`: the file of the address, or a lookup of the host in the user's file.

        For a host without an entry asyncssh calls `accept_host_key`.
        """
        self.refusal, self._is_in_known_hosts = None, self._known_hosts_file is not None
        if self._known_hosts_file is not None:
            return self._known_hosts_file
        users_file = Path("~/.ssh/known_hosts").expanduser()
        named_port = None if port == DEFAULT_PORT else port

        def look_up(host: str, address: str, asked_port: int | None) -> Any:
            if asked_port != named_port:  # another port may forward to another device, with another key
                return [], [], []
            try:
                keys = import_asyncssh().match_known_hosts(str(users_file), host, address, asked_port)
            except OSError:
                return [], [], []
            self._is_in_known_hosts = any(keys)
            return keys

        return look_up

    def accept_host_key(self, key: asyncssh.SSHKey) -> bool:
        """Return True if the host has no entry and `key` is its first key. Set `refusal` for a different key."""
        if self._is_in_known_hosts:
            return False
        if self._first_key is None:
            self._first_key = key.public_data
            logger.warning(
                "%s: trusting host key %s, which is in no known_hosts file",
                self._device,
                key.get_fingerprint(),
            )
        elif self._first_key != key.public_data:
            self.refusal = AnotherDevice(
                f"the host key is now {key.get_fingerprint()}, not the one seen first",
                device=self._device,
                hint="Make sure that it is the right device, then open the switch again.",
            )
        return self.refusal is None


class _EventLoopThread:
    """An event loop in its own thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="ocs_drivers.ssh", daemon=True).start()

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine and return its result. The coroutine must limit its own time."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:  # even an interrupt of this thread must not leave a connection behind
            future.cancel()
            raise

    def call(self, function: Any, *arguments: object) -> None:
        """Schedule a call of a function on the loop."""
        self._loop.call_soon_threadsafe(function, *arguments)


@cache
def _get_loop(process_id: int) -> _EventLoopThread:
    del (
        process_id
    )  # It is only a cache key: a forked child inherits the loop of its parent, but not the thread.
    return _EventLoopThread()


class _Inbox:
    """Bytes received from a shell, and its end; written by the event loop, read by the driver's thread."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._changed = threading.Condition()
        self.end_reason: str | None = None

    def put(self, data: bytes) -> None:
        """Add received bytes."""
        with self._changed:
            self._data += data
            self._changed.notify_all()

    def finish(self, reason: str) -> None:
        """Record that nothing more will arrive, and the reason."""
        with self._changed:
            self.end_reason = self.end_reason or reason
            self._changed.notify_all()

    def is_ready(self) -> bool:
        """Return True if there are bytes, or if the shell has ended."""
        return bool(self._data) or self.end_reason is not None

    def receive_data(self, timeout_s: float) -> bytes:
        """Wait for bytes and return all of them; empty at the end of the shell and after `timeout_s`."""
        with self._changed:
            self._changed.wait_for(self.is_ready, timeout_s)
            data = bytes(self._data)
            self._data.clear()
        return data


class SshTransport:
    """A shell with a terminal on the device at `host`.

    `key_file` is a private key without a passphrase, which is tried before the password. Raises `Unsupported` if
    asyncssh is not installed.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        device: str,
        credentials: Credentials,
        key_file: str | None = None,
        known_hosts: str | None = None,
    ) -> None:
        self._asyncssh = import_asyncssh()
        self._target = (host, port)
        self._device = device
        self._credentials = credentials
        self._key_file = key_file
        self._host_keys = HostKeys(device, known_hosts)
        self._inbox = _Inbox()
        self._connection: asyncssh.SSHClientConnection | None = None
        self._channel: Any = None

    @property
    def is_open(self) -> bool:
        """True if there is a connection that is not known to be broken."""
        return self._connection is not None

    def open(self, timeout_s: float) -> None:
        """Connect, log in and start a shell.

        Raises `ConnectError`, `AnotherDevice`, `LoginFailed`, and `AddressError` for a key file that cannot be read.
        """
        self.close()
        self._inbox = _Inbox()
        try:
            self._connection, self._channel = self._loop.run(self._connect(self._inbox, timeout_s))
        except self._asyncssh.PermissionDenied as error:
            raise self._make_login_failed() from error
        except (self._asyncssh.KeyImportError, FileNotFoundError) as error:
            raise self._make_file_error(error) from error
        except self._asyncssh.HostKeyNotVerifiable as error:
            raise (self._host_keys.refusal or self._make_unknown_key(error)) from error
        except TimeoutError as error:
            raise make_connect_error(self._device, f"no shell within {timeout_s:.3g} s") from error
        except (OSError, self._asyncssh.Error) as error:
            raise make_connect_error(self._device, error) from error

    def close(self) -> None:
        """Close the connection. Do nothing if it is closed."""
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            self._loop.run(_disconnect(connection))

    def has_input(self) -> bool:
        """Return True if `receive` would not wait. Raise `ConnectionLost` if the transport is closed."""
        self._require_connection()
        return self._inbox.is_ready()

    def send(self, data: bytes, deadline: Deadline) -> None:
        """Queue `data` on the event loop, which sends it. Raise `ConnectionLost` if the shell has ended."""
        del deadline
        channel = self._require_connection()
        if self._inbox.end_reason is not None:
            raise make_connection_lost(self._device, self._inbox.end_reason)
        self._loop.call(_write, channel, data)

    def receive(self, deadline: Deadline) -> bytes:
        """Return the bytes that have arrived, at least one. Raises `ConnectionLost`, `Timeout`."""
        self._require_connection()
        data = self._inbox.receive_data(deadline.remaining_s())
        if data:
            return data
        if self._inbox.end_reason is not None:
            raise make_connection_lost(self._device, self._inbox.end_reason)
        raise make_timeout(self._device, deadline)

    @property
    def _loop(self) -> _EventLoopThread:
        return _get_loop(os.getpid())

    def _require_connection(self) -> Any:
        if self._connection is None:
            raise make_connection_lost(self._device, "it is closed")
        return self._channel

    async def _connect(self, inbox: _Inbox, timeout_s: float) -> tuple[Any, Any]:
        async with asyncio.timeout(timeout_s):
            connection = await self._login(inbox, timeout_s)
            try:
                channel, _ = await connection.create_session(
                    lambda: _make_shell(inbox), term_type=TERMINAL, term_size=TERMINAL_SIZE, encoding=None
                )
            except BaseException:
                connection.abort()
                raise
        return connection, channel

    async def _login(self, inbox: _Inbox, timeout_s: float) -> Any:
        host, port = self._target
        return await self._asyncssh.connect(
            host,
            port,
            client_factory=lambda: _make_client(inbox, self._host_keys),
            known_hosts=self._host_keys.make_known_hosts(port),
            username=self._credentials.user,
            password=self._credentials.password,
            client_keys=[self._key_file] if self._key_file else None,
            agent_path=None,
            config=None,
            connect_timeout=timeout_s,
            login_timeout=timeout_s,
        )

    def _make_login_failed(self) -> LoginFailed:
        return LoginFailed(
            f"the device does not accept user {self._credentials.user!r} with this password or key",
            device=self._device,
            hint="Set LIGHTBED_OCS_USER and LIGHTBED_OCS_PASSWORD, or name a key with ?key=FILE.",
        )

    def _make_file_error(self, error: Exception) -> AddressError:
        return AddressError(
            f"a key or known_hosts file cannot be read: {error}",
            device=self._device,
            hint="Check the files that the options key and known_hosts name; the key must have no passphrase.",
        )

    def _make_unknown_key(self, error: Exception) -> ConnectError:
        return ConnectError(
            f"the host key of the device is not the known one: {error}",
            device=self._device,
            hint="Check that it is the right device, then remove its old key with ssh-keygen -R '[HOST]:PORT'.",
        )


async def _disconnect(connection: asyncssh.SSHClientConnection) -> None:
    connection.close()
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await connection.wait_closed()
    except (TimeoutError, OSError):
        connection.abort()


def _write(channel: Any, data: bytes) -> None:
    with contextlib.suppress(OSError):  # the shell has just ended; the next read reports it
        channel.write(data)


def _make_client(inbox: _Inbox, host_keys: HostKeys) -> asyncssh.SSHClient:
    import asyncssh

    class Client(asyncssh.SSHClient):
        """Callbacks of the connection: host key and end."""

        def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
            return host_keys.accept_host_key(key)

        def connection_lost(self, exc: Exception | None) -> None:
            inbox.finish(str(exc) if exc else "the device closed the connection")

    return Client()


def _make_shell(inbox: _Inbox) -> asyncssh.SSHClientSession[bytes]:
    import asyncssh

    class Shell(asyncssh.SSHClientSession[bytes]):
        """Callbacks of the shell: its output and its end."""

        def data_received(self, data: bytes, datatype: int | None) -> None:
            inbox.put(data)

        def eof_received(self) -> bool:
            inbox.finish("the device ended the shell")
            return False

        def connection_lost(self, exc: Exception | None) -> None:
            inbox.finish(str(exc) if exc else "the device ended the shell")

    return Shell()
