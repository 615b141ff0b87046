"""Applying a plan: to a switch in memory for what cannot happen on demand, to the twin for what is on the wire."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from ocs_drivers import OcsError
from ocs_drivers.errors import ProtocolDesync, SwitchHeld
from ocs_drivers.model import Capabilities, CrossConnects, Status
from testbed.design.patching.wiring import make_wiring
from testbed.design.topology.circulants import find_topology
from testbed.errors import ApplyFailed, DriftError, JournalError, RefusedToMove
from testbed.operate.apply import apply_plan, check_permission
from testbed.operate.journal import Journal
from testbed.operate.plan import plan_lab

ROOT = Path(__file__).parents[2]
WIRING = make_wiring(find_topology(12, 4))


@pytest.fixture
def journal(tmp_path):
    with Journal(tmp_path / "journal.sqlite") as journal:
        yield journal


def test_a_dark_switch_is_brought_to_the_plan(testbed12, memory_switch, journal):
    switch = memory_switch()
    plan = plan_lab(testbed12, WIRING, {"ocs1": switch})
    result = apply_plan(testbed12, plan, {"ocs1": switch}, journal)
    assert switch.held == plan.switches[0].target
    assert result.reports["ocs1"].complete
    assert set(result.reports["ocs1"].pairs.values()) == {Status.DONE}
    assert result.outage_s == 0.02
    assert 0 < result.journal_s < result.total_s
    assert journal.read_state(result.operation) == "done"
    assert [step["outcome"] for step in journal.read_steps(result.operation)] == ["done"]


def test_a_plan_without_changes_reads_and_writes_nothing(testbed12, memory_switch, journal):
    switch = memory_switch()
    apply_plan(testbed12, plan_lab(testbed12, WIRING, {"ocs1": switch}), {"ocs1": switch}, journal)
    plan = plan_lab(testbed12, WIRING, {"ocs1": switch})
    reads, writes = switch.reads, switch.writes
    result = apply_plan(testbed12, plan, {"ocs1": switch}, journal)
    assert (switch.reads - reads, switch.writes - writes) == (1, 0)
    assert not result.reports["ocs1"].changed
    assert journal.read_steps(result.operation) == ()


def test_the_intent_is_written_before_the_first_byte(testbed12, memory_switch, journal):
    seen_by_the_device = []

    def look(step):
        with Journal(journal.path) as other:
            seen_by_the_device.append([row["outcome"] for row in other.read_steps(operation_of(other))])
        return step.after

    def operation_of(other):
        with other._engine.connect() as connection:
            return connection.exec_driver_sql("select id from operations").scalar_one()

    switch = memory_switch(obey=look)
    plan = plan_lab(testbed12, WIRING, {"ocs1": switch})
    apply_plan(testbed12, plan, {"ocs1": switch}, journal)
    assert seen_by_the_device == [[None]]


def test_drift_names_ports_and_links_and_sends_nothing(testbed12, memory_switch, journal):
    switch = memory_switch(held=CrossConnects({1: 53}))
    plan = plan_lab(testbed12, WIRING, {"ocs1": switch})
    switch.held = CrossConnects({2: 53})
    with pytest.raises(DriftError) as caught:
        apply_plan(testbed12, plan, {"ocs1": switch}, journal)
    assert "-1->53 (a/nic1 -> b/nic1)" in str(caught.value)
    assert "+2->53 (a/nic2 -> b/nic1)" in str(caught.value)
    assert "nothing was sent" in str(caught.value)
    assert switch.writes == 0


def test_circuits_that_were_not_made_are_named(testbed12, memory_switch, journal):
    switch = memory_switch(obey=lambda step: CrossConnects(step.after.pairs - {(1, 53), (48, 92)}))
    plan = plan_lab(testbed12, WIRING, {"ocs1": switch})
    with pytest.raises(ApplyFailed) as caught:
        apply_plan(testbed12, plan, {"ocs1": switch}, journal)
    message = str(caught.value)
    assert "ocs1: 46 done, 2 failed: 1->53 (a/nic1 -> b/nic1), 48->92 (l/nic4 -> k/nic4)" in message
    assert "Run `testbed plan`" in message
    assert journal.read_state(caught.value.result.operation) == "failed"


def test_a_circuit_to_be_kept_that_somebody_took_away_meanwhile_is_named(testbed12, memory_switch, journal):
    """No step names it, and all steps are done."""
    switch = memory_switch(
        held=CrossConnects({1: 53}),
        obey=lambda step: CrossConnects(step.after.pairs - {(1, 53)}),
        capabilities=Capabilities(48, 48, bulk_add=True),
    )
    plan = plan_lab(testbed12, WIRING, {"ocs1": switch})
    with pytest.raises(ApplyFailed, match=r"ocs1: 47 done, 1 failed: 1->53 \(a/nic1 -> b/nic1\)") as caught:
        apply_plan(testbed12, plan, {"ocs1": switch}, journal)
    assert [row["outcome"] for row in journal.read_steps(caught.value.result.operation)] == ["done"]
    assert journal.read_state(caught.value.result.operation) == "failed"


def test_a_switch_that_cannot_be_read_afterwards_leaves_circuits_unknown(testbed12, memory_switch, journal):
    switch = memory_switch(blind_after=True)
    plan = plan_lab(testbed12, WIRING, {"ocs1": switch})
    with pytest.raises(
        ApplyFailed, match=r"ocs1: 0 done, 48 unknown: 1->53 \(a/nic1 -> b/nic1\), "
    ) as caught:
        apply_plan(testbed12, plan, {"ocs1": switch}, journal)
    (row,) = journal.read_steps(caught.value.result.operation)
    assert (row["outcome"], row["read_back"]) == ("unknown", None)


def test_nothing_is_sent_after_a_step_of_which_nobody_knows_what_became(testbed12, memory_switch, journal):
    switch = memory_switch(
        held=CrossConnects({1: 57}), blind_after=True, capabilities=Capabilities(48, 48, bulk_add=True)
    )
    plan = plan_lab(testbed12, WIRING, {"ocs1": switch})
    assert [step.kind for step in plan.switches[0].steps] == ["remove", "add"]
    with pytest.raises(ApplyFailed) as caught:
        apply_plan(testbed12, plan, {"ocs1": switch}, journal)
    assert switch.writes == 1
    assert [row["outcome"] for row in journal.read_steps(caught.value.result.operation)] == ["unknown"]


def test_without_a_written_intent_nothing_is_sent(testbed12, memory_switch, journal, monkeypatch):
    def full(*_):
        raise JournalError("the journal cannot be written (disk full)")

    switch = memory_switch()
    plan = plan_lab(testbed12, WIRING, {"ocs1": switch})
    monkeypatch.setattr(journal, "store_intent", full)
    with pytest.raises(
        ApplyFailed, match=r"ocs1: 0 done, 48 failed: .* \(because the journal cannot be written"
    ):
        apply_plan(testbed12, plan, {"ocs1": switch}, journal)
    assert switch.writes == 0


def two_planes(lab):
    """Return the lab's NICs 1-2 on ocs1 and 3-4 on ocs2."""
    second = replace(lab.switches[0], name="ocs2")

    def moved(end):
        return replace(end, switch="ocs2")

    hosts = tuple(
        replace(
            host,
            nics=tuple(
                replace(nic, transmit=moved(nic.transmit), receive=moved(nic.receive)) if k >= 2 else nic
                for k, nic in enumerate(host.nics)
            ),
        )
        for host in lab.hosts
    )
    return replace(lab, hosts=hosts, switches=(lab.switches[0], second))


