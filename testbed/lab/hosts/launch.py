"""Long-running commands on several hosts, followed as one."""

from __future__ import annotations

import asyncio
import queue
import secrets
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from testbed.errors import HostError
from testbed.lab.hosts.event_loop import LoopThread, gather

if TYPE_CHECKING:
    import asyncssh

CONNECT_TIMEOUT_S = 10.0
KILL_TIMEOUT_S = 3.0
POLL_INTERVAL_S = 0.02
MARK_VARIABLE = "LIGHTBED_COMMAND"
MAX_QUEUED_LINES = 10_000
TAIL_LINES = 20
"""Number of last lines kept of a command without `keep_output`."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Result of one command on one host; `exit_status` is -1 if a signal or a lost connection ended it."""

    host: str
    exit_status: int
    stdout: str
    stderr: str


class Launch(Protocol):
    """Long-running commands, at most one per host, followed as one."""

    def read_lines(self, timeout_s: float) -> Iterator[tuple[str, str]]:
        """Yield lines of standard output as `(host, line)`, until all commands have ended or `timeout_s` has passed.

        May be called again to continue where the last iteration stopped.
        """
        ...

    @property
    def running(self) -> tuple[str, ...]:
        """Hosts whose command has not ended."""
        ...

    def send(self, text: str, host: str | None = None) -> None:
        """Write to the standard input of the command on one host, or of all commands."""
        ...

    def close_input(self) -> None:
        """End the standard input of all commands."""
        ...

    def wait(self, timeout_s: float) -> dict[str, CommandResult]:
        """Return the result of each command. Raises `HostError` if a command still runs after `timeout_s`."""
        ...

    def get_result(self, host: str) -> CommandResult:
        """Return the result of a command that has ended."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None:
        """Close the inputs and end the remaining commands."""
        ...


class SshLaunch:
    """A `Launch` over the connections of an `SshFleet`, created by `SshFleet.start`."""

    def __init__(self, loop_thread: LoopThread, *, keep_output: bool = True) -> None:
        self._loop = loop_thread
        self._max_output_lines = None if keep_output else TAIL_LINES
        self._lines: queue.SimpleQueue[tuple[str, str] | None] = queue.SimpleQueue()
        self._processes: dict[str, asyncssh.SSHClientProcess[str]] = {}
        self._followers: dict[str, asyncio.Task[CommandResult]] = {}
        self._connections: Mapping[str, asyncssh.SSHClientConnection] = {}
        self._mark = secrets.token_hex(8)

    async def start_commands(
        self, connections: Mapping[str, asyncssh.SSHClientConnection], commands: Mapping[str, str]
    ) -> None:
        """Start the commands; must run on the loop. Raises `HostError` naming every host that refuses."""
        self._connections = connections
        creation_by_host = {
            host: connections[host].create_process(mark_command(command, self._mark))
            for host, command in commands.items()
        }
        self._processes, error_by_host = await gather(creation_by_host)
        for host, process in self._processes.items():
            follower = asyncio.create_task(self._follow(host, process))
            # Wake `read_lines` only once `running` lacks this host. Otherwise it would wait forever for another line.
            follower.add_done_callback(lambda _: self._lines.put(None))
            self._followers[host] = follower
        if error_by_host:
            raise make_unfinished_error(error_by_host, CONNECT_TIMEOUT_S)

    async def _follow(self, host: str, process: asyncssh.SSHClientProcess[str]) -> CommandResult:
        import asyncssh

        stderr_task = asyncio.create_task(_read_all(process.stderr))
        stdout: deque[str] = deque(maxlen=self._max_output_lines)
        try:
            while line := await process.stdout.readline():  # iteration would give an empty line at the end
                # Stop reading while the caller is slow. Poll, because a thread queue has no event to await.
                while self._lines.qsize() > MAX_QUEUED_LINES:  # noqa: ASYNC110
                    await asyncio.sleep(POLL_INTERVAL_S)
                stdout.append(line)
                self._lines.put((host, line.rstrip("\n")))
        except (asyncssh.Error, OSError) as error:
            stdout.append(f"connection lost: {error}\n")
        await process.wait_closed()
        status = process.exit_status
        return CommandResult(host, -1 if status is None else status, "".join(stdout), await stderr_task)

    @property
    def running(self) -> tuple[str, ...]:
        """Hosts whose command has not ended."""
        return tuple(host for host, follower in self._followers.items() if not follower.done())

    def read_lines(self, timeout_s: float) -> Iterator[tuple[str, str]]:
        """Yield `(host, line)` until all commands have ended or `timeout_s` has passed."""
        deadline_s = time.monotonic() + timeout_s
        while self.running or not self._lines.empty():
            try:
                host_and_line = self._lines.get(timeout=max(0.0, deadline_s - time.monotonic()))
            except queue.Empty:
                return
            if host_and_line is not None:
                yield host_and_line

    def send(self, text: str, host: str | None = None) -> None:
        """Write to the standard input of the command on one host, or of all; ended commands are skipped."""
        for name, process in self._processes.items():
            if host in (None, name):
                self._loop.call_soon(_write, process, text)

    def close_input(self) -> None:
        """End the standard input of all commands."""
        for process in self._processes.values():
            self._loop.call_soon(_write_eof, process)

    def wait(self, timeout_s: float) -> dict[str, CommandResult]:
        """Return the results by host. Raises `HostError` if a command still runs after `timeout_s`."""
        return self._loop.call(self._wait(timeout_s))

    def get_result(self, host: str) -> CommandResult:
        """Return the result of a command that has ended."""
        return self._followers[host].result()

    async def _wait(self, timeout_s: float) -> dict[str, CommandResult]:
        if self._followers:
            await asyncio.wait(self._followers.values(), timeout=timeout_s)
        if self.running:
            names = ", ".join(self.running)
            message = (
                f"the command on {names} is still running after {timeout_s:g} s; end it or allow more time"
            )
            raise HostError(message, host=self.running[0])
        return {host: follower.result() for host, follower in self._followers.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._loop.call(self._end_commands())

    async def _end_commands(self) -> None:
        for process in self._processes.values():
            _write_eof(process)
        await self._wait_for_ends(2.0)
        await gather(
            {host: kill_marked_processes(self._connections[host], self._mark) for host in self.running}
        )
        await self._wait_for_ends(1.0)
        for host in self.running:
            self._processes[host].close()
        await self._wait_for_ends(1.0)

    async def _wait_for_ends(self, timeout_s: float) -> None:
        if self.running:
            await asyncio.wait(self._followers.values(), timeout=timeout_s)


def mark_command(command: str, mark: str) -> str:
    """Return the command with an environment variable that identifies it and every process that it starts."""
    return f"export {MARK_VARIABLE}={mark}; {command}"


async def kill_marked_processes(connection: asyncssh.SSHClientConnection, mark: str) -> None:
    """Kill all processes with this mark. On a host that does not answer, they run until their own deadline.

    SSH's own signal request is no alternative, because OpenSSH refuses it for root logins.
    """
    import asyncssh

    find_command = f"grep -lzsxF {MARK_VARIABLE}={mark} /proc/[0-9]*/environ | cut -d/ -f3"
    with suppress(asyncssh.Error, OSError, TimeoutError):
        async with asyncio.timeout(KILL_TIMEOUT_S):
            await connection.run(f"{find_command} | xargs -r kill -9")


async def _read_all(stream: asyncssh.SSHReader[str]) -> str:
    import asyncssh

    try:
        return await stream.read()
    except (asyncssh.Error, OSError) as error:
        return f"connection lost: {error}"


def _write(process: asyncssh.SSHClientProcess[str], text: str) -> None:
    if not process.is_closing():
        process.stdin.write(text)


def _write_eof(process: asyncssh.SSHClientProcess[str]) -> None:
    if not process.is_closing() and process.stdin.can_write_eof():
        process.stdin.write_eof()


def make_unfinished_error(error_by_host: Mapping[str, Exception], timeout_s: float) -> HostError:
    """Return the error that names every host on which a command could not be run or did not end in time."""
    reason_by_host = {
        host: f"not finished after {timeout_s:g} s"
        if isinstance(error, TimeoutError)
        else describe_error(error)
        for host, error in error_by_host.items()
    }
    failures = "; ".join(f"{host}: {reason}" for host, reason in reason_by_host.items())
    message = f"the command could not be run on {failures}. Check these hosts, or allow more time."
    return HostError(message, reasons=reason_by_host)


def describe_error(error: Exception) -> str:
    """Return the message of an error, or the name of its type if it has none."""
    return str(error) or type(error).__name__
