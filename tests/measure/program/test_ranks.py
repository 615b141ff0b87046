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
from testbed.lab.hosts.launch import CommandResult
from testbed.lab.inventory import load_lab
from testbed.measure.program import ranks as ranks_module
from testbed.measure.program.ranks import LOST_EXIT_CODE, Program, Ranks, make_rank_variables, start_guards
from testbed.operate.engine.consent import allow_stop

pytestmark = pytest.mark.process
LAB = Path(__file__).parents[3] / "labs" / "testbed12.yaml"


class ProcessLaunch:
    """A `Launch` of processes of this machine instead of commands over SSH; guards and ranks are the real ones."""

    def __init__(self, commands, folder):
        self.events = queue.SimpleQueue()
        self.errors = {host: folder / f"{host}.stderr" for host in commands}
        self.processes = {
            host: subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command} 2>{self.errors[host]}"],
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

    def read_lines(self, timeout_s):
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

    def get_result(self, host):
        process = self.processes[host]
        process.wait(10)
        status = -1 if process.returncode < 0 else process.returncode
        return CommandResult(host, status, "", self.errors[host].read_text())

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
        # A folder for each host, since each guard removes its own at the end.
        self.copies = {}
        for host in "abcd":
            folder = self.copies[host] = self.folder / host
            folder.mkdir(parents=True)
            for name, content in files.items():
                (folder / name).write_bytes(content)
        return "FOLDER"

    def start(self, commands, *, keep_output):
        assert not keep_output
        commands = {
            host: command.replace("FOLDER", str(self.copies[host])) for host, command in commands.items()
        }
        launch = ProcessLaunch(commands, self.folder.parent)
        for host, after_s in self.lost.items():
            threading.Timer(after_s, launch.processes[host].kill).start()
        return launch


@pytest.fixture
def run(tmp_path):
    hosts = tuple(replace(host, python=sys.executable) for host in load_lab(LAB).hosts[:4])

    def start(script, lost=(), *, python=(), find_problem=lambda: "", **more):
        here = tuple(replace(host, python=dict(python).get(host.name, host.python)) for host in hosts)
        program = Program(("/bin/sh", "-c", script), here, {"SHARED": "yes"}, "run-1", **more)
        outputs = []
        ranks = Ranks(program, outputs.append, find_problem)
        fleet = ProcessFleet(tmp_path / "fleet", lost)
        ranks.run(start_guards(fleet, here), tmp_path / "ranks")
        assert not any(folder.exists() for folder in fleet.copies.values()) or lost or python
        return ranks, outputs

    return start


def test_every_rank_knows_its_number_and_its_output_is_kept(run, tmp_path):
    ranks, outputs = run('echo "$SHARED $RANK/$WORLD_SIZE on $TESTBED_HOST"; echo oops >&2')

    assert ranks.failed_result is None
    assert [each.exit_code for each in ranks.results] == [0, 0, 0, 0]
    assert [each.stdout for each in ranks.results] == [f"yes {n}/4 on {'abcd'[n]}\n" for n in range(4)]
    assert (tmp_path / "ranks" / "2-c.out").read_text() == "yes 2/4 on c\n"
    assert (tmp_path / "ranks" / "2-c.err").read_text() == "oops\n"
    assert {(each.host, each.is_error) for each in outputs} == {(h, e) for h in "abcd" for e in (False, True)}


def test_the_first_failure_stops_the_others(run):
    begin = time.monotonic()
    ranks, _ = run('trap "" TERM HUP; test $RANK = 2 && sleep 0.5 && exit 9; sleep 60')

    assert (ranks.failed_result.rank, ranks.failed_result.exit_code) == (2, 9)
    assert [each.exit_code for each in ranks.results] == [None, None, 9, None]
    # Those that were stopped report what they carried, too.
    assert all(set(each.counters_by_nic) == {"nic1", "nic2", "nic3", "nic4"} for each in ranks.results)
    assert ranks.results[0].problem == "stopped, because another rank had failed"
    assert time.monotonic() - begin < 30


def test_a_lost_host_counts_as_failed(run):
    ranks, _ = run("sleep 60", lost={"b": 0.5})

    assert (ranks.failed_result.rank, ranks.failed_result.exit_code) == (1, LOST_EXIT_CODE)
    assert ranks.failed_result.problem == "the connection to host b was lost"


def test_a_rank_that_does_not_start_says_why(run):
    ranks, _ = run("sleep 60", python={"c": "/nowhere/python"})

    assert (ranks.failed_result.rank, ranks.failed_result.exit_code) == (2, LOST_EXIT_CODE)
    assert "the rank did not start" in ranks.failed_result.problem
    assert "/nowhere/python" in ranks.failed_result.problem


def test_a_folder_that_is_named_and_missing_fails_the_rank(run, tmp_path):
    ranks, _ = run("pwd", folder=str(tmp_path / "missing"), needs_folder=True)

    assert ranks.failed_result.exit_code == 126
    assert "does not exist on this host" in ranks.failed_result.stderr
    assert ranks.failed_result.stdout == ""


def test_much_output_delays_neither_heartbeats_nor_the_end(run, monkeypatch):
    monkeypatch.setattr(ranks_module, "HEARTBEAT_TIMEOUT_S", 5.0)
    monkeypatch.setattr(ranks_module, "HEARTBEAT_INTERVAL_S", 0.1)
    ranks, outputs = run("i=0; while [ $i -lt 20000 ]; do echo $i; i=$((i+1)); done")

    assert ranks.failed_result is None
    assert len(outputs) == 4 * 20_000
    assert all(each.stdout.endswith("\n19999\n") for each in ranks.results)


def test_a_problem_such_as_a_lost_lease_stops_the_program(run):
    begin = time.monotonic()
    with pytest.raises(Interrupted, match="lease 1 has ended: the ranks of the program were stopped"):
        run("sleep 60", find_problem=lambda: "lease 1 has ended" if time.monotonic() > begin + 0.5 else "")


def test_a_program_whose_caller_is_cancelled_is_stopped(run):
    with allow_stop() as stop:
        threading.Timer(0.5, stop).start()
        # The timer's thread has a context of its own; the switch is shared.
        with pytest.raises(Interrupted):
            run("sleep 60")


def test_heartbeats_keep_quiet_ranks_alive(run, monkeypatch):
    monkeypatch.setattr(ranks_module, "HEARTBEAT_TIMEOUT_S", 3.0)
    monkeypatch.setattr(ranks_module, "HEARTBEAT_INTERVAL_S", 0.1)
    ranks, _ = run("sleep 3.5; echo done")

    assert [each.stdout for each in ranks.results] == ["done\n"] * 4


def test_launchers_find_the_rank_in_the_variables_that_they_know():
    hosts = load_lab(LAB).hosts[:3]
    variables = make_rank_variables(1, hosts, "run-1")

    assert variables["MASTER_ADDR"] == variables["PET_MASTER_ADDR"] == str(hosts[0].management)
    assert {variables[name] for name in ("RANK", "NODE_RANK", "PET_NODE_RANK", "OMPI_COMM_WORLD_RANK")} == {
        "1"
    }
    assert {variables[name] for name in ("WORLD_SIZE", "PET_NNODES", "OMPI_COMM_WORLD_SIZE")} == {"3"}
    assert variables["TESTBED_HOSTS"] == "a,b,c"
