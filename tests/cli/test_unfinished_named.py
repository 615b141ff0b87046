"""Every command on a lab names the operations that were left unfinished: a key for programs, a line for people."""

from __future__ import annotations

import json
import shutil
import sqlite3

import click
import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from testbed.cli.app import build_app
from testbed.commands.lab import discover as discover_command
from testbed.commands.measure.job import yield_job_lines
from testbed.measure.plan_job import PlanRun
from testbed.operate.choice import find_running_design
from testbed.operate.discovery.model import DiscoveryResult
from testbed.operate.named_topology import NamedTopology

LEFT = "20260101T000000-d15c07"
"""A discovery that was killed, a circuit of which may stand on a switch that nobody has read since."""
LINE = f"unfinished: {LEFT}: a discovery of fibres that was killed"

COMMANDS = {
    "plan": "plan LAB",
    "plan: only the patch list": "plan LAB --patch-list",
    "apply": "apply LAB",
    "verify": "verify LAB",
    "path": "path LAB a b",
    "discover": "discover LAB -o OUT --force",
    "repair": "repair LAB",
    "resume": "resume LAB",
    "rollback": "rollback LAB",
    "confirm": "confirm LAB",
    "stop: release": "stop LAB --release",
    "stop": "stop LAB",
    "history": "history LAB",
    "journal": "journal LAB",
    "env": "env LAB",
    "env: for a shell": "env LAB --shell",
    "drift": "drift LAB",
    "schedule": "schedule JOBS --lab LAB",
    "nccl": "nccl LAB --sizes 1KiB:1KiB",
    "lease request": "lease request LAB host:a",
    "lease list": "lease list LAB",
    "lease extend": "lease extend LAB LEASE",
    "lease release": "lease release LAB LEASE",
    "lease break": "lease break LAB LEASE --reason test",
    "maintenance": "maintenance on LAB",
    "maintenance: off": "maintenance off LAB",
}
ELSEWHERE = {
    "demo": "runs for minutes: tests/cli/test_demo.py",
    "reproduce": "runs jobs on the lab for minutes, as `schedule --run` does, which names them",
    "job": "needs a plan and hosts: its text is tested by itself",
    "run": "needs hosts: tests/measure/program/test_run_on_kernel_hosts.py",
    "sim up": "begins a lab, of which nothing is known yet",
}


@pytest.fixture(scope="module")
def lab_file(up):
    return up[1]


@pytest.fixture(scope="module")
def runs(epochs, tmp_path_factory):
    """Provide a directory of runs with two epochs and a killed discovery."""
    runs = shutil.copytree(epochs[2][0], tmp_path_factory.mktemp("runs") / "runs")
    columns = "id, lab, owner, state, started, problem, down, circuits, rounds"
    problem, circuits = json.dumps({"nics": [["a", "nic1"]]}), json.dumps([[[["ocs9", 1], ["ocs9", 2]]]])
    row = (LEFT, "testbed12", "1 gone/0", "running", "2026-01-01T00:00:00", problem, "[]", circuits, "[]")
    with sqlite3.connect(runs / "lightbed.sqlite") as connection:
        connection.execute(f"insert into discoveries ({columns}) values (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    connection.close()
    return runs


@pytest.fixture
def run(testbed, lab_file, runs, tmp_path, monkeypatch):
    """Return a function that runs a command and returns what it printed."""
    monkeypatch.setattr(discover_command, "_discover", lambda *_arguments: DiscoveryResult((), 0))

    def run(text, *options):
        jobs = tmp_path / "jobs.yaml"
        jobs.write_text(
            "jobs: [{name: one, period_ms: 10, bursts: [{start_ms: 0, length_ms: 2, gbps: 5}], workers: 2}]"
        )
        known = {"LAB": str(lab_file), "OUT": str(tmp_path / "out.yaml"), "JOBS": str(jobs)}
        words = [known.get(word) or (lease(run) if word == "LEASE" else word) for word in text.split()]
        return testbed(*words, "--runs-dir", runs, *options)

    return run


def lease(run):
    """Return a lease that is held."""
    (found,) = json.loads(run("lease request LAB host:b", "--json").out)["leases"]
    return found["id"]


def let_wait_for_a_confirmation(runs):
    values = "('testbed12', 2, 1, 3600, 'armed', 'me', '', '1 gone/0', '', '', '')"
    with sqlite3.connect(runs / "lightbed.sqlite") as connection:
        connection.execute(f"insert or replace into confirmations values {values}")
    connection.close()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_names_what_was_left_unfinished(run, runs, name):
    if name == "confirm":
        let_wait_for_a_confirmation(runs)
    document = json.loads(run(COMMANDS[name], "--json").out)
    assert LEFT in [one["operation"] for one in document.get("unfinished", ())], document
    if name == "confirm":
        let_wait_for_a_confirmation(runs)
    printed = run(COMMANDS[name])
    assert LINE in printed.out + printed.err
    if name == "stop":
        run("stop LAB --release")
    if name.startswith("lease"):
        for one in json.loads(run("lease list LAB", "--json").out)["leases"]:
            run(f"lease break LAB {one['id']} --reason test")


def test_a_job_names_it_too(lab_file, runs):
    meant = find_running_design(lab_file, NamedTopology(), runs)
    done = PlanRun(
        times_s=(1.0,),
        predicted_iteration_s=1.0,
        size_factor=1.0,
        links=(),
        counters_before={},
        processor_load=0.0,
    )
    assert [line for line in yield_job_lines(meant, done) if line.startswith(LINE)]


@pytest.mark.slow
def test_the_table_has_every_command_on_a_lab_that_has_a_journal():
    def of(command, name):
        group = getattr(command, "commands", None)
        if group is None:
            return [(name, {param.name for param in command.params})]
        context = click.Context(command)
        inner = [(command.get_command(context, each), f"{name} {each}".strip()) for each in group]
        return [found for each in inner for found in of(*each)]

    known = {"lab_file", "bare"}
    on_labs = {name for name, params in of(build_app(), "") if params & known and "runs_dir" in params}
    assert on_labs == {name.partition(":")[0] for name in COMMANDS} | ELSEWHERE.keys()
