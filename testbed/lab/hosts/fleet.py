"""All hosts of a lab together: run commands, copy files, and follow long-running commands.

`SshFleet` keeps one SSH connection per host and uses all of them concurrently. Its interface is synchronous. The
connections run on an event loop in a separate thread, so that Ctrl-C in the caller never leaves a half-written packet.
An error names every host that failed.
"""

from __future__ import annotations

import asyncio
import io
import secrets
import shlex
import sys
import tarfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from testbed.errors import HostError
from testbed.lab.hosts.event_loop import LoopThread, gather, wait_at_most
from testbed.lab.hosts.launch import (
    CONNECT_TIMEOUT_S,
    CommandResult,
    Launch,
    SshLaunch,
    describe_error,
    kill_marked_processes,
    make_unfinished_error,
    mark_command,
)
from testbed.lab.model import Lab, LabHost

if TYPE_CHECKING:
    import asyncssh


__all__ = ["CommandResult", "Fleet", "FleetPart", "Launch", "SshFleet", "SshLaunch", "run_where_possible"]

T = TypeVar("T")

KEEPALIVE_S = 5.0
# Relative to the home directory, where SSH starts commands. Simulated hosts may share /tmp, but never a home.
PRIVATE_DIRECTORY = ".cache/lightbed"


class Fleet(Protocol):
    """The hosts of a lab, with operations on all of them at once."""

    hosts: tuple[LabHost, ...]

    def run(
        self, commands: Mapping[str, str], *, stdin: Mapping[str, str] | None = None, timeout_s: float = 30.0
    ) -> dict[str, CommandResult]:
        """Run one command per host (`{host: command}`) in parallel, and return the results by host.

        A non-zero exit status is returned, not raised. Raises `HostError` naming every host that cannot be reached or
        did not finish in time.
        """
        ...

    def put(self, files: Mapping[str, bytes], *, hosts: Collection[str] | None = None) -> str:
        """Copy files (`{name: content}`) to a private directory on every host, or on `hosts`; return its path.

        The path is the same on all hosts and relative to the home directory, in which commands start.
        """
        ...

    def start(self, commands: Mapping[str, str], *, keep_output: bool = True) -> Launch:
        """Start one long-running command per host (`{host: command}`).

        Without `keep_output`, results hold only the last lines, because a program may print for weeks.
        """
        ...


@dataclass(slots=True)
class FleetPart:
    """A `Fleet` of some hosts of another fleet."""

    fleet: Fleet
    hosts: tuple[LabHost, ...]

    def run(
        self, commands: Mapping[str, str], *, stdin: Mapping[str, str] | None = None, timeout_s: float = 30.0
    ) -> dict[str, CommandResult]:
        """Run one command per host."""
        return self.fleet.run(commands, stdin=stdin, timeout_s=timeout_s)

    def put(self, files: Mapping[str, bytes], *, hosts: Collection[str] | None = None) -> str:
        """Copy files to the hosts of this part, or to `hosts`."""
        return self.fleet.put(files, hosts=[host.name for host in self.hosts] if hosts is None else hosts)

    def start(self, commands: Mapping[str, str], *, keep_output: bool = True) -> Launch:
        """Start one command per host."""
        return self.fleet.start(commands, keep_output=keep_output)


def run_where_possible(run_on_fleet: Callable[[Fleet], T], fleet: Fleet) -> tuple[T, dict[str, str]]:
    """Return the result of `run_on_fleet` on the hosts where it succeeds, and the reason for each host where it fails.

    If `run_on_fleet` raises `HostError`, it is called again without the hosts in the error's `reasons`. An error
    without new hosts is raised.
    """
    reason_by_host: dict[str, str] = {}
    while True:
        answering_hosts = tuple(host for host in fleet.hosts if host.name not in reason_by_host)
        try:
            return run_on_fleet(
                FleetPart(fleet, answering_hosts) if reason_by_host else fleet
            ), reason_by_host
        except HostError as error:
            if reason_by_host.keys() >= error.reasons.keys():
                raise
            reason_by_host |= error.reasons


