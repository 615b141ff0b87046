"""The command line as its users have it: a process, its exit code, what it prints."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from needs import needs

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


@pytest.fixture(scope="module")
@needs("process", "socket")
def up(tmp_path_factory):
    """Provide a lab of modelled hosts that is up, with its file."""
    from testbed.lab.inventory import load_lab, render_lab
    from testbed.lab.simulated.lifecycle import start_lab

    with start_lab(load_lab(ROOT / "labs" / "testbed12.yaml"), hosts="model") as lab:
        path = tmp_path_factory.mktemp("lab") / "lab.yaml"
        path.write_text(render_lab(lab.lab))
        yield lab, path


def held_by(up) -> frozenset[tuple[int, int]]:
    """Return what the switch really holds."""
    from testbed.lab.control import control

    truth = control(up[0].control["ocs1"], {"do": "truth"})
    return frozenset((source, output) for source, output in truth["connections"])


@pytest.fixture(scope="module")
def epochs(up, tmp_path_factory):
    """Provide, after one and after two topologies were applied, the directory of runs and what the switch held."""
    kept, runs = {}, tmp_path_factory.mktemp("epochs") / "runs"
    for epoch, words in ((1, ()), (2, ("--simplex",))):
        assert run_app(["apply", str(up[1]), "--runs-dir", str(runs), *words]) == 0
        kept[epoch] = shutil.copytree(runs, runs.with_name(f"kept-{epoch}")), held_by(up)
    return kept


@pytest.fixture
def after(up, epochs, runs):
    """Return a function that makes it as after so many epochs; it returns what the switch holds then."""

    def make(number: int) -> frozenset[tuple[int, int]]:
        from testbed.lab.control import control

        kept, wanted = epochs[number]
        held = held_by(up)
        ask = {"do": "operator", "disconnect": sorted(source for source, _ in held - wanted)}
        control(up[0].control["ocs1"], ask | {"connect": sorted(map(list, wanted - held))})
        assert held_by(up) == wanted
        shutil.copytree(kept, runs, dirs_exist_ok=True)
        return wanted

    return make


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
