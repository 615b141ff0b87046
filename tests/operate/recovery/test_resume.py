"""Operations that are no plain apply and were killed: a trial is put back, a repair is finished, others are named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from ocs_drivers.model import CrossConnects, PendingMove, Snapshot
from testbed.lab.model import make_shard
from testbed.operate.confirmation import ConfirmationLog
from testbed.operate.design import build_design, build_intent_design
from testbed.operate.intent import load_intents
from testbed.operate.journal import open_journal
from testbed.operate.plan import list_circuits
from testbed.operate.recovery.records import load_operations
from testbed.operate.recovery.resume import find_unfinished, resume
from testbed.operate.session import LabSession
from testbed.operate.unfinished import find_unfinished_operations
from testbed.operation_errors import OperationRunning, OperationSuperseded

ROOT = Path(__file__).parents[3]
OPERATE = Path(__file__).parents[1]

KILLED = """
import json, os, signal, sys
sys.path.insert(0, sys.argv[1])
from conftest import MemorySwitch, TESTBED12
from ocs_drivers.model import CrossConnects
from testbed.lab.inventory import load_lab
from testbed.operate.session import Change
from testbed.operate.intent import TopologySource
from testbed.operate.journal import open_journal
from testbed.operate.design import build_design
from testbed.operate.session import LabSession
from testbed.operate.narrow import change_circuits

