"""The command line as its users have it: its exit code, what it prints; in this process, or in one of its own."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from needs import needs

from sim.lab.inventory import find_labs
from testbed.cli.app import run_app
from testbed.lab.simulated.supervisor import run_sim_lab_query

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


@pytest.fixture(scope="session")
@needs("process", "socket")
def up(tmp_path_factory):
    """Provide a lab of modelled hosts that is up, with its file: the one lab of all tests of this room."""
    from testbed.lab.inventory import load_lab, render_lab
    from testbed.lab.simulated.lifecycle import start_lab

    with start_lab(load_lab(ROOT / "labs" / "testbed12.yaml"), hosts="model") as lab:
        path = tmp_path_factory.mktemp("lab") / "lab.yaml"
        path.write_text(render_lab(lab.lab))
        yield lab, path


def held_by(up) -> frozenset[tuple[int, int]]:
    """Return what the switch really holds."""
    from testbed.lab.control import send_request

    truth = send_request(up[0].control_addresses["ocs1"], {"do": "truth"})
    return frozenset((source, output) for source, output in truth["connections"])


@pytest.fixture
def lab_file(up):
    """Provide the file of the lab, whose switch is dark."""
    make_dark(up)
    return up[1]


def make_dark(up) -> None:
    from testbed.lab.control import send_request

    send_request(up[0].control_addresses["ocs1"], {"do": "operator", "disconnect": list(range(1, 49))})


@pytest.fixture(scope="session")
def epochs(up, tmp_path_factory):
    """Provide, after one and after two topologies were applied, the directory of runs and what the switch held."""
    make_dark(up)
    kept, runs = {}, tmp_path_factory.mktemp("epochs") / "runs"
    for epoch, words in ((1, ()), (2, ("--simplex",))):
        assert run_app(["apply", str(up[1]), "--runs-dir", str(runs), *words]) == 0
        kept[epoch] = shutil.copytree(runs, runs.with_name(f"kept-{epoch}")), held_by(up)
    return kept


@pytest.fixture
def after(up, epochs, runs):
    """Return a function that makes it as after so many epochs; it returns what the switch holds then."""

    def make(number: int) -> frozenset[tuple[int, int]]:
        from testbed.lab.control import send_request

        kept, wanted = epochs[number]
        held = held_by(up)
        ask = {"do": "operator", "disconnect": sorted(source for source, _ in held - wanted)}
        send_request(up[0].control_addresses["ocs1"], ask | {"connect": sorted(map(list, wanted - held))})
        assert held_by(up) == wanted
        shutil.copytree(kept, runs, dirs_exist_ok=True)
        return wanted

    return make


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs"


def _ask_about_labs(arguments: list[str]) -> Any:
    """Answer `--status` in this process: every command asks twice, each time with a process of half a second."""
    if arguments != ["--status"]:
        return run_sim_lab_query(arguments)
    return [lab.as_json() for lab in find_labs()]


@contextmanager
def _own_state(runs: Path, folder: Path) -> Iterator[None]:
    """Give a command what a process of its own would have, and put everything back that it changes."""
    variables, cwd = dict(os.environ), Path.cwd()
    handlers = {
        number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    }
    log = logging.getLogger()
    log_state = log.level, list(log.handlers)
    os.environ["LIGHTBED_RUNS"] = str(runs)
    # The demo would set it, and later tests would be interpreted.
    os.environ["NUMBA_DISABLE_JIT"] = "0"
    os.chdir(folder)
    try:
        with (
            warnings.catch_warnings(),
            Path(os.devnull).open() as nothing,
            pytest.MonkeyPatch.context() as patch,
        ):
            patch.setattr(sys, "stdin", nothing)
            patch.setattr("testbed.lab.simulated.lifecycle.run_sim_lab_query", _ask_about_labs)
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        log.setLevel(log_state[0])
        log.handlers[:] = log_state[1]
        os.environ.clear()
        os.environ.update(variables)
        os.chdir(cwd)


@pytest.fixture
def testbed(runs, tmp_path, capsys, monkeypatch):
    """Run `testbed` with these arguments in an empty directory, inside this process."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> Ran:
        capsys.readouterr()
        with _own_state(runs, tmp_path):
            code = run_app([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return run


@pytest.fixture
@needs("process")
def testbed_process(runs, tmp_path):
    """Run the real program in an empty directory: for what only a process shows."""

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
