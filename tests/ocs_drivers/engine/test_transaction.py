"""The apply loop over a switch in memory that misbehaves: every report agrees with what the switch holds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ocs_drivers.contract import allow_all
from ocs_drivers.engine import planning, transaction
from ocs_drivers.engine.transaction import judge_step
from ocs_drivers.errors import (
    Conflict,
    ConnectionLost,
    DeviceError,
    OcsError,
    PartialApply,
    PortBusy,
    SessionExpired,
    Timeout,
    UnknownPort,
    VerifyMismatch,
)
from ocs_drivers.model import Capabilities, CrossConnects, PendingMove, Snapshot, Status, Step

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

    def execute(self, step: Step, guard=allow_all):
        guard()
        self.writes += 1
        fault = self.faults.pop(0) if self.faults else "fine"
        changed = self._obeying(step)
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
            return self._after_loss(step, error)
        return judge_step(step, self.read(), error=error)

    def _after_loss(self, step: Step, error: OcsError):
        """Judge by reading where that is possible; the command is not sent again."""
        try:
            return judge_step(step, self.read(), error=error)
        except ConnectionLost:
            return judge_step(step, None, error=error)

    def _obeying(self, step: Step) -> CrossConnects:
        """Return what is held after the command: it names pairs, and leaves all others as they are."""
        if step.kind == "replace":
            return step.after
        if step.kind == "remove":
            return CrossConnects(self.held.pairs - step.pairs.pairs)
        return CrossConnects(self.held.pairs | step.pairs.pairs)


def cc(**pairs) -> CrossConnects:
    return CrossConnects({int(name[1:]): output for name, output in pairs.items()})


ADDING = Step("add", CrossConnects({1: 7}), CrossConnects({2: 8}), CrossConnects({1: 7, 2: 8}), 0.1)


@pytest.mark.parametrize("taken", [(1, 9), (3, 7)])
def test_a_step_conflicts_with_whoever_took_one_of_its_ports(taken):
    found = CrossConnects({(2, 8), taken})
    with pytest.raises(Conflict) as caught:
        transaction.check_ports_unmoved(ADDING, found, device="memory://switch")
    assert caught.value.ports == tuple(sorted(taken))


@pytest.mark.parametrize("found", [{2: 8, 3: 9}, {}])
def test_what_others_do_with_other_ports_stops_no_step(found):
    transaction.check_ports_unmoved(ADDING, CrossConnects(found), device="memory://switch")


def test_unchanged_target_sends_only_the_read():
    switch = Memory({1: 6})
    report = transaction.apply(switch, cc(i1=6))
    assert (switch.reads, switch.writes, report.changed, report.complete) == (1, 0, False, True)
    assert report.read_back == report.initial


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
    assert (caught.value.expected, caught.value.actual) == ({1: 6}, {1: 6, 2: 7})
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
    outcome = judge_step(step, Snapshot(cc(i1=6), 0.0), error=Timeout("slow"))
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
    outcome = judge_step(step, Snapshot(cc(i1=6, i2=7), 0.0))
    assert outcome.pairs == {(1, 6): Status.DONE, (2, 7): Status.FAILED}


def test_a_scoped_step_does_not_answer_for_others():
    step = Step("add", cc(i1=6), CrossConnects(), cc(i1=6))
    assert judge_step(step, Snapshot(cc(i1=6, i2=7), 0.0)).status is Status.DONE


def meddled_with(change, held, target, scope=None):
    """Return the switch and the error after an apply, just before whose first write somebody else changes it."""
    switch = Memory(held)

    def guard() -> None:
        if not switch.writes:
            switch.held = change(switch.held)

    with pytest.raises(VerifyMismatch) as caught:
        transaction.apply(switch, CrossConnects(target), scope=scope, guard=guard)
    assert not caught.value.report.complete
    return switch, caught.value


def test_a_circuit_to_be_kept_that_is_gone_at_the_end_has_failed():
    switch, error = meddled_with(
        lambda held: CrossConnects(held.pairs - {(1, 6)}), {1: 6}, {1: 6, 2: 7}, scope=[1, 2]
    )
    assert switch.held == {2: 7}
    assert error.report.pairs == {(1, 6): Status.FAILED, (2, 7): Status.DONE}
    assert (error.missing, error.extra) == ({1: 6}, {})


def test_a_circuit_that_somebody_adds_in_the_scope_has_failed():
    switch, error = meddled_with(lambda held: CrossConnects(held.pairs | {(3, 8)}), {}, {2: 7})
    assert switch.held == {2: 7, 3: 8}
    assert error.report.pairs == {(2, 7): Status.DONE, (3, 8): Status.FAILED}
    assert (error.missing, error.extra) == ({}, {3: 8})


def test_what_somebody_does_outside_the_scope_is_not_ours():
    switch = Memory({4: 9})

    def guard() -> None:
        switch.held = CrossConnects({3: 8})

    report = transaction.apply(switch, cc(i2=7), scope=[2], guard=guard)
    assert switch.held == {2: 7, 3: 8}
    assert report.complete
    assert report.pairs == {(2, 7): Status.DONE}


def test_a_pair_undone_after_its_step_leaves_the_apply_incomplete():
    switch = Memory({1: 6})

    def guard() -> None:
        if switch.writes == 1:  # our removal was proven; now it is made again, and our addition is to follow
            switch.held = CrossConnects(switch.held.pairs | {(1, 6)})

    with pytest.raises(VerifyMismatch) as caught:
        transaction.apply(switch, cc(i2=7), guard=guard)
    assert caught.value.report.pairs == {(1, 6): Status.FAILED, (2, 7): Status.DONE}
    assert not caught.value.report.complete


configurations = st.permutations(range(SIZE + 1, 2 * SIZE + 1)).flatmap(
    lambda outputs: st.sets(st.integers(1, SIZE)).map(
        lambda inputs: CrossConnects({source: outputs[source - 1] for source in inputs})
    )
)
FAULTS = ["fine", "fine", "dropped", "refused", "lost before", "lost after", "slow", "stuck", "dead"]


@pytest.mark.slow
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
        unreported = switch.held.pairs ^ report.initial.connections.pairs
        assert unreported <= set(report.pairs)

    check()
    assert successes >= 50
    assert min(failures.values()) >= 5


def meddled(held: CrossConnects, target: CrossConnects, taken: set[int]) -> CrossConnects:
    """Return `held` after somebody removed the circuits of some inputs and joined the first two ports nobody wants."""
    left = CrossConnects({source: output for source, output in held.items() if source not in taken})
    used = {port for pair in held.pairs | target.pairs for port in pair}
    free_in = [port for port in range(1, SIZE + 1) if port not in used]
    free_out = [port for port in range(SIZE + 1, 2 * SIZE + 1) if port not in used]
    return CrossConnects(left.pairs | set(zip(free_in[:1], free_out[:1], strict=False)))


@pytest.mark.slow
def test_an_apply_is_complete_exactly_when_the_scope_holds_the_target_whoever_meddles():
    complete = {True: 0, False: 0}

    @settings(max_examples=150)
    @given(
        configurations,
        configurations,
        st.sets(st.integers(1, SIZE)),
        st.sets(st.integers(1, SIZE), min_size=2),
        st.integers(0, 2),
    )
    def check(held, target, taken, scope, when):
        target = CrossConnects({source: output for source, output in target.items() if source in scope})
        switch = Memory(held)

        def guard() -> None:
            if switch.writes == when:
                switch.held = meddled(switch.held, target, taken)

        try:
            report = transaction.apply(switch, target, scope=scope, guard=guard)
        except PortBusy:  # held by an input outside the scope
            return
        except (Conflict, PartialApply, VerifyMismatch) as error:
            report = error.report
        as_wanted = {pair for pair in switch.held.items() if pair[0] in scope} == target.pairs
        assert report.complete == as_wanted
        complete[as_wanted] += report.changed
        for pair, status in report.pairs.items():
            assert (status is Status.DONE) == ((pair in switch.held.pairs) == (pair in target.pairs))

    check()
    assert min(complete.values()) >= 20


@pytest.mark.parametrize("pair", [(1, 15), (3, 10)], ids=["its input", "its output"])
def test_a_step_on_ports_that_queued_work_of_others_is_about_is_a_conflict(pair):
    step = Step("add", CrossConnects({1: 10}), CrossConnects(), CrossConnects({1: 10}), 0.0)
    queued = Snapshot(CrossConnects(), 0.0, pending=(PendingMove("connect", pair, user="maria"),))

    with pytest.raises(Conflict, match=f"connect {pair[0]}-{pair[1]} by maria is waiting"):
        transaction.check_ports_unrequested(step, queued, device="x")
    elsewhere = Snapshot(CrossConnects(), 0.0, pending=(PendingMove("connect", (4, 12)),))
    transaction.check_ports_unrequested(step, elsewhere, device="x")