def die(*_arguments, **_options):
    print(json.dumps(dict(switch.held)), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

what, runs = sys.argv[2:]
lab = load_lab(TESTBED12)
design = build_design(lab)
switch = MemorySwitch(held=CrossConnects({1: 53}))
session = LabSession(lab, {"ocs1": switch}, None, open_journal(runs))
if what == "trial":
    with change_circuits(session, design, "ocs1", {1: 60}, lambda _text: None):
        die()
elif what == "repair":
    session.bring_up(design)
    LabSession.apply = die
    other = build_design(lab, simplex=True)
    session.carry_out(
        other,
        session.plan(other),
        topology_source=TopologySource("repair of epoch 1", None, 1),
        change=Change("repair", detour_design=design),
    )
"""


@pytest.fixture
def killed(tmp_path):
    """Return a function that runs something in a process that is killed, and gives what its switch held then."""

    def run(what):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, OPERATE, what, tmp_path],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'plugins'}"},
            capture_output=True,
            check=False,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
        return CrossConnects({int(source): output for source, output in json.loads(done.stdout).items()})

    return run


@pytest.fixture
def journal(tmp_path):
    with open_journal(tmp_path) as journal:
        yield journal


@pytest.mark.process
def test_a_trial_that_was_killed_is_named_and_put_back(killed, testbed12, memory_switch, tmp_path):
    held = killed("trial")
    assert held == CrossConnects({1: 60})
    (left,) = find_unfinished_operations(tmp_path, testbed12)
    assert left.detail.startswith("a trial of `testbed verify --narrow` that was killed, begun ")
    switch = memory_switch(held=CrossConnects({**held, 2: 61}))
    with open_journal(tmp_path) as journal:
        found = find_unfinished(tmp_path, testbed12, None)
        resumed = resume(LabSession(testbed12, {"ocs1": switch}, None, journal), found, None)
    assert (resumed.operation, resumed.state) == (left.operation, "done")
    assert switch.held == CrossConnects({1: 53, 2: 61}), "and what others have made meanwhile stays"
    assert find_unfinished_operations(tmp_path, testbed12) == ()
    (record,) = load_operations(tmp_path, testbed12.name)
    assert (record.state, record.kind) == ("done", "trial")


@pytest.mark.process
def test_a_repair_that_was_killed_after_its_detours_is_named_and_finished(
    killed, testbed12, memory_switch, tmp_path
):
    held = killed("repair")
    (left,) = find_unfinished_operations(tmp_path, testbed12)
    assert "the apply of epoch 2" in left.detail
    assert (left.intent.topology_source.repaired_epoch, left.were_circuits_in_place) == (1, False)
    switch = memory_switch(held=held)
    with open_journal(tmp_path) as journal:
        session = LabSession(testbed12, {"ocs1": switch}, None, journal)
        here, design = build_intent_design(testbed12, left.intent)
        resumed = resume(session, find_unfinished(tmp_path, here, None), design)
    assert (resumed.state, resumed.epoch) == ("verified", 2)
    planned = {(c.input_port, c.output_port) for c in list_circuits(testbed12, design.wiring)}
    assert switch.held.pairs == planned
    (_, record) = load_operations(tmp_path, testbed12.name)
    assert (record.kind, record.state) == ("repair", "done")


def test_what_waits_for_a_decision_is_not_decided_by_resume(testbed12, memory_switch, journal, tmp_path):
    switch = memory_switch()
    session = LabSession(testbed12, {"ocs1": switch}, None, journal)
    session.bring_up(build_design(testbed12))
    session.bring_up(build_design(testbed12, simplex=True))
    confirmations = ConfirmationLog(journal, testbed12.name)
    confirmations.request(2, 1, 60.0)
    confirmations.change_state(2, ("requested",), "failed", reason="no answer")
    switch.held, writes = CrossConnects(), switch.writes
    resumed = resume(session, find_unfinished(tmp_path, testbed12, None), None)
    assert resumed.state == "unknown"
    assert resumed.reason.endswith("see `testbed history`, then `testbed rollback`")
    assert switch.writes == writes, "nothing was sent"


def test_an_operation_of_a_living_process_is_nobody_else_s(testbed12, journal, tmp_path):
    with (
        journal.open_operation(testbed12.name) as operation,
        pytest.raises(OperationRunning, match="is running"),
    ):
        find_unfinished(tmp_path, testbed12, operation)
    with (
        journal.open_operation(testbed12.name) as operation,
        pytest.raises(OperationRunning),
        journal.open_operation(testbed12.name, resumed_operation=operation),
    ):
        pass


def fail_before_routes(lab, switch, journal):
    """Apply, and fail when the circuits stand."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LabSession, "install_routes", lambda *_arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            LabSession(lab, {"ocs1": switch}, None, journal).bring_up(build_design(lab), take_over=True)


def test_an_apply_whose_hosts_were_given_to_others_is_not_gone_on_with(
    testbed12, memory_switch, journal, tmp_path
):
    switch = memory_switch()
    fail_before_routes(testbed12, switch, journal)
    shard = make_shard(testbed12, "abcdef")
    LabSession(shard, {"ocs1": switch}, None, journal).bring_up(build_design(shard), take_over=True)
    with pytest.raises(OperationSuperseded, match="newer epochs exist for all hosts but g, h, i, j, k, l"):
        find_unfinished(tmp_path, testbed12, None)


@pytest.mark.slow
def test_a_switch_that_is_still_at_work_is_waited_for(testbed12, memory_switch, journal, tmp_path):
    """A robot goes on with its queue after the process that filled it has died."""
    switch = memory_switch()
    fail_before_routes(testbed12, switch, journal)
    at_work = replace(Snapshot(switch.held, 0.0), pending=(PendingMove("connect", (1, 53)),))
    reads = [at_work, at_work]
    really = switch.read
    switch.read = lambda: reads.pop() if reads else really()
    found = find_unfinished(tmp_path, testbed12, None)
    here, design = build_intent_design(testbed12, found.intent)
    notes = []
    resumed = resume(LabSession(here, {"ocs1": switch}, None, journal), found, design, notes.append)
    assert resumed.state == "verified"
    assert notes[0] == "memory://ocs1 is executing 1 move: waiting"
    assert load_intents(tmp_path, testbed12.name)[0].state == "verified"


def test_a_switch_that_never_comes_to_rest_is_left_to_a_person(testbed12, memory_switch, journal, tmp_path):
    switch = memory_switch()
    fail_before_routes(testbed12, switch, journal)
    switch.read = lambda: replace(Snapshot(switch.held, 0.0), pending=(PendingMove("connect", (1, 53)),))
    switch.capabilities = replace(switch.capabilities, switch_time_s=(0.01, 0.01))
    found = find_unfinished(tmp_path, testbed12, None)
    here, design = build_intent_design(testbed12, found.intent)
    writes = switch.writes
    resumed = resume(LabSession(here, {"ocs1": switch}, None, journal), found, design)
    assert (resumed.state, switch.writes) == ("unknown", writes)
    assert resumed.reason.startswith("ocs1 is still executing 1 move. Nothing was sent.")
