"""A device at the other end of a real TCP socket: scripted byte by byte, or the twin as a process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from needs import needs

WIRES = (
    ("lines", "SocketTransport"),
    ("visa", "VisaTransport"),
    ("serial_port", "SerialTransport"),
    ("ssh", "SshTransport"),
)
"""Where drivers find the wires, for `open_in_memory` to put memory there."""
NEEDED = {"ssh": ("telescent+cli", "rome+cli", "afm+cli", "sonic")}
"""Schemes that cannot do without the library behind a wire, even when the wire is memory."""


class ScriptedPeer:
    """A TCP server whose clients are each served by one call of `serve(connection)` in a thread."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._serve = serve
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.failures: list[Exception] = []
        self.connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.settimeout(20)
            self.connections.append(connection)
            thread = threading.Thread(target=self._run, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, connection: socket.socket) -> None:
        with connection:
            try:
                self._serve(connection)
            except OSError:
                return  # the client closed the connection: many tests want just that
            except Exception as error:  # noqa: BLE001 - told when the test ends
                self.failures.append(error)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in [self._acceptor, *self._threads]:
            thread.join(60)


@pytest.fixture
def peer() -> Iterator[Callable[[Callable[[socket.socket], None]], ScriptedPeer]]:
    """Make peers; each must have met nothing it did not expect."""
    made: list[ScriptedPeer] = []

    def make(serve: Callable[[socket.socket], None]) -> ScriptedPeer:
        made.append(ScriptedPeer(serve))
        return made[-1]

    yield make
    for one in made:
        one.close()
    assert [failure for one in made for failure in one.failures] == []


IDENTITY_24 = b"Polatis,I-OST-24x24-LU1-DMHNS,002414,6.5.2.18\r\n"

_OPENING = {
    b"*IDN?": IDENTITY_24,
    b"*CLS;:oxc:swit:size?;:syst:err?": b'24,24;0, "No error"\r\n',
    b":oxc:swit:port:stat?;:syst:err?": b'-113, "Undefined header"\r\n',
    b":oxc:boot:mode?;:syst:err?": b'-113, "Undefined header"\r\n',
    b":pmon:pow? (@1);:syst:err?": b'-113, "Undefined header"\r\n',
    b":pmon:pow? (@25);:syst:err?": b'-113, "Undefined header"\r\n',
    b":syst:err?": b'0, "No error"\r\n',
}


@dataclass
class Lines:
    """Serves SCPI lines: the opening of a 24x24 by itself, everything else from `answers` (bytes or a call)."""

    answers: dict[bytes, bytes | Callable[[socket.socket], None]] = field(default_factory=dict)
    asked: list[bytes] = field(default_factory=list)

    def __call__(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as lines:
            for line in lines:
                command = line.strip()
                self.asked.append(command)
                answer = {**_OPENING, **self.answers}.get(command)
                if answer is None:
                    raise AssertionError(f"unexpected command {command!r}")
                if callable(answer):
                    answer(connection)
                else:
                    connection.sendall(answer)


@pytest.fixture
def lines() -> type[Lines]:
    return Lines


class Twin:
    """A simulated switch in a process of its own, and its control socket."""

    def __init__(self, *options: str, inputs: int = 8, outputs: int = 8) -> None:
        command = [sys.executable, "-m", "sim.twins", "polatis", f"--size={inputs}x{outputs}"]
        self._process = subprocess.Popen(
            [*command, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        ready = json.loads(self._process.stdout.readline())
        self.urls: dict[str, str] = ready
        self.scpi, self.tl1 = ready["scpi"], ready["tl1"]
        host, _, port = ready["control"].removeprefix("tcp://").rpartition(":")
        self._control = socket.create_connection((host, int(port)), 10)
        self._lines = self._control.makefile("rw")

    def do(self, verb: str, **arguments: object) -> dict:
        self._lines.write(json.dumps({"do": verb, **arguments}) + "\n")
        self._lines.flush()
        reply = json.loads(self._lines.readline())
        assert reply["ok"], reply
        return reply

    def truth(self) -> dict[int, int]:
        """Return what is really connected."""
        return dict(self.do("truth")["connections"])

    def close(self) -> None:
        self._lines.close()
        self._control.close()
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise


@pytest.fixture(scope="session")
@needs("process", "socket")
def twin_process() -> Iterator[Twin]:
    twin = Twin("--switch-time-ms=1")
    yield twin
    twin.close()


@pytest.fixture(scope="session")
@needs("process", "socket")
def separate_lines_process() -> Iterator[Twin]:
    twin = Twin("--switch-time-ms=1", "--option=separate_lines=yes")
    yield twin
    twin.close()


@pytest.fixture
def twin(twin_process: Twin) -> Iterator[Twin]:
    """Yield the shared small twin: no faults, nothing connected, ports enabled."""
    yield twin_process
    twin_process.do("clear_fault", fault="all")
    twin_process.do("operator", disconnect=list(range(1, 9)))


@pytest.fixture
def new_twin() -> Iterator[Callable[..., Twin]]:
    """Start twins of one's own."""
    started: list[Twin] = []

    def start(*options: str, **size: int) -> Twin:
        started.append(Twin(*options, **size))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture(autouse=True)
def own_lock_directory(tmp_path_factory, monkeypatch) -> None:
    """Lock files of tests lie apart from those of anything that runs on this machine."""
    monkeypatch.setenv("LIGHTBED_LOCK_DIR", str(tmp_path_factory.mktemp("locks")))


@pytest.fixture
def quick_disk() -> Iterator[str]:
    """Yield a directory in memory, where the system has one: files are flushed there in no time."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix=f"lightbed-{os.getpid()}-", dir=memory) as directory:
        yield directory


@pytest.fixture
def open_in_memory(monkeypatch, quick_disk) -> Callable[..., Any]:
    """Open a driver by its scheme on a twin in memory: `open_in_memory(world, "calient+tl1", "tl1", key="value")`.

    The drivers are made by their factories as ever; only the wire and the machine's clock are replaced.
    """
    from ocs_drivers import address, families, timing

    def use(world: Any, scheme: str, front: str, **options: str) -> Any:
        def line(*_: object, **__: object) -> Any:
            return world.transport(front)

        for module, name in WIRES:
            try:
                monkeypatch.setattr(f"ocs_drivers.transports.{module}.{name}", line)
            except ImportError as missing:  # an optional library is not installed
                if any(scheme.startswith(family) for family in NEEDED.get(module, ())):
                    pytest.skip(f"{scheme} needs an extra: {missing}")
        monkeypatch.setattr(timing.SystemClock, "now", lambda _: world.clock.now())
        monkeypatch.setattr(timing.SystemClock, "sleep", lambda _, seconds: world.clock.sleep(seconds))
        where = "///dev/memory" if scheme.endswith("serial") else "//memory"
        if scheme == "manual":
            matrix = world.twin.device.matrix
            where = f"//{tempfile.mkdtemp(dir=quick_disk)}/panel.json"
            options |= {"operator": "memory:1", "size": f"{matrix.input_count}x{matrix.output_count}"}
        query = "&".join(f"{key}={value}" for key, value in options.items())
        parsed = address.parse_address(f"{scheme}:{where}" + (f"?{query}" if query else ""))
        switch = families.find_driver_factory(scheme)(parsed, timeout_s=5.0, credentials=None)
        switch.open()
        return switch

    return use
