"""Faults to plant: their rows, a copy of the checkout to plant them in, and what the named test says there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import IO
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[2]
ROWS = Path(__file__).parent
ENVIRONMENTS = (".venv", ".venv-host")
RUN_S, END_S = 540.0, 15.0


@dataclass(frozen=True)
class Fault:
    """A row: `before`, which stands once in `file`, becomes `after`, and the test `found_by` fails."""

    room: str
    file: str
    before: str
    after: str
    found_by: str
    harm: str
    """The damage to a user."""
    alone: bool = False
    """The test shares something of the machine with others, as network namespaces: one such test at a time."""

    @property
    def name(self) -> str:
        return f"{self.room}: {self.harm}"


def read_rows() -> list[Fault]:
    """Return the rows of every room, in the order of the files."""
    return [
        Fault(path.stem, **row)
        for path in sorted(ROWS.glob("*.toml"))
        for row in tomllib.loads(path.read_text(encoding="utf-8"))["fault"]
    ]


FAULTS = read_rows()


@dataclass(frozen=True)
class Verdict:
    """The outcome of a run of tests: which passed, which this machine cannot run, and of each other one the message."""

    output: str
    passed: frozenset[str] = frozenset()
    skipped: frozenset[str] = frozenset()
    failed: Mapping[str, str] = field(default_factory=dict)


class Copy:
    """The checkout without what git ignores, in a folder of its own, where tests import the copied packages."""

    def __init__(self, folder: Path, lock: Path) -> None:
        self.tree = folder / "tree"
        self._folder, self._lock, self._runs, self._planted = folder, lock, 0, 0
        shutil.copytree(ROOT, self.tree, ignore=ignored, symlinks=True)
        for name in ENVIRONMENTS:
            if (ROOT / name).exists():
                (self.tree / name).symlink_to(ROOT / name)

    @contextlib.contextmanager
    def with_fault(self, fault: Fault) -> Iterator[None]:
        """Plant the fault, with a time of its own for the file, by which bytecode and kernels know it."""
        path = self.tree / fault.file
        sound, status = path.read_text(encoding="utf-8"), path.stat()
        self._planted += 1
        later_ns = status.st_mtime_ns + self._planted * 10**9
        path.write_text(sound.replace(fault.before, fault.after), encoding="utf-8")
        os.utime(path, ns=(status.st_atime_ns, later_ns))
        try:
            yield
        finally:
            path.write_text(sound, encoding="utf-8")
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def test(self, tests: Sequence[str], *options: str, alone: bool = False) -> Verdict:
        """Run tests in the copy, each that shares something of the machine while no other worker does."""
        report = self._folder / f"report-{self._runs}.xml"
        command = [sys.executable, "-m", "pytest", *tests, f"--junitxml={report}"]
        command += ["-q", "-n", "0", "-m", "", "-p", "no:cacheprovider", *options]
        with self._lock.open("w") as lock:
            if alone:
                fcntl.flock(lock, fcntl.LOCK_EX)
            output = self.run(command)
        return read_report(report, output)

    def run(self, command: Sequence[str]) -> str:
        """Run a program with the copy as its working tree and return its output; nothing of it stays behind."""
        self._runs += 1
        with (self._folder / f"output-{self._runs}").open("w+", encoding="utf-8", errors="replace") as output:
            process = subprocess.Popen(
                command,
                cwd=self.tree,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                process.wait(RUN_S)
            except subprocess.TimeoutExpired:
                output.write(f"\nended after {RUN_S:g} s\n")
            finally:
                end_group(process)
            return read_all(output)

    def environment(self) -> dict[str, str]:
        """Return an environment that imports from the copy in every process, with a new cache of numba."""
        foreign = ("PYTEST_", "COV_", "COVERAGE_", "HYPOTHESIS_", "PYTHON")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        return kept | {
            "PYTHONPATH": str(self.tree),
            "NUMBA_CACHE_DIR": str(self._folder / f"kernels-{self._runs}"),
            "XDG_CACHE_HOME": str(self._folder / "cache"),
        }


def ignored(folder: str, names: list[str]) -> set[str]:
    """Return the names in a folder that git ignores, and git's own."""
    lines = [*(ROOT / ".gitignore").read_text(encoding="utf-8").split(), "/.git"]
    return {
        name
        for name in names
        for line in lines
        if fnmatch(name, line.strip("/")) and (not line.startswith("/") or Path(folder) == ROOT)
    }


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Interrupt what is left of a process and its children, so that tests clean up, then end it."""
    for signum, wait_s in ((signal.SIGINT, END_S), (signal.SIGKILL, END_S)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signum)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(wait_s)


def read_all(output: IO[str]) -> str:
    output.seek(0)
    return output.read()


def read_report(report: Path, output: str) -> Verdict:
    """Read what pytest wrote; a run that was ended leaves no report, and nothing in it passed or failed."""
    cases = list(ET.parse(report).iter("testcase")) if report.exists() else []
    found: dict[str, dict[str, str]] = {"passed": {}, "skipped": {}, "failed": {}}
    for case in cases:
        tags = {part.tag for part in case}
        became = "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"
        said = "\n".join(
            f"{part.get('message')}\n{part.text}" for part in case if part.tag in {"failure", "error"}
        )
        found[became][f"{case.get('classname')}.{case.get('name')}"] = said
    return Verdict(output, frozenset(found["passed"]), frozenset(found["skipped"]), found["failed"])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test of one fault every fault, and a test of one room every room."""
    if "fault" in metafunc.fixturenames:
        metafunc.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
    if "room" in metafunc.fixturenames:
        metafunc.parametrize("room", sorted({fault.room for fault in FAULTS}))


@pytest.fixture(scope="session")
def faults() -> list[Fault]:
    """Return all rows."""
    return FAULTS


@pytest.fixture(scope="session")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copy]:
    """Yield one copy for each worker; it goes when the worker ends, as it is as large as the checkout."""
    folder = tmp_path_factory.mktemp("planted")
    base = tmp_path_factory.getbasetemp()
    yield Copy(folder, (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "planted.lock")
    shutil.rmtree(folder)


_STARTED_S = time.monotonic()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many faults were found, of those whose tests this machine can run."""
    found, missed = (
        sum(
            "test_the_named_test_finds_the_fault" in report.nodeid
            for report in terminalreporter.getreports(outcome)
        )
        for outcome in ("passed", "failed")
    )
    if found or missed:
        terminalreporter.write_line(
            f"planted faults: found {found} of {found + missed} in {time.monotonic() - _STARTED_S:.0f} s"
        )
