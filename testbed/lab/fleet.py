"""All hosts of a lab as one: run a command everywhere, copy files everywhere, follow what runs there.

`SshFleet` keeps one SSH connection per host and talks to all hosts at once. Its face is synchronous; the
connections live on an event loop in a thread of their own, so that Ctrl-C in the caller never leaves a
half-written packet behind. Failures of a fan-out are collected: the error names every host concerned.
"""

from __future__ import annotations

import asyncio
import io
import queue
import secrets
import shlex
import tarfile
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import asyncssh

from testbed.errors import HostError
from testbed.lab.model import Lab, LabHost

T = TypeVar("T")

CONNECT_TIMEOUT_S = 10.0
KEEPALIVE_S = 5.0
# Relative to the home directory, where SSH starts commands: simulated hosts may share /tmp, never a home.
PRIVATE_DIRECTORY = ".cache/lightbed"


@dataclass(frozen=True, slots=True)
class Completed:
    """What became of one command on one host. `exit_status` is -1 when it ended by a signal or was cut off."""

    host: str
    exit_status: int
    stdout: str
    stderr: str


class Launch(Protocol):
    """Long-running commands, at most one per host, followed together."""

    def lines(self, timeout_s: float) -> Iterator[tuple[str, str]]:
        """Lines of standard output as `(host, line)`, until all commands ended or `timeout_s` passed.

        May be called again to go on where the last iteration stopped.
        """
        ...

    @property
    def running(self) -> tuple[str, ...]:
        """Hosts whose command has not ended."""
        ...

    def send(self, text: str, host: str | None = None) -> None:
        """Write to the standard input of one host's command, or of all."""
        ...

    def close_input(self) -> None:
        """End the standard input of all commands."""
        ...

    def wait(self, timeout_s: float) -> dict[str, Completed]:
        """What became of each command; raises `HostError` naming those that run on after `timeout_s`."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None:
        """Close the inputs and end what is left."""
        ...


class Fleet(Protocol):
    """The hosts of a lab and what can be done to all of them at once."""

    hosts: tuple[LabHost, ...]

    def run(
        self, commands: Mapping[str, str], *, stdin: Mapping[str, str] | None = None, timeout_s: float = 30.0
    ) -> dict[str, Completed]:
        """Run one command per host (`{host: command}`), all at once, and collect what became of them.

        A non-zero exit status is returned, not raised. Raises `HostError` naming every host that cannot
        be reached or did not finish in time.
        """
        ...

    def put(self, files: Mapping[str, bytes]) -> str:
        """Copy files (`{name: content}`) to a private directory on every host and return its path.

        The path is the same everywhere and relative to the home directory, where commands start.
        """
        ...

    def start(self, commands: Mapping[str, str]) -> Launch:
        """Start one long-running command per host (`{host: command}`)."""
        ...


class SshFleet:
    """A `Fleet` over SSH: a context manager that connects to every host of `lab` and keeps the connections.

    Raises `HostError` naming every host that cannot be reached.
    """

    def __init__(self, lab: Lab) -> None:
        self.hosts = lab.hosts
        self._options = _connection_options(lab)
        self._loop = _LoopThread()
        self._connections: dict[str, asyncssh.SSHClientConnection] = {}
        self._directories: list[str] = []

    def __enter__(self) -> Self:
        self._loop.start()
        try:
            self._connections = self._loop.call(self._connect_all())
        except BaseException:
            self._loop.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._loop.call(self._disconnect_all())
        finally:
            self._connections = {}
            self._loop.stop()

    def run(
        self, commands: Mapping[str, str], *, stdin: Mapping[str, str] | None = None, timeout_s: float = 30.0
    ) -> dict[str, Completed]:
        """See `Fleet.run`."""
        inputs = {host: text.encode() for host, text in (stdin or {}).items()}
        return self._loop.call(self._run_all(commands, inputs, timeout_s))

    def put(self, files: Mapping[str, bytes]) -> str:
        """See `Fleet.put`. One round trip per host; the directory is removed when the fleet is closed."""
        directory = f"{PRIVATE_DIRECTORY}/{secrets.token_hex(6)}"
        command = f"umask 077 && mkdir -p {directory} && tar -xf - -C {directory}"
        archive = _archive(files)
        names = [host.name for host in self.hosts]
        self._directories.append(directory)
        done = self._loop.call(
            self._run_all(dict.fromkeys(names, command), dict.fromkeys(names, archive), CONNECT_TIMEOUT_S)
        )
        _demand_success(done, "copying files")
        return directory

    def start(self, commands: Mapping[str, str]) -> SshLaunch:
        """See `Fleet.start`. Raises `HostError` naming every host where the command cannot be started."""
        launch = SshLaunch(self._loop)
        try:
            self._loop.call(launch.open({host: self._connection(host) for host in commands}, commands))
        except BaseException:
            launch.__exit__()
            raise
        return launch

    def _connection(self, host: str) -> asyncssh.SSHClientConnection:
        try:
            return self._connections[host]
        except KeyError:
            known = ", ".join(h.name for h in self.hosts)
            message = f"no connection to host {host!r}; the open fleet has {known}"
            raise HostError(message, host=host) from None

    async def _connect_all(self) -> dict[str, asyncssh.SSHClientConnection]:
        async def connect(host: LabHost) -> asyncssh.SSHClientConnection:
            return await asyncssh.connect(
                str(host.management), port=host.ssh_port, username=host.user, **self._options
            )

        opened, failed = await _gather({host.name: connect(host) for host in self.hosts})
        if failed:
            for connection in opened.values():
                connection.abort()
            raise _unreachable(failed, {host.name: str(host.management) for host in self.hosts})
        return opened

    async def _disconnect_all(self) -> None:
        if self._directories:
            command = f"rm -rf {' '.join(map(shlex.quote, self._directories))}"
            removals = {host: _run_one(host, c, command, b"") for host, c in self._connections.items()}
            await _within(_gather(removals), CONNECT_TIMEOUT_S)
        for connection in self._connections.values():
            connection.close()
        closings = [connection.wait_closed() for connection in self._connections.values()]
        await _within(asyncio.gather(*closings, return_exceptions=True), CONNECT_TIMEOUT_S)

    async def _run_all(
        self, commands: Mapping[str, str], inputs: Mapping[str, bytes], timeout_s: float
    ) -> dict[str, Completed]:
        async def run(host: str, command: str) -> Completed:
            async with asyncio.timeout(timeout_s):
                return await _run_one(host, self._connection(host), command, inputs.get(host, b""))

        done, failed = await _gather({host: run(host, command) for host, command in commands.items()})
        if failed:
            raise _unfinished(failed, timeout_s)
        return done


class SshLaunch:
    """A `Launch` over the connections of an `SshFleet`; made by `SshFleet.start`."""

    def __init__(self, loop: _LoopThread) -> None:
        self._loop = loop
        self._lines: queue.SimpleQueue[tuple[str, str] | None] = queue.SimpleQueue()
        self._processes: dict[str, asyncssh.SSHClientProcess[str]] = {}
        self._followers: dict[str, asyncio.Task[Completed]] = {}

    async def open(
        self, connections: Mapping[str, asyncssh.SSHClientConnection], commands: Mapping[str, str]
    ) -> None:
        """Start the commands (on the loop). Raises `HostError` naming every host that refuses."""
        creations = {host: connections[host].create_process(command) for host, command in commands.items()}
        self._processes, failed = await _gather(creations)
        for host, process in self._processes.items():
            self._followers[host] = asyncio.create_task(self._follow(host, process))
        if failed:
            raise _unfinished(failed, CONNECT_TIMEOUT_S)

    async def _follow(self, host: str, process: asyncssh.SSHClientProcess[str]) -> Completed:
        errors = asyncio.create_task(_read_all(process.stderr))
        stdout: list[str] = []
        try:
            async for line in process.stdout:
                stdout.append(line)
                self._lines.put((host, line.rstrip("\n")))
        except (asyncssh.Error, OSError) as error:
            stdout.append(f"connection lost: {error}\n")
        await process.wait_closed()
        self._lines.put(None)
        status = process.exit_status
        return Completed(host, -1 if status is None else status, "".join(stdout), await errors)

    @property
    def running(self) -> tuple[str, ...]:
        """See `Launch.running`."""
        return tuple(host for host, follower in self._followers.items() if not follower.done())

    def lines(self, timeout_s: float) -> Iterator[tuple[str, str]]:
        """See `Launch.lines`."""
        deadline = time.monotonic() + timeout_s
        while self.running or not self._lines.empty():
            try:
                item = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return
            if item is not None:
                yield item

    def send(self, text: str, host: str | None = None) -> None:
        """See `Launch.send`. Commands that have ended are passed over."""
        for name, process in self._processes.items():
            if host in (None, name):
                self._loop.soon(_write, process, text)

    def close_input(self) -> None:
        """See `Launch.close_input`."""
        for process in self._processes.values():
            self._loop.soon(_write_eof, process)

    def wait(self, timeout_s: float) -> dict[str, Completed]:
        """See `Launch.wait`."""
        return self._loop.call(self._wait(timeout_s))

    async def _wait(self, timeout_s: float) -> dict[str, Completed]:
        if self._followers:
            await asyncio.wait(self._followers.values(), timeout=timeout_s)
        if self.running:
            names = ", ".join(self.running)
            message = f"the command on {names} still runs after {timeout_s:g} s; end it or allow more time"
            raise HostError(message, host=self.running[0])
        return {host: follower.result() for host, follower in self._followers.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._loop.call(self._end())

    async def _end(self) -> None:
        for process in self._processes.values():
            _write_eof(process)
        await self._settle(2.0)
        for host in self.running:
            self._processes[host].kill()
        await self._settle(1.0)
        for host in self.running:
            self._processes[host].close()
        await self._settle(1.0)

    async def _settle(self, timeout_s: float) -> None:
        if self.running:
            await asyncio.wait(self._followers.values(), timeout=timeout_s)


class _LoopThread:
    """An event loop in a thread; `call` runs a coroutine there and waits for it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fleet", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; when the caller is interrupted, `work` is cancelled on the loop."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function on the loop without waiting for it."""
        self._loop.call_soon_threadsafe(function, *arguments)

    def stop(self) -> None:
        """Cancel what is left, end the thread and close the loop."""
        self.call(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _connection_options(lab: Lab) -> dict[str, Any]:
    options: dict[str, Any] = {
        "client_keys": [str(lab.ssh_key)],
        "connect_timeout": CONNECT_TIMEOUT_S,
        "login_timeout": CONNECT_TIMEOUT_S,
        "keepalive_interval": KEEPALIVE_S,
    }
    if lab.simulated:
        # Simulated hosts make new host keys at every start and live on a network inside this machine:
        # there is nothing to compare with and nobody in between. A user's own SSH set-up stays out of it.
        options |= {"known_hosts": None, "config": None, "agent_path": None}
    return options


async def _gather(work: Mapping[str, Awaitable[T]]) -> tuple[dict[str, T], dict[str, Exception]]:
    """Await all at once; results and failures, each by host."""
    results = await asyncio.gather(*work.values(), return_exceptions=True)
    done: dict[str, T] = {}
    failed: dict[str, Exception] = {}
    for host, result in zip(work, results, strict=True):
        if isinstance(result, Exception):
            failed[host] = result
        elif isinstance(result, BaseException):
            raise result
        else:
            done[host] = result
    return done, failed


async def _within(work: Awaitable[object], timeout_s: float) -> None:
    """Wait for `work` at most `timeout_s`: closing must never hang on a host that is gone."""
    try:
        async with asyncio.timeout(timeout_s):
            await work
    except TimeoutError:
        pass


async def _run_one(
    host: str, connection: asyncssh.SSHClientConnection, command: str, stdin: bytes
) -> Completed:
    process = await connection.create_process(command, encoding=None)
    try:
        stdout, stderr = await process.communicate(stdin)
    except asyncio.CancelledError:
        process.kill()
        process.close()
        raise
    status = process.exit_status
    return Completed(host, -1 if status is None else status, _text(stdout), _text(stderr))


def _text(data: bytes | str | None) -> str:
    return data.decode(errors="replace") if isinstance(data, bytes) else data or ""


async def _read_all(stream: asyncssh.SSHReader[str]) -> str:
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


def _archive(files: Mapping[str, bytes]) -> bytes:
    """The files as a tar archive, readable by their owner only."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o600
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _demand_success(done: Mapping[str, Completed], what: str) -> None:
    failed = [result for result in done.values() if result.exit_status != 0]
    if failed:
        said = "; ".join(
            f"{r.host}: exit {r.exit_status}, {r.stderr.strip() or 'no message'}" for r in failed
        )
        raise HostError(f"{what} failed on {said}", host=failed[0].host)


def _unreachable(failed: Mapping[str, Exception], addresses: Mapping[str, str]) -> HostError:
    said = "; ".join(f"{host} ({addresses[host]}): {_reason(error)}" for host, error in failed.items())
    cure = "Check that the hosts are up, that sshd answers there, and that the lab's key is authorised."
    return HostError(f"cannot reach {said}. {cure}", host=next(iter(failed)))


def _unfinished(failed: Mapping[str, Exception], timeout_s: float) -> HostError:
    said = "; ".join(
        f"{host}: " + (f"no end after {timeout_s:g} s" if isinstance(error, TimeoutError) else _reason(error))
        for host, error in failed.items()
    )
    message = f"the command could not be run on {said}. Check these hosts, or allow more time."
    return HostError(message, host=next(iter(failed)))


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
