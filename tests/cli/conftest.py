"""The command line as its users have it: a process, its exit code, what it prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from testbed.cli.output import run_app

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Ran:
    """One finished command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on standard output."""
        (line,) = self.out.splitlines()
        return json.loads(line)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "testbed.cli", *map(str, arguments)]


def environment(runs: Path) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "LIGHTBED_RUNS": str(runs), "PYTHONPATH": path}


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs"


@pytest.fixture
def testbed(runs, tmp_path):
    """Run `testbed` with these arguments in an empty directory."""

    def run(*arguments: object, timeout_s: float = 100) -> Ran:
        done = subprocess.run(
            command(*arguments),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            cwd=tmp_path,
            env=environment(runs),
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def testbed_here(runs, tmp_path, monkeypatch, capsys):
    """Return the same inside this process: no second of start-up, for commands that start nothing."""
    monkeypatch.setenv("LIGHTBED_RUNS", str(runs))
    monkeypatch.setenv(
        "NUMBA_DISABLE_JIT", "0"
    )  # the demo would set it, and later tests would be interpreted
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> Ran:
        code = run_app([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return run


@pytest.fixture
def start_testbed(runs, tmp_path):
    """Start `testbed` with these arguments in an empty directory, its standard error a pipe."""

    def start(*arguments: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=environment(runs),
        )

    return start