def split_wiring():
    """Return links of the 12-host topology that stay on one side of `two_planes`."""
    links = tuple(link for link in WIRING.links if (link.source.index < 2) == (link.target.index < 2))
    return replace(WIRING, links=links)


def test_when_one_switch_vanishes_the_other_is_still_accounted_for(testbed12, memory_switch, journal):
    lab = two_planes(testbed12)
    gone = memory_switch(address="memory://ocs2", capabilities=memory_switch().capabilities)
    switches = {"ocs1": memory_switch(), "ocs2": gone}
    plan = plan_lab(lab, split_wiring(), switches)
    original = gone.execute

    def vanish(step, guard=None):
        gone.unreachable = True
        return original(step, guard)

    gone.execute = vanish
    with pytest.raises(ApplyFailed) as caught:
        apply_plan(lab, plan, switches, journal)
    message = str(caught.value)
    made = len(plan.switches[0].target)
    assert f"ocs1: {made} done; ocs2: 0 done, {len(plan.switches[1].target)} failed: " in message
    assert "(because memory://ocs2: nobody answers)" in message
    assert made > 0
    assert switches["ocs1"].held == plan.switches[0].target
    outcomes = [(row["switch"], row["outcome"]) for row in journal.read_steps(caught.value.result.operation)]
    assert outcomes == [("ocs1", "done")]


def test_a_switch_that_cannot_be_read_stops_all_before_anything_moves(testbed12, memory_switch, journal):
    lab = two_planes(testbed12)
    switches = {"ocs1": memory_switch(), "ocs2": memory_switch(address="memory://ocs2")}
    plan = plan_lab(lab, split_wiring(), switches)
    switches["ocs2"].unreachable = True
    with pytest.raises(OcsError, match="nobody answers"):
        apply_plan(lab, plan, switches, journal)
    assert [switch.writes for switch in switches.values()] == [0, 0]


