"""An apply that is killed, wherever, is finished by `testbed resume`, and `testbed history` tells of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from testbed.lab.control import send_request

ROOT = Path(__file__).resolve().parents[2]

KILLED = """
import os, signal, sys
from ocs_drivers.engine.step_execution import StepExecution
from testbed.operate.engine.step_log import StepLog
from testbed.operate.intent import IntentLog
from testbed.operate.session import LabSession
at, *arguments = sys.argv[1:]

def die(*_arguments, **_options):
    os.kill(os.getpid(), signal.SIGKILL)

run = StepExecution.run
if at == "plan":
    IntentLog.store = die
elif at == "intent":
    StepLog.store_intents = die
elif at == "sent":
    StepExecution.run = die
elif at == "moved":
    StepExecution.run = lambda self: die(run(self))
elif at == "routes":
    LabSession.install_routes = die
elif at == "proof":
    LabSession.verify = die
from testbed.cli.app import run_app
run_app(arguments)
"""


@pytest.fixture
def ask_twin(up):
    """Ask the twin of the switch."""
    return lambda do, **details: send_request(up[0].control_addresses["ocs1"], {"do": do, **details})


@pytest.fixture
def killed(runs):
    """Return a function that runs `testbed` in a process that is killed at a point."""

    def run(at, *arguments):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, at, *map(str, arguments)],
            cwd=ROOT,
            env=os.environ | {"LIGHTBED_RUNS": str(runs)},
            capture_output=True,
            check=False,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr

    return run


def held(ask_twin):
    return {tuple(pair) for pair in ask_twin("truth")["connections"]}


def step_states(testbed, lab_file):
    *_, operation = testbed("journal", lab_file, "--json").json["operations"]
    return operation["state"], [step["state"] for step in operation["steps"]]


@pytest.mark.parametrize(
    ("at", "left"),
    [
        pytest.param("intent", ["planned"], marks=pytest.mark.long),
        ("sent", ["intent"]),
        pytest.param("moved", ["intent"], marks=pytest.mark.long),
        pytest.param("routes", ["observed"], marks=pytest.mark.long),
        ("proof", ["observed"]),
    ],
)
def test_an_apply_that_was_killed_is_finished(testbed, lab_file, killed, ask_twin, after, at, left):
    first = after(1)
    killed(at, "apply", lab_file, "--simplex")
    assert step_states(testbed, lab_file) == ("killed", left)
    assert held(ask_twin) == first or at in ("moved", "routes", "proof")
    resumed = testbed("resume", lab_file, "--json")
    assert (resumed.code, resumed.json["state"], resumed.json["epoch"]) == (0, "verified", 2)
    assert resumed.json["unfinished"] == []
    now, states = step_states(testbed, lab_file)
    assert now == "done"
    assert states[-1] == "verified"
    assert len(held(ask_twin) - first) >= 12
    newest, oldest = testbed("history", lab_file, "--json").json["epochs"]
    assert (newest["id"], newest["operation"], newest["verified"]) == (2, resumed.json["operation"], True)
    assert (oldest["id"], oldest["verified"], newest["why"]) == (1, True, "--simplex")
    (change,) = newest["changes"]
    assert len(change["made"]) == len(held(ask_twin) - first)
    again = testbed("resume", lab_file, "--json")
    assert (again.code, again.json["operation"], again.json["state"]) == (0, None, "none")


def test_an_apply_that_was_killed_in_its_proof_is_named_and_a_clean_verify_completes_it(
    testbed, lab_file, killed, after
):
    after(1)
    killed("proof", "apply", lab_file, "--simplex")
    for command in (("plan",), ("history",), ("path", "a", "b", "--lab")):
        (left,) = testbed(*command, lab_file, "--json").json["unfinished"]
        assert "the apply of epoch 2, begun " in left["detail"]
        assert "was killed in its proof" in left["detail"]
        assert left["hint"].startswith("run `testbed verify`")
    verified = testbed("verify", lab_file, "--json")
    assert (verified.code, verified.json["ok"], verified.json["unfinished"]) == (0, True, [])
    assert (verified.json["epoch_state"], verified.json["notes"]) == ("verified", ["epoch 2 is verified now"])
    assert testbed("history", lab_file, "--json").json["epochs"][0]["verified"]
    assert step_states(testbed, lab_file)[0] == "done"


def test_a_verify_with_findings_leaves_the_proof_unfinished(testbed, lab_file, killed, ask_twin, after):
    after(1)
    killed("proof", "apply", lab_file, "--simplex")
    source, output = min(held(ask_twin))
    ask_twin("operator", disconnect=[source])
    told = testbed("verify", lab_file, "--json")
    assert told.code == 2
    assert {one["kind"] for one in told.json["findings"]} >= {"unfinished", "missing_circuit"}
    assert testbed("plan", lab_file, "--json").json["unfinished"] != []
    ask_twin("operator", connect=[[source, output]])
    assert testbed("verify", lab_file, "--json").json["notes"] == ["epoch 2 is verified now"]


def test_an_apply_that_was_killed_before_anything_was_planned_is_no_operation_to_resume(
    testbed, lab_file, killed
):
    killed("plan", "apply", lab_file, "--simplex")
    assert step_states(testbed, lab_file) == ("killed", [])
    resumed = testbed("resume", lab_file, "--json").json
    assert (resumed["state"], resumed["reason"]) == ("none", "it had sent nothing: run its command again")
    assert resumed["unfinished"] == []


def test_a_switch_that_somebody_patched_meanwhile_is_left_to_a_person(
    testbed, lab_file, killed, ask_twin, after
):
    after(1)
    killed("intent", "apply", lab_file, "--simplex")
    moved = min(held(ask_twin))
    ask_twin("operator", disconnect=[moved[0]])
    before = held(ask_twin)
    resumed = testbed("resume", lab_file, "--json")
    assert (resumed.code, resumed.json["state"]) == (2, "unknown")
    assert f"ocs1 no longer holds {moved[0]}->{moved[1]}" in resumed.json["reason"]
    assert held(ask_twin) == before, "nothing was sent"
    assert testbed("apply", lab_file, "--simplex").code == 0
    assert testbed("resume", lab_file, "--json").json["state"] == "none"


def test_an_operation_that_nobody_began_is_refused_by_its_code(testbed, lab_file):
    refused = testbed("resume", lab_file, "20260101T000000-000000", "--json")
    assert (refused.code, refused.json["error"]["code"]) == (1, "operation.none")