class SshFleet:
    """A `Fleet` over SSH: a context manager that connects to every host of `lab` and keeps the connections.

    Entering raises `HostError`, which names every unreachable host. With `skip_unreachable`, the fleet leaves these
    hosts out instead, and `unreachable` holds the reason for each.
    """

    def __init__(self, lab: Lab, *, skip_unreachable: bool = False) -> None:
        self.hosts = lab.hosts
        self.unreachable: Mapping[str, str] = {}
        self._skip_unreachable = skip_unreachable
        options: dict[str, Any] = {
            "client_keys": [str(lab.ssh_key)],
            "connect_timeout": CONNECT_TIMEOUT_S,
            "login_timeout": CONNECT_TIMEOUT_S,
            "keepalive_interval": KEEPALIVE_S,
        }
        if lab.simulated:
            # Simulated hosts create new host keys at every start, so there is no known key to compare with. Nobody can
            # intercept their network, which is inside this machine. The user's own SSH configuration must not apply.
            options |= {"known_hosts": None, "config": None, "agent_path": None}
        self._options = options
        self._loop = LoopThread()
        self._connections: dict[str, asyncssh.SSHClientConnection] = {}
        self._directories: list[str] = []
        self._kill_tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._loop.start()
        try:
            self._loop.call(self._connect_all())
        except BaseException:
            self._loop.call(self._abort_all())
            self._loop.stop()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self._loop.call(self._disconnect_all())
        finally:
            self._loop.stop()

    def run(
        self, commands: Mapping[str, str], *, stdin: Mapping[str, str] | None = None, timeout_s: float = 30.0
    ) -> dict[str, CommandResult]:
        """Run one command per host, and return the results by host."""
        stdin_by_host = {host: text.encode() for host, text in (stdin or {}).items()}
        return self._loop.call(self._run_all(commands, stdin_by_host, timeout_s))

    def put(self, files: Mapping[str, bytes], *, hosts: Collection[str] | None = None) -> str:
        """Copy files to a new directory on hosts, in one round trip each. Closing the fleet removes the directory."""
        directory = f"{PRIVATE_DIRECTORY}/{secrets.token_hex(6)}"
        command = f"umask 077 && mkdir -p {directory} && tar -xf - -C {directory}"
        archive = _make_archive(files)
        host_names = [host.name for host in self.hosts if hosts is None or host.name in hosts]
        self._directories.append(directory)
        result_by_host = self._loop.call(
            self._run_all(
                dict.fromkeys(host_names, command), dict.fromkeys(host_names, archive), CONNECT_TIMEOUT_S
            )
        )
        reason_by_host = {
            result.host: f"exit {result.exit_status}, {result.stderr.strip() or 'no message'}"
            for result in result_by_host.values()
            if result.exit_status != 0
        }
        if reason_by_host:
            failures = "; ".join(f"{host}: {reason}" for host, reason in reason_by_host.items())
            raise HostError(f"copying files failed on {failures}", reasons=reason_by_host)
        return directory

    def start(self, commands: Mapping[str, str], *, keep_output: bool = True) -> SshLaunch:
        """Start one command per host. Raises `HostError` naming every host on which that fails."""
        launch = SshLaunch(self._loop, keep_output=keep_output)
        try:
            self._loop.call(
                launch.start_commands({host: self._get_connection(host) for host in commands}, commands)
            )
        except BaseException:
            launch.__exit__()
            raise
        return launch

    def _get_connection(self, host: str) -> asyncssh.SSHClientConnection:
        try:
            return self._connections[host]
        except KeyError:
            host_names = ", ".join(host_of_fleet.name for host_of_fleet in self.hosts)
            message = f"no connection to host {host!r}; the open fleet has {host_names}"
            raise HostError(message, host=host) from None

    async def _connect_all(self) -> None:
        import_asyncssh()
        import asyncssh

        async def connect(host: LabHost) -> None:
            self._connections[host.name] = await asyncssh.connect(
                str(host.management), port=host.ssh_port, username=host.user, **self._options
            )

        _, error_by_host = await gather({host.name: connect(host) for host in self.hosts})
        if error_by_host and not self._skip_unreachable:
            address_by_host = {host.name: str(host.management) for host in self.hosts}
            failures = "; ".join(
                f"{name} ({address_by_host[name]}): {describe_error(error)}"
                for name, error in error_by_host.items()
            )
            hint = (
                "Check that the hosts are up, that sshd answers there, and that the lab's key is authorised."
            )
            raise HostError(f"cannot reach {failures}. {hint}", host=next(iter(error_by_host)))
        self.unreachable = {
            host.name: f"no session with {host.management}: {describe_error(error_by_host[host.name])}"
            for host in self.hosts
            if host.name in error_by_host
        }
        self.hosts = tuple(host for host in self.hosts if host.name not in error_by_host)

    async def _abort_all(self) -> None:
        """Abort the open connections after a failure or an interrupt."""
        for connection in self._connections.values():
            connection.abort()
        await self._wait_closed()

    async def _wait_closed(self) -> None:
        closings = [connection.wait_closed() for connection in self._connections.values()]
        await wait_at_most(asyncio.gather(*closings, return_exceptions=True), CONNECT_TIMEOUT_S)
        self._connections.clear()

    async def _disconnect_all(self) -> None:
        if self._directories:
            command = f"rm -rf {' '.join(map(shlex.quote, self._directories))}"
            removal_by_host = {
                host: _run_command(host, connection, command, b"")
                for host, connection in self._connections.items()
            }
            await wait_at_most(gather(removal_by_host), CONNECT_TIMEOUT_S)
        await wait_at_most(asyncio.gather(*self._kill_tasks, return_exceptions=True), CONNECT_TIMEOUT_S)
        for connection in self._connections.values():
            connection.close()
        await self._wait_closed()

    async def _run_all(
        self, commands: Mapping[str, str], stdin_by_host: Mapping[str, bytes], timeout_s: float
    ) -> dict[str, CommandResult]:
        async def run(host: str, command: str) -> CommandResult:
            async with asyncio.timeout(timeout_s):
                return await self._run_until_cancelled(host, command, stdin_by_host.get(host, b""))

        result_by_host, error_by_host = await gather(
            {host: run(host, command) for host, command in commands.items()}
        )
        if error_by_host:
            raise make_unfinished_error(error_by_host, timeout_s)
        return result_by_host

    async def _run_until_cancelled(self, host: str, command: str, stdin: bytes) -> CommandResult:
        """Run a command. On cancellation, start a task that kills it on the host; closing the fleet awaits it."""
        connection = self._get_connection(host)
        mark = secrets.token_hex(8)
        try:
            return await _run_command(host, connection, mark_command(command, mark), stdin)
        except asyncio.CancelledError:
            self._kill_tasks.add(asyncio.create_task(kill_marked_processes(connection, mark)))
            raise


