"""Fixtures of every test: hypothesis profiles, who can build namespaces, and twins of switches, in memory or not."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from needs import needs

pytest_plugins = ["databases", "lanes", "leftovers", "times", "wheels"]

# Rewritten tests are kept, also where the environment asks Python to write no bytecode: rewriting them again
# takes 10 s of processor time in every worker.
sys.dont_write_bytecode = False

# Whoever runs the suite in the background has Ctrl-C ignored, and every child of ours would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The machine is shared with a simulated lab: no deadline per example, and drawing may be slow. The same examples on
# every run, so that a red build is red again; `make test-long` draws new ones, and many more.
PATIENT = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("ci", derandomize=True, max_examples=30, **PATIENT)
settings.register_profile("long", max_examples=300, **PATIENT)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session", autouse=True)
def _own_locks(tmp_path_factory):
    """Give the test its own locks of devices: workers, and other suites, use the same addresses in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIGHTBED_LOCK_DIR", str(tmp_path_factory.mktemp("locks")))
        yield


KERNEL_TOOLS = ("ip", "tc", "sshd", "unshare")


@cache
def why_no_kernel_hosts() -> str:
    """Why hosts in network namespaces cannot be built here; empty when they can."""
    if os.geteuid() != 0:
        return "needs root: hosts live in network namespaces"
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    missing = [tool for tool in KERNEL_TOOLS if shutil.which(tool, path=path) is None]
    if missing:
        return f"needs {', '.join(missing)}: run `make install` as root"
    made = subprocess.run(["unshare", "--net", "--uts", "--mount", "true"], capture_output=True, check=False)
    return "" if made.returncode == 0 else "this kernel or container refuses new namespaces"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not any(item.get_closest_marker("kernel") for item in items):
        return
    reason = why_no_kernel_hosts()
    for item in items:
        if reason and item.get_closest_marker("kernel"):
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_runtest_logstart() -> None:
    """Let the fifty loggers of torch propagate: pytest would attach its handlers to each of them three times a test."""
    if "torch" in sys.modules and not _TORCH_LOGGERS:
        loggers = logging.root.manager.loggerDict.items()
        _TORCH_LOGGERS.extend(name for name, _ in loggers if name.startswith("torch"))
        for name in _TORCH_LOGGERS:
            logging.getLogger(name).propagate = True


_TORCH_LOGGERS: list[str] = []
_INTERNAL_ERRORS: list[str] = []


def pytest_internalerror(excrepr: object) -> None:
    _INTERNAL_ERRORS.append(str(excrepr))


def pytest_unconfigure() -> None:
    """Say last what broke pytest itself first: of a worker's error, many lines of the scheduler's own follow."""
    if _INTERNAL_ERRORS:
        lines = _INTERNAL_ERRORS[0].splitlines()
        print("The first internal error ends with:", *lines[-30:], sep="\n", flush=True)


class MemoryLine:
    """A driver's transport over a twin's session in memory: only waiting lets virtual time pass."""

    def __init__(self, world: World, front: str) -> None:
        self._world = world
        self._front = front
        self._client: Any = None

    @property
    def is_open(self) -> bool:
        return self._client is not None

    def open(self, timeout_s: float) -> None:
        from ocs_drivers.transports.transport import make_connect_error

        self.close()
        try:
            self._client = self._world.attach(self._front)
        except ConnectionRefusedError as error:
            raise make_connect_error(self._world.device, error) from error
        self._world.settle()

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()
            self._world.settle()

    def has_input(self) -> bool:
        self._world.settle()
        return bool(self._arrived()) or self._client.is_closed

    def send(self, data: bytes, deadline: Any) -> None:
        from ocs_drivers.transports.transport import make_connection_lost

        if self._client is None or self._client.is_closed:
            raise make_connection_lost(self._world.device, "the device closed the connection")
        self._client.send(data)

    def receive(self, deadline: Any) -> bytes:
        from ocs_drivers.transports.transport import make_connection_lost, make_timeout

        if self._client is None:
            raise make_connection_lost(self._world.device, "it is closed")
        self._world.settle()
        while not self._arrived():
            if self._client.is_closed:
                raise make_connection_lost(self._world.device, "the device closed the connection")
            if deadline.is_over:
                raise make_timeout(self._world.device, deadline)
            self._world.pass_time(deadline.remaining_s())
        data, self._waiting = self._waiting, b""
        return data

    _waiting = b""

    def _arrived(self) -> bytes:
        self._waiting += self._client.receive()
        return self._waiting


