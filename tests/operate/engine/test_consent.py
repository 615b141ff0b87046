"""Ctrl-C once stops between two steps, twice at once; the emergency stop holds before every write."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from ocs_drivers.model import Capabilities, CrossConnects
from testbed.design.model import Wiring
from testbed.errors import Interrupted
from testbed.operate import apply
from testbed.operate.apply import apply_plan
from testbed.operate.design import build_design
from testbed.operate.engine.consent import EmergencyStop, stop_on_interrupt
from testbed.operate.engine.transitions import StepState
from testbed.operate.journal import open_journal
from testbed.operate.model import LabPlan, SwitchPlan
from testbed.operate.plan import plan_lab
from testbed.operate.recovery.records import load_operations
from testbed.operate.session import LabSession
from testbed.operation_errors import OperationStopped


@pytest.fixture
def journal(tmp_path):
    with open_journal(tmp_path) as journal:
        yield journal


@pytest.fixture
def two_steps(testbed12, memory_switch):
    """Return a function that makes a switch that removes, then adds, and a plan for it."""

    def make(during=lambda: None):
        def obey(step):
            during()
            return step.after

        switch = memory_switch(
            held=CrossConnects({1: 57}), obey=obey, capabilities=Capabilities(48, 48, bulk_add=True)
        )
        plan = plan_lab(testbed12, build_design(testbed12).wiring, {"ocs1": switch})
        assert [step.kind for step in plan.switches[0].steps] == ["remove", "add"]
        return switch, plan

    return make


def press_ctrl_c(times=1):
    for _ in range(times):
        os.kill(os.getpid(), signal.SIGINT)


def states(tmp_path, lab):
    (operation,) = load_operations(tmp_path, lab.name)
    return operation.state, [step.state.value for step in operation.steps]


def test_the_first_ctrl_c_stops_between_two_steps(testbed12, two_steps, journal, tmp_path):
    notes = []
    switch, plan = two_steps(press_ctrl_c)
    with (
        stop_on_interrupt(notes.append),
        pytest.raises(Interrupted, match="1 step done and read back, 1 not started"),
    ):
        apply_plan(testbed12, plan, {"ocs1": switch}, journal)
    assert switch.writes == 1
    assert switch.held == CrossConnects(), "the step under way was finished"
    assert states(tmp_path, testbed12) == ("failed", ["observed", "planned"])
    assert len(notes) == 1


def test_the_second_ctrl_c_marks_the_step_under_way_as_unknown(testbed12, two_steps, journal, tmp_path):
    switch, plan = two_steps(lambda: press_ctrl_c(2))
    with stop_on_interrupt(lambda _text: None), pytest.raises(KeyboardInterrupt):
        apply_plan(testbed12, plan, {"ocs1": switch}, journal)
    assert switch.writes == 1
    assert states(tmp_path, testbed12) == ("interrupted", ["unknown", "planned"])


def test_nobody_waits_for_other_switches_after_the_second_ctrl_c(testbed12, memory_switch, journal, tmp_path):
    """One switch is done while a robot beside it goes on: the step of the robot is unknown."""
    goes_on, begun, noted = threading.Event(), threading.Event(), threading.Event()

    def robot(step):
        begun.set()
        goes_on.wait(30)
        return step.after

    def quick(step):
        begun.wait(30)
        press_ctrl_c()
        noted.wait(30)
        press_ctrl_c()
        return step.after

    second = replace(testbed12.switches[0], name="ocs2")
    lab = replace(testbed12, switches=(*testbed12.switches, second))
    switches = {"ocs1": memory_switch(obey=quick), "ocs2": memory_switch(address="memory://ocs2", obey=robot)}
    target = CrossConnects({1: 53})
    parts = tuple(
        SwitchPlan(name, target, None, switch.read(), switch.plan(target, switch.read()))
        for name, switch in switches.items()
    )
    with stop_on_interrupt(lambda _text: noted.set()), pytest.raises(KeyboardInterrupt):
        apply_plan(lab, LabPlan(Wiring(0, 0, simplex=True, links=()), (), parts), switches, journal)
    (operation,) = load_operations(tmp_path, lab.name)
    (step,) = operation.list_steps("ocs2")
    assert (operation.state, step.state.value, step.json()["outcome"]) == (
        "interrupted",
        "unknown",
        "unknown",
    )
    goes_on.set()


def test_ctrl_c_between_circuits_and_routes_leaves_an_epoch_to_resume(testbed12, memory_switch, journal):
    switch = memory_switch(obey=lambda step: press_ctrl_c() or step.after)
    session = LabSession(testbed12, {"ocs1": switch}, None, journal)
    with stop_on_interrupt(lambda _text: None), pytest.raises(Interrupted, match="before the hosts' routes"):
        session.bring_up(build_design(testbed12))
    with stop_on_interrupt(lambda _text: None):
        switch.obey = None
        assert session.bring_up(build_design(testbed12)).verify_report.ok, (
            "an old Ctrl-C does not stop what comes later"
        )


def test_a_stop_in_the_middle_of_an_apply_holds_before_the_next_step(testbed12, two_steps, journal, tmp_path):
    latch = EmergencyStop(tmp_path, testbed12.name)
    switch, plan = two_steps(lambda: latch.activate("smoke"))
    with pytest.raises(
        OperationStopped, match=r"stopped lab 'testbed12' at .* UTC \(smoke\): nothing is sent"
    ):
        apply_plan(testbed12, plan, {"ocs1": switch}, journal)
    assert switch.writes == 1
    assert states(tmp_path, testbed12)[1] == ["observed", "planned"]
    assert latch.release()
    assert not latch.release()


def test_a_stop_of_which_only_the_file_could_be_made_holds_too(tmp_path):
    latch = EmergencyStop(tmp_path, "a lab/of ours")
    latch.path.touch()
    with pytest.raises(OperationStopped, match="lab 'a lab/of ours' is stopped: nothing is sent"):
        latch.check()


def test_no_host_of_a_stopped_lab_is_configured(testbed12, journal, tmp_path, monkeypatch):
    monkeypatch.setattr(apply, "install", lambda *_arguments: pytest.fail("sent"))
    EmergencyStop(tmp_path, testbed12.name).activate("smoke")
    part = SimpleNamespace(host="a", install_command="ip -batch -", batch_text="")
    with pytest.raises(OperationStopped, match="smoke"), journal.open_operation(testbed12.name) as operation:
        apply.install_hosts(testbed12, None, {"a": part}, journal, operation)
    assert states(tmp_path, testbed12) == ("failed", [])


def test_the_events_of_an_operation_give_its_states_again(testbed12, two_steps, journal, tmp_path):
    switch, plan = two_steps()
    result = apply_plan(testbed12, plan, {"ocs1": switch}, journal)
    journal.record_proof(result.operation, is_proven=True)
    (operation,) = load_operations(tmp_path, testbed12.name)
    held = {(step.device, step.ordinal): step.state for step in operation.steps}
    assert journal.step_log.replay(result.operation) == held
    assert set(held.values()) == {StepState.VERIFIED}