async def _run_command(
    host: str, connection: asyncssh.SSHClientConnection, command: str, stdin: bytes
) -> CommandResult:
    process = await connection.create_process(command, encoding=None)
    try:
        with suppress(OSError):  # the command may have ended already
            process.stdin.write(stdin)
            process.stdin.write_eof()  # `communicate` would leave an empty input open
        stdout, stderr = await process.communicate()
    except asyncio.CancelledError:
        process.close()
        raise
    status = process.exit_status
    return CommandResult(host, -1 if status is None else status, _decode(stdout), _decode(stderr))


def _decode(data: bytes | str | None) -> str:
    return data.decode(errors="replace") if isinstance(data, bytes) else data or ""


def _make_archive(files: Mapping[str, bytes]) -> bytes:
    """Return the files as a tar archive, readable by their owner only."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o600
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def import_asyncssh() -> None:
    """Import asyncssh, without its optional libraries if the search for them fails.

    asyncssh searches with `ctypes.util.find_library`, which runs the compiler with a temporary file. That fails on a
    full or read-only disk, where reading a lab must still work.
    """
    if "asyncssh" not in sys.modules:
        with _tolerate_missing_libraries():
            import asyncssh  # noqa: F401 - imported late: it is slow, and a `plan` needs no host


@contextmanager
def _tolerate_missing_libraries() -> Iterator[None]:
    import ctypes.util

    find_library = ctypes.util.find_library

    def find_or_none(name: str) -> str | None:
        try:
            return find_library(name)
        except OSError:
            return None

    ctypes.util.find_library = find_or_none
    try:
        yield
    finally:
        ctypes.util.find_library = find_library
