"""Ranks of a program: their variables, what happens if one fails, and their files. Hosts are processes here."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("asyncssh")

from testbed.errors import Interrupted
from testbed.lab.inventory import load_lab
from testbed.measure.program import ranks
from testbed.measure.program.ranks import LOST, Program, rank_variables, run_program
from testbed.operate.engine.consent import stoppable

pytestmark = pytest.mark.process
LAB = Path(__file__).parents[3] / "labs" / "testbed12.yaml"


class ProcessLaunch:
    """A `Launch` of processes of this machine instead of commands over SSH; guards and ranks are the real ones."""

    def __init__(self, commands):
        self.events = queue.SimpleQueue()
        self.processes = {
            host: subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
            for host, command in commands.items()
        }
        self.readers = {
            host: threading.Thread(target=self._read, args=(host, process), daemon=True)
            for host, process in self.processes.items()
        }
        for reader in self.readers.values():
            reader.start()

    def _read(self, host, process):
        for line in process.stdout:
            self.events.put((host, line.rstrip("\n")))

    @property
    def running(self):
        return tuple(host for host, reader in self.readers.items() if reader.is_alive())

    def lines(self, timeout_s):
        deadline = time.monotonic() + timeout_s
        while self.running or not self.events.empty():
            try:
                yield self.events.get(timeout=max(0.0, min(0.05, deadline - time.monotonic())))
            except queue.Empty:
                if time.monotonic() >= deadline:
                    return

    def send(self, text, host=None):
        for name, process in self.processes.items():
            if host in (None, name):
                with suppress(OSError, ValueError):
                    process.stdin.write(text)

    def close_input(self):
        for process in self.processes.values():
            with suppress(OSError):
                process.stdin.close()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close_input()
        for process in self.processes.values():
            process.wait(10)
            process.stdout.close()


class ProcessFleet:
    """A `Fleet` whose hosts are this machine; `lost` are hosts whose connection breaks after this time."""

    def __init__(self, folder, lost=()):
        self.folder, self.lost = folder, dict(lost)

    def put(self, files):
        for name, content in files.items():
            (self.folder / name).write_bytes(content)
        return str(self.folder)

    def start(self, commands):
        launch = ProcessLaunch(commands)
        for host, after_s in self.lost.items():
            threading.Timer(after_s, launch.processes[host].kill).start()
        return launch


@pytest.fixture
def run(tmp_path):
    hosts = tuple(replace(host, python=sys.executable) for host in load_lab(LAB).hosts[:4])
    (tmp_path / "fleet").mkdir()

    def start(script, lost=(), **more):
        program = Program(("/bin/sh", "-c", script), hosts, {"SHARED": "yes"}, "run-1", **more)
        outputs = []
        result = run_program(
            ProcessFleet(tmp_path / "fleet", lost), program, tmp_path / "ranks", outputs.append
        )
        return result, outputs

    return start


def test_every_rank_knows_its_number_and_its_output_is_kept(run, tmp_path):
    result, outputs = run('echo "$SHARED $RANK/$WORLD_SIZE on $TESTBED_HOST"; echo oops >&2')

    assert result.failure is None
    assert [each.exit_code for each in result.ranks] == [0, 0, 0, 0]
    assert [each.stdout for each in result.ranks] == [f"yes {n}/4 on {'abcd'[n]}\n" for n in range(4)]
    assert (tmp_path / "ranks" / "2-c.out").read_text() == "yes 2/4 on c\n"
    assert (tmp_path / "ranks" / "2-c.err").read_text() == "oops\n"
    assert {(each.host, each.is_error) for each in outputs} == {(h, e) for h in "abcd" for e in (False, True)}


def test_the_first_failure_stops_the_others(run):
    begin = time.monotonic()
    result, _ = run('test $RANK = 2 && exit 9; trap "" TERM HUP; sleep 60')

    assert (result.failure.rank, result.failure.exit_code) == (2, 9)
    assert [each.exit_code for each in result.ranks] == [None, None, 9, None]
    assert result.ranks[0].problem == "stopped, because another rank had failed"
    assert time.monotonic() - begin < 30


def test_a_lost_host_counts_as_failed(run):
    result, _ = run("sleep 60", lost={"b": 0.5})

    assert (result.failure.rank, result.failure.exit_code) == (1, LOST)
    assert result.failure.problem == "the connection to host b was lost"


def test_a_program_whose_caller_is_cancelled_is_stopped(run):
    with stoppable() as stop:
        threading.Timer(0.5, stop).start()
        # The timer's thread has a context of its own; the switch is shared.
        with pytest.raises(Interrupted):
            run("sleep 60")


def test_heartbeats_keep_quiet_ranks_alive(run, monkeypatch):
    monkeypatch.setattr(ranks, "DEADLINE_S", 1.0)
    monkeypatch.setattr(ranks, "BEAT_S", 0.1)
    result, _ = run("sleep 1.8; echo done")

    assert [each.stdout for each in result.ranks] == ["done\n"] * 4


def test_launchers_find_the_rank_in_the_variables_that_they_know():
    hosts = load_lab(LAB).hosts[:3]
    variables = rank_variables(1, hosts, "run-1", "10.0.0.1")

    assert variables["MASTER_ADDR"] == variables["PET_MASTER_ADDR"] == "10.0.0.1"
    assert {variables[name] for name in ("RANK", "NODE_RANK", "PET_NODE_RANK", "OMPI_COMM_WORLD_RANK")} == {
        "1"
    }
    assert {variables[name] for name in ("WORLD_SIZE", "PET_NNODES", "OMPI_COMM_WORLD_SIZE")} == {"3"}
    assert variables["TESTBED_HOSTS"] == "a,b,c"
    assert rank_variables(0, hosts, "run-1", "")["MASTER_ADDR"] == "a"
