"""The apply loop over a switch in memory that misbehaves: every report agrees with what the switch holds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ocs_drivers import planning, transaction
from ocs_drivers.contract import unguarded
from ocs_drivers.errors import (
    Conflict,
    ConnectionLost,
    DeviceError,
    PartialApply,
    SessionExpired,
    Timeout,
    UnknownPort,
    VerifyMismatch,
)
from ocs_drivers.model import Capabilities, CrossConnects, Snapshot, Status, Step
from ocs_drivers.transaction import judge

SIZE = 5


class Memory:
    """A switch without a wire. `faults` are used up one a step; `dead` means that no read works any more."""

    address = "memory://switch"

    def __init__(self, held=(), *, faults=(), atomic=False) -> None:
        self.held = CrossConnects(held)
        self.faults = list(faults)
        self.dead = False
        self.writes = 0
        self.reads = 0
        self.capabilities = Capabilities(SIZE, SIZE, atomic_whole=atomic, bulk_add=True)

    def read(self) -> Snapshot:
        self.reads += 1
        if self.dead:
            raise ConnectionLost("dead")
        return Snapshot(self.held, float(self.reads))

    def plan(self, target, seen, scope=None):
        return planning.plan(target, seen, capabilities=self.capabilities, scope=scope)

    def execute(self, step: Step, guard=unguarded):
        guard()
        self.writes += 1
        fault = self.faults.pop(0) if self.faults else "fine"
        changed = CrossConnects((self.held.pairs | step.after.pairs) - (step.before.pairs - step.after.pairs))
        if fault not in ("dropped", "refused", "lost before", "expired"):
            self.held = changed
        if fault == "stuck" and step.after.pairs & changed.pairs:
            self.held = CrossConnects(sorted(changed.pairs)[:-1])
        if fault == "dead":
            self.dead = True
        errors = {
            "refused": DeviceError("no", device_code="-221"),
            "expired": SessionExpired("gone"),
            "lost before": ConnectionLost("lost"),
            "lost after": ConnectionLost("lost"),
            "slow": Timeout("slow"),
            "dead": ConnectionLost("lost"),
        }
        error = errors.get(fault)
        if isinstance(error, ConnectionLost | Timeout):
            return transaction.judge_after_loss(step, error, self.read, device_s=0.0)
        return judge(step, self.read(), error=error)


def cc(**pairs) -> CrossConnects:
    return CrossConnects({int(name[1:]): output for name, output in pairs.items()})


def test_unchanged_target_sends_only_the_read():
    switch = Memory({1: 6})
    report = transaction.apply(switch, cc(i1=6))
    assert (switch.reads, switch.writes, report.changed, report.complete) == (1, 0, False, True)
    assert report.read_back == report.seen


def test_ports_are_checked_before_the_first_byte():
    switch = Memory()
    with pytest.raises(UnknownPort):
        transaction.apply(switch, cc(i1=99))
    assert (switch.reads, switch.writes) == (0, 0)


def test_a_change_by_somebody_else_is_a_conflict_that_names_the_ports():
    switch = Memory({1: 6, 2: 7})
    with pytest.raises(Conflict) as caught:
        transaction.apply(switch, cc(i1=8), expect=cc(i1=6))
    assert caught.value.ports == (2, 7)
    assert (caught.value.expected, caught.value.found) == ({1: 6}, {1: 6, 2: 7})
    assert switch.writes == 0


def failure(held, target, *faults, atomic=False, error):
    switch = Memory(held, faults=faults, atomic=atomic)
    with pytest.raises(error) as caught:
        transaction.apply(switch, CrossConnects(target))
    assert type(caught.value) is error
    return switch, caught.value


def test_a_dropped_command_is_a_mismatch_with_missing_and_extra():
    _, error = failure({1: 6}, {1: 7}, "dropped", atomic=True, error=VerifyMismatch)
    assert (error.missing, error.extra) == ({1: 7}, {1: 6})
    assert error.ports == (1, 6, 7)
    assert error.report.pairs == {(1, 6): Status.FAILED, (1, 7): Status.FAILED}


def test_a_stuck_pair_is_a_mismatch_that_names_it():
    _, error = failure({}, {1: 6, 2: 7}, "stuck", error=VerifyMismatch)
    assert (error.missing, error.extra) == ({2: 7}, {})
    assert error.report.pairs == {(1, 6): Status.DONE, (2, 7): Status.FAILED}


def test_a_refusal_that_changed_nothing_is_the_devices_own_error():
    switch, error = failure({1: 6}, {1: 7}, "refused", error=DeviceError)
    assert error.device_code == "-221"
    assert switch.writes == 1
    assert error.report.pairs == {(1, 6): Status.FAILED, (1, 7): Status.FAILED}


def test_a_lost_login_that_changed_nothing_is_its_own_error():
    _, error = failure({}, {1: 7}, "expired", error=SessionExpired)
    assert error.report.pairs == {(1, 7): Status.FAILED}


def test_a_refusal_after_a_removal_is_partial():
    _, error = failure({1: 6}, {1: 7}, "fine", "refused", error=PartialApply)
    assert error.report.pairs == {(1, 6): Status.DONE, (1, 7): Status.FAILED}
    assert isinstance(error.__cause__, DeviceError)
    assert "1->7" in str(error)
    assert "1 of 2 pairs done" in str(error)


def test_what_cannot_be_read_is_unknown():
    switch, error = failure({1: 6}, {1: 7}, "dead", error=PartialApply)
    assert error.report.pairs == {(1, 6): Status.UNKNOWN, (1, 7): Status.FAILED}
    assert error.report.read_back is None
    assert switch.writes == 1


def test_a_slow_device_that_has_not_done_it_yet_is_unknown():
    step = Step("add", cc(i1=6, i2=7), CrossConnects(), cc(i1=6, i2=7))
    outcome = judge(step, Snapshot(cc(i1=6), 0.0), error=Timeout("slow"))
    assert outcome.pairs == {(1, 6): Status.DONE, (2, 7): Status.UNKNOWN}
    assert outcome.status is Status.UNKNOWN


def test_a_lost_line_whose_command_was_done_is_done():
    switch = Memory({1: 6}, faults=["lost after", "lost after"])
    report = transaction.apply(switch, cc(i1=7))
    assert report.complete
    assert switch.writes == 2
    assert [type(outcome.error) for outcome in report.outcomes] == [ConnectionLost] * 2


def test_a_whole_switch_step_answers_for_what_somebody_else_left():
    step = Step("replace", cc(i1=6), CrossConnects(), cc(i1=6))
    outcome = judge(step, Snapshot(cc(i1=6, i2=7), 0.0))
    assert outcome.pairs == {(1, 6): Status.DONE, (2, 7): Status.FAILED}


def test_a_scoped_step_does_not_answer_for_others():
    step = Step("add", cc(i1=6), CrossConnects(), cc(i1=6))
    assert judge(step, Snapshot(cc(i1=6, i2=7), 0.0)).status is Status.DONE


configurations = st.permutations(range(SIZE + 1, 2 * SIZE + 1)).flatmap(
    lambda outputs: st.sets(st.integers(1, SIZE)).map(
        lambda inputs: CrossConnects({source: outputs[source - 1] for source in inputs})
    )
)
FAULTS = ["fine", "fine", "dropped", "refused", "lost before", "lost after", "slow", "stuck", "dead"]


def test_the_target_is_held_or_the_report_tells_the_truth():
    failures = dict.fromkeys((DeviceError, PartialApply, VerifyMismatch), 0)
    successes = 0

    @settings(max_examples=400)
    @given(configurations, configurations, st.lists(st.sampled_from(FAULTS), max_size=2), st.booleans())
    def check(held, target, faults, atomic):
        nonlocal successes
        switch = Memory(held, faults=faults, atomic=atomic)
        try:
            report = transaction.apply(switch, target)
        except (DeviceError, PartialApply, VerifyMismatch) as error:
            failures[type(error)] += 1
            report = error.report
        else:
            successes += 1
            assert switch.held == target
        for pair, status in report.pairs.items():
            as_wanted = (pair in switch.held.pairs) == (pair in target.pairs)
            assert status is Status.UNKNOWN or (status is Status.DONE) == as_wanted
        unreported = switch.held.pairs ^ report.seen.connections.pairs
        assert unreported <= set(report.pairs)

    check()
    assert successes >= 50
    assert min(failures.values()) >= 10