subsets = st.sets(st.sampled_from(range(48)))


@pytest.mark.slow
def test_the_account_is_the_truth(testbed12, memory_switch, journal):
    """Whatever part of a command a switch carries out, the report's pairs agree with what it really holds."""
    target = sorted(plan_lab(testbed12, WIRING, {"ocs1": memory_switch()}).switches[0].target.items())
    ends = Counter()

    @settings(max_examples=40)
    @given(made=subsets, kept=subsets, blind=st.booleans(), before=subsets)
    def holds(made, kept, blind, before):
        def obey(step):
            done = {pair for k, pair in enumerate(target) if k in made}
            inputs, outputs = {i for i, _ in done}, {o for _, o in done}
            left = {pair for k, pair in enumerate(sorted(step.before.pairs)) if k in kept}
            return CrossConnects(done | {(i, o) for i, o in left if i not in inputs and o not in outputs})

        held = CrossConnects({i + 1: 96 - i for i in before})
        switch = memory_switch(held=held, obey=obey, blind_after=blind)
        plan = plan_lab(testbed12, WIRING, {"ocs1": switch})
        try:
            result, end = apply_plan(testbed12, plan, {"ocs1": switch}, journal), "done"
        except ApplyFailed as failed:
            result, end = failed.result, "unknown" if blind else "failed"
        ends[end] += 1
        pairs = result.reports["ocs1"].pairs
        if blind:
            assert set(pairs.values()) == {Status.UNKNOWN}
            return
        for pair, status in pairs.items():
            assert (status is Status.DONE) == (
                (pair in switch.held.pairs) == (pair in plan.switches[0].target.pairs)
            )
        assert (end == "done") == (switch.held == plan.switches[0].target)

    holds()
    assert min(ends["unknown"], ends["failed"]) >= 10