class WorldClock:
    """The driver's view of the twin's virtual time."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> float:
        return self._world.virtual.now()

    def sleep(self, seconds: float) -> None:
        self._world.advance(seconds)


class IdleSelector(selectors.DefaultSelector):
    """Tells an event loop that has nothing left to do to stop, while `stop` is set, instead of waiting."""

    stop: Callable[[], None] | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.stop is None:
            return super().select(timeout)
        if timeout != 0:  # nothing is ready to run
            self.stop()
        return []


class World:
    """One twin on a virtual clock and an event loop that runs only while somebody waits: no socket, no race."""

    def __init__(self, family: str, size: tuple[int, int], options: dict[str, str], **settings: Any) -> None:
        from sim.models.clock import VirtualClock
        from sim.twins.families import make_twin
        from sim.twins.plant import Plant
        from sim.twins.switch.settings import TwinSettings

        self._selector = IdleSelector()
        self.loop = asyncio.SelectorEventLoop(self._selector)
        self.virtual = VirtualClock()
        self.device = f"{family}://memory"
        self.clock = WorldClock(self)
        plant = Plant({"switches": [{"name": "ocs1"}], "hosts": []})
        given = {
            "name": "ocs1",
            "input_count": size[0],
            "output_count": size[1],
            "plant": plant,
            "clock": self.virtual,
        }
        self.twin = self.run(
            self._made(lambda: make_twin(family, TwinSettings(**(given | settings), options=options)))
        )

    @staticmethod
    async def _made(make: Any) -> Any:
        return make()

    def run(self, doing: Any) -> Any:
        return self.loop.run_until_complete(doing)

    def attach(self, front: str) -> Any:
        return self.run(self._made(lambda: self.twin.attach(front)))

    def settle(self) -> None:
        """Run everything that needs no time."""
        self._selector.stop = self.loop.stop
        try:
            self.loop.run_forever()
        finally:
            self._selector.stop = None

    def advance(self, seconds: float) -> None:
        end_s = self.virtual.now() + seconds
        self.settle()  # tasks started just now first get to their own sleep
        while self.virtual.wake_next(end_s):
            self.settle()

    def pass_time(self, at_most_s: float) -> None:
        """Advance to the time at which the next thing is due, and no longer than `at_most_s`."""
        self.advance(min(at_most_s, max(self.virtual.next_wake_s - self.virtual.now(), 0.0)))

    def transport(self, front: str) -> MemoryLine:
        return MemoryLine(self, front)

    def do(self, verb: str, **fields: Any) -> dict[str, Any]:
        """Send a request to the control side, and return the reply."""
        from sim.twins.wire.control import answer_request

        line = json.dumps({"do": verb, **fields}).encode()
        reply = self.run(answer_request(self.twin.make_verbs(), line))
        assert reply["ok"], reply
        self.settle()
        return reply

    def truth(self) -> dict[int, int]:
        """Return the circuits that are really connected."""
        return dict(self.do("truth")["connections"])

    def close(self) -> None:
        if not self.loop.is_closed():
            self.run(self.twin.close())
            self.loop.close()


@pytest.fixture
def world() -> Iterator[Callable[..., World]]:
    """Make twins in memory: `world("calient", size=(8, 8), page_rows="3")`, or by `settings={...}`."""
    made: list[World] = []

    def make(family: str, *, size: tuple[int, int] = (8, 8), settings: Any = None, **options: str) -> World:
        made.append(World(family, size, options, **(settings or {})))
        return made[-1]

    yield make
    for one in made:
        one.close()


SERVED_OVER_SSH = {"telescent", "rome", "afm", "sonic"}
"""Twins that cannot serve without asyncssh, which a board's environment does not have."""


class TwinProcess:
    """A twin as a process: `urls` by front, and its control socket."""

    def __init__(self, family: str, *options: str) -> None:
        if family in SERVED_OVER_SSH:
            pytest.importorskip("asyncssh")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sim.twins", family, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.urls: dict[str, str] = json.loads(self._process.stdout.readline())
        host, _, port = self.urls["control"].rpartition("/")[2].rpartition(":")
        self._control = socket.create_connection((host, int(port)), 10)
        self._lines = self._control.makefile("rw")

    def do(self, verb: str, **fields: Any) -> dict[str, Any]:
        self._lines.write(json.dumps({"do": verb, **fields}) + "\n")
        self._lines.flush()
        reply = json.loads(self._lines.readline())
        assert reply["ok"], reply
        return reply

    def truth(self) -> dict[int, int]:
        return dict(self.do("truth")["connections"])

    def kill(self) -> None:
        """End it as a loss of power does."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Make it hang: connections stay, and nothing is answered. It is to be killed in the end."""
        self._process.send_signal(signal.SIGSTOP)

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


@pytest.fixture
@needs("process", "socket")
def start_twin() -> Iterator[Callable[..., TwinProcess]]:
    """Start twins as processes: `start_twin("telescent", "--size=8x8", "--speed=1000")`."""
    started: list[TwinProcess] = []

    def start(family: str, *options: str) -> TwinProcess:
        started.append(TwinProcess(family, *options))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture(scope="session")
@needs("process", "socket")
def shared_twin() -> Iterator[Callable[..., TwinProcess]]:
    """Yield twins as processes that many tests share: one a family and options, quiet and empty at first."""
    started: dict[tuple[str, ...], TwinProcess] = {}

    def share(family: str, *options: str) -> TwinProcess:
        if (family, *options) not in started:
            started[family, *options] = TwinProcess(family, *options)
        twin = started[family, *options]
        twin.do("clear_fault", fault="all")
        twin.do("operator", disconnect=[source for source, _ in twin.do("truth")["connections"]])
        return twin

    yield share
    for one in started.values():
        one.close()
