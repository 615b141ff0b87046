"""A pytest plugin that records what each test and fixture costs: `build/test-times.json`.

Processor time counts this process, its threads, and all its descendants, so that a lab or a twin is charged to the
test (or the fixture) during which it computes. Programs that leave the process tree are missed; a lab does not.

The file holds one entry per lane; `tools/test_times.py` prints it.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_SHORT_S = 0.02
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
TIMES = Path(__file__).resolve().parents[2] / "build" / "test-times.json"


def _read_descendants_s(pid: int) -> float:
    """Return the processor time in s of the live descendants of a process, and of their children that ended."""
    total_s = 0.0
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 (paths would take three times as long)
    except OSError:
        return 0.0
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children") as file:  # noqa: PTH123
                children = file.read().split()
        except OSError:
            continue
        for child in children:
            try:
                with open(f"/proc/{child}/stat") as file:  # noqa: PTH123
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            total_s += sum(map(int, fields[11:15])) * _TICK_S  # utime, stime, cutime, cstime
            total_s += _read_descendants_s(int(child))
    return total_s


def read_processor_s() -> float:
    """Return the processor time in s that this process and its descendants, live and waited for, took so far."""
    try:  # the usual test has no children, which one system call says
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return sum(os.times()[:4])
    return sum(os.times()[:4]) + _read_descendants_s(os.getpid())


class _Recorder:
    """Collects one process's figures; those of workers travel on their reports."""

    def __init__(self) -> None:
        self._spent_s = read_processor_s()
        self._slow_fixtures_s = 0.0
        self._unread_s = 0.0
        self.fixtures: list[tuple[str, str, float, float]] = []

    def _take_processor_s(self) -> float:
        """Return the processor time since the last call; 0 if a lab ended and took what it had spent with it."""
        before, self._spent_s = self._spent_s, read_processor_s()
        return max(self._spent_s - before, 0.0)

    def pytest_collection_finish(self) -> None:
        self._take_processor_s()  # of collection, which no test is charged with

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        began_s = time.perf_counter()
        try:
            return (yield)
        finally:
            wall_s = time.perf_counter() - began_s
            # Its processor time is that since the last slow fixture, or since the end of the last phase.
            if wall_s >= 0.05:
                fixture_s = self._take_processor_s()
                self._slow_fixtures_s += fixture_s
                name = f"{fixturedef.baseid}::{fixturedef.argname} ({fixturedef.scope})"
                self.fixtures.append((name, request.node.nodeid, wall_s, fixture_s))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        return (yield from self._phase(item, "setup"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        return (yield from self._phase(item, "call"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        return (yield from self._phase(item, "teardown"))

    def _phase(self, item: pytest.Item, phase: str) -> Iterator[None]:
        began_s, self._slow_fixtures_s = time.perf_counter(), 0.0
        try:
            return (yield)
        finally:
            # Looking takes a millisecond where labs run: short phases are charged together, to the last of them.
            wall_s, spent_s = time.perf_counter() - began_s, self._slow_fixtures_s
            self._unread_s += wall_s
            if self._unread_s >= _SHORT_S:
                spent_s += self._take_processor_s()
                self._unread_s = 0.0
            item.stash[_PHASE] = (phase, wall_s, spent_s)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        report = yield
        phase = item.stash.get(_PHASE, None)
        report.spent = phase[1:] if phase and phase[0] == report.when else (report.duration, 0.0)
        report.fixtures, self.fixtures = (
            (self.fixtures, []) if report.when == "teardown" else ([], self.fixtures)
        )
        return report


_PHASE = pytest.StashKey[tuple[str, float, float]]()


class _Collector:
    """Adds up the reports of all workers, and writes the lane's entry at the end."""

    def __init__(self, lane: str, path: Path) -> None:
        self._lane, self._path = lane, path
        self._began = time.perf_counter()
        self._tests: dict[str, list[float]] = {}
        self._fixtures: list[list[Any]] = []
        self._failed: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self._failed[report.nodeid] = None
        wall_s, processor_s = getattr(report, "spent", (report.duration, 0.0))
        spent = self._tests.setdefault(report.nodeid, [0.0, 0.0])
        spent[0] += wall_s
        spent[1] += processor_s
        self._fixtures += map(list, getattr(report, "fixtures", ()))

    def pytest_sessionfinish(self) -> None:
        """Write the entry; `processor_s` is that of everything that ran, collection included."""
        entry = {
            "tests": len(self._tests),
            "wall_s": time.perf_counter() - self._began,
            "ended_s": time.time(),
            "processor_s": sum(os.times()[:4]),
            "failed": list(self._failed),
            "each": {name: [round(value, 4) for value in spent] for name, spent in self._tests.items()},
            "fixtures": [
                [name, test, round(wall, 3), round(cpu, 3)] for name, test, wall, cpu in self._fixtures
            ],
        }
        self._path.parent.mkdir(exist_ok=True)
        with self._path.with_suffix(".lock").open("w") as lock:  # lanes may run beside one another
            fcntl.flock(lock, fcntl.LOCK_EX)
            lanes = json.loads(self._path.read_text()) if self._path.is_file() else {}
            self._path.write_text(json.dumps(lanes | {self._lane: entry}))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lane", help="record what the tests cost under this name in build/test-times.json")
    parser.addoption("--times", type=Path, default=TIMES, help="record it in this file instead")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--lane") is None:
        return
    config.pluginmanager.register(_Recorder())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Collector(config.getoption("--lane"), config.getoption("--times")))