CRASH = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from conftest import MemorySwitch, TESTBED12
from testbed.design.topology.circulants import find_topology
from testbed.design.patching.wiring import make_wiring
from testbed.lab.inventory import load_lab
from testbed.operate.apply import apply_plan
from testbed.operate.journal import Journal
from testbed.operate.plan import plan_lab
lab, switch = load_lab(TESTBED12), MemorySwitch(obey=lambda step: os.kill(os.getpid(), signal.SIGKILL))
plan = plan_lab(lab, make_wiring(find_topology(12, 4)), {"ocs1": switch})
apply_plan(lab, plan, {"ocs1": switch}, Journal(sys.argv[1]))
"""


@pytest.mark.process
def test_a_kill_in_the_middle_of_an_apply_is_found_and_settled_by_the_next(
    testbed12, memory_switch, tmp_path
):
    path = tmp_path / "journal.sqlite"
    killed = subprocess.run(
        [sys.executable, "-c", CRASH, path, Path(__file__).parent],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'plugins'}"},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    with Journal(path) as journal:
        (step,) = journal.find_open_steps()
        assert (step.status, len(step.after)) == (Status.UNKNOWN, 48)
        switch = memory_switch()
        plan = plan_lab(testbed12, WIRING, {"ocs1": switch})
        apply_plan(testbed12, plan, {"ocs1": switch}, journal)
        assert journal.find_open_steps() == ()
        assert journal.read_steps(step.operation)[0]["outcome"] == "failed"  # the switch was still as before


def test_a_real_lab_moves_only_when_named(testbed12):
    real = replace(testbed12, simulated=False, name="oxford")
    check_permission(testbed12, None)
    check_permission(real, "oxford")
    with pytest.raises(
        RefusedToMove, match=r"'oxford' is real hardware: pass --really-move oxford to change it"
    ):
        check_permission(real, None)
    with pytest.raises(RefusedToMove, match="'--really-move testbed12' names another lab"):
        check_permission(real, "testbed12")


# On the wire, against the twin.


@pytest.mark.long
def test_a_whole_configuration_takes_three_round_trips(modelled, switches, journal, caplog):
    plan = plan_lab(modelled.lab, WIRING, switches)
    with caplog.at_level(logging.DEBUG, logger="ocs_drivers.wire"):
        result = apply_plan(modelled.lab, plan, switches, journal)
    sent = [record.getMessage() for record in caplog.records if " > " in record.getMessage()]
    assert len(sent) == 3, sent
    assert "stat?" in sent[0].lower()
    assert re.search(r"conn:only .*;\*opc\?", sent[1].lower())
    assert "stat?" in sent[2].lower()
    assert "err?" in sent[2].lower()
    assert 0.02 <= result.outage_s < result.total_s
    assert dict(switches["ocs1"].read().connections) == dict(plan.switches[0].target)


def test_a_second_operator_between_plan_and_apply_is_a_conflict(modelled, switches, journal, ask_twin):
    plan = plan_lab(modelled.lab, WIRING, switches)
    ask_twin("operator", connect=[[7, 90]])
    with pytest.raises(DriftError, match=r"ocs1: \+7->90 \(b/nic3 -> k/nic2\); nothing was sent"):
        apply_plan(modelled.lab, plan, switches, journal)
    assert ask_twin("truth")["connections"] == [[7, 90]]


FAULTS = {
    "the command is ignored in silence": ("drop_command", {"count": 1}, Status.FAILED),
    "the line breaks before the command is heard": (
        "close_connection",
        {"after_commands": 2, "executed": False},
        Status.FAILED,
    ),
    "the line breaks after the command was done": ("close_connection", {"after_commands": 2}, Status.DONE),
}


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_after_a_fault_on_the_wire_every_pair_is_what_the_twin_says(
    modelled, switches, journal, ask_twin, fault
):
    name, details, expected = FAULTS[fault]
    said = ""
    plan = plan_lab(modelled.lab, WIRING, switches)
    ask_twin("set_fault", fault=name, **details)
    try:
        result = apply_plan(modelled.lab, plan, switches, journal)
    except ApplyFailed as failed:
        result, said = failed.result, str(failed)
    assert ("48 failed: 1->53 (a/nic1 -> b/nic1), " in said) == (expected is Status.FAILED)
    assert set(result.reports["ocs1"].pairs.values()) == {expected}
    held = {tuple(pair) for pair in ask_twin("truth")["connections"]}
    assert held == (plan.switches[0].target.pairs if expected is Status.DONE else set())


def test_garbage_in_the_comparing_read_stops_before_anything_moves(modelled, switches, journal, ask_twin):
    plan = plan_lab(modelled.lab, WIRING, switches)
    ask_twin("set_fault", fault="garbage", count=99)
    with pytest.raises(ProtocolDesync):
        apply_plan(modelled.lab, plan, switches, journal)
    assert ask_twin("truth")["connections"] == []


def test_a_stuck_pair_is_named_and_the_rest_is_done(modelled, switches, journal, ask_twin):
    plan = plan_lab(modelled.lab, WIRING, switches)
    ask_twin("set_fault", fault="stuck", pair=[1, 53])
    with pytest.raises(ApplyFailed, match=r"ocs1: 47 done, 1 failed: 1->53 \(a/nic1 -> b/nic1\)"):
        apply_plan(modelled.lab, plan, switches, journal)


def test_what_the_journal_read_back_is_what_the_twin_holds(modelled, switches, journal, ask_twin):
    plan = plan_lab(modelled.lab, WIRING, switches)
    result = apply_plan(modelled.lab, plan, switches, journal)
    (row,) = journal.read_steps(result.operation)
    kept = {(int(source), output) for source, output in json.loads(row["read_back"]).items()}
    assert kept == {tuple(pair) for pair in ask_twin("truth")["connections"]}
    assert row["address"] == modelled.lab.switches[0].address


@pytest.mark.process
def test_another_operation_on_the_same_switch_is_refused(testbed12, memory_switch, journal):
    """From the comparing read to the proving read a switch belongs to one operation of this machine."""
    switch = memory_switch()
    plan = plan_lab(testbed12, WIRING, {"ocs1": switch})
    hold = (
        "import sys; from ocs_drivers.engine.device_lock import DeviceLock; "
        "DeviceLock(sys.argv[1]).__enter__(); print('held'); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-uc", hold, f"{switch.address}#operation"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(SwitchHeld):
            apply_plan(testbed12, plan, {"ocs1": switch}, journal)
        other.communicate("\n", timeout=60)

    assert switch.writes == 0


def test_a_move_that_the_journal_could_not_record_is_unknown_not_lost(
    testbed12, memory_switch, journal, monkeypatch
):
    def full(*_arguments):
        raise JournalError("the journal cannot be written (disk full)")

    monkeypatch.setattr(journal, "store_outcome", full)
    switch = memory_switch()
    plan = plan_lab(testbed12, WIRING, {"ocs1": switch})

    with pytest.raises(ApplyFailed, match="disk full") as caught:
        apply_plan(testbed12, plan, {"ocs1": switch}, journal)

    assert caught.value.result.reports["ocs1"].read_back.connections == plan.switches[0].target
