"""The table of a step's states: nothing in it is a dead end, and everything in it happens."""

from __future__ import annotations

from collections import deque
from itertools import repeat

import pytest

from ocs_drivers import CrossConnects, Snapshot, Status, Step
from ocs_drivers.engine.step_execution import (
    TRANSITIONS,
    ProgressLog,
    State,
    StepEvent,
    StepExecution,
    StepHooks,
)
from ocs_drivers.errors import ConnectionLost, DeviceError, RobotFault, Timeout
from ocs_drivers.timing import Silence, make_answer_deadline

BEFORE, AFTER = CrossConnects(), CrossConnects({1: 9})
STEP = Step("add", AFTER, BEFORE, AFTER, 0.0)
LOST = ConnectionLost("cut")


class StillClock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def now(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def raised(error):
    if isinstance(error, Exception):
        raise error
    return error


def run(*, sent=None, reads=(), moving=(), settle_s=0.0, watches=False, poll_intervals_s=None):
    """Execute a step on a scripted device; return the outcome, the transitions, and the seconds it took."""
    reads, moving, clock = deque(reads), deque(moving), StillClock()
    hooks = StepHooks(
        send_step=lambda step, guard: raised(sent),
        read_configuration=lambda step: (Snapshot(raised(reads.popleft()), 0.0), None),
        read_after_step=lambda step: Snapshot(raised(reads.popleft()), 0.0),
        is_moving=lambda step, read_back: raised(moving.popleft()),
        explain_error=lambda refusal, step: refusal,
        find_timeout_s=lambda first: 1.0,
        poll_intervals_s=poll_intervals_s or repeat(0.4),
        settling_time_s=settle_s,
        watches_after_failure=watches,
        silence=(silence := Silence(9.0, clock)),
        progress=ProgressLog(STEP, "scripted", clock, silence),
    )
    execution = StepExecution(STEP, lambda: None, hooks, device="scripted", clock=clock)
    taken = []
    for state, action in list(execution._actions.items()):
        execution._actions[state] = lambda state=state, action=action: noted(taken, state, action())
    return execution.run(), taken, clock.now_s


def noted(taken, state, event):
    taken.append((state, event))
    return event


def broken_pauses():
    raise RobotFault("jam")
    yield


SCRIPTS = {
    "as wanted": ({"reads": [AFTER]}, Status.DONE, None),
    "refused": ({"sent": DeviceError("no"), "reads": [BEFORE]}, Status.FAILED, DeviceError),
    "line lost": ({"sent": LOST, "reads": [AFTER], "settle_s": 3.0}, Status.DONE, ConnectionLost),
    "unreadable": ({"reads": [LOST, LOST]}, Status.UNKNOWN, ConnectionLost),
    "at rest": ({"reads": [BEFORE], "moving": [False]}, Status.FAILED, None),
    "at work": ({"reads": [BEFORE, AFTER], "moving": [True]}, Status.DONE, None),
    "overdue": ({"reads": [BEFORE] * 4, "moving": [True] * 4}, Status.UNKNOWN, Timeout),
    "fault": ({"reads": [BEFORE], "moving": [RobotFault("jam")]}, Status.FAILED, RobotFault),
    "fault in a pause": (
        {"reads": [BEFORE], "moving": [True], "poll_intervals_s": broken_pauses()},
        Status.FAILED,
        RobotFault,
    ),
    "watched": (
        {"sent": DeviceError("half"), "reads": [BEFORE, AFTER], "moving": [True], "watches": True},
        Status.DONE,
        DeviceError,
    ),
}


@pytest.mark.parametrize(("script", "status", "error"), SCRIPTS.values(), ids=SCRIPTS)
def test_a_step_ends_as_the_device_has_it(script, status, error):
    outcome, taken, _ = run(**script)
    assert outcome.status is status
    assert (type(outcome.error) if outcome.error else None) is error
    assert TRANSITIONS[taken[-1]] is State.FINISHED


def test_every_transition_happens_and_no_other():
    scripts = {
        name: (dict(script) | ({"poll_intervals_s": broken_pauses()} if "pause" in name else {}))
        for name, (script, *_) in SCRIPTS.items()
    }
    assert {step for script in scripts.values() for step in run(**script)[1]} == set(TRANSITIONS)


def test_every_state_and_every_event_is_in_the_table():
    assert {state for state, _ in TRANSITIONS} == set(State) - {State.FINISHED}
    assert {event for _, event in TRANSITIONS} == set(StepEvent)


def test_mirrors_get_their_time_after_a_cut_only():
    assert run(sent=LOST, reads=[AFTER], settle_s=3.0)[2] == 3.0
    assert run(reads=[AFTER], settle_s=3.0)[2] == 0.0


def test_a_command_is_watched_for_silence_as_a_read_is(monkeypatch):
    left_s = []

    def send(self):
        for _ in range(3):
            left_s.append(make_answer_deadline(5.0, self._clock).remaining_s())
            self._clock.sleep(left_s[-1])
        return StepEvent.ACCEPTED

    monkeypatch.setattr(StepExecution, "_send", send)
    run(reads=[AFTER])
    assert left_s == [5.0, 4.0, 0.0]


def test_an_event_that_a_state_does_not_have_is_a_fault_of_ours(monkeypatch):
    monkeypatch.setattr(StepExecution, "_send", lambda _: StepEvent.OVERDUE)
    with pytest.raises(KeyError):
        run()
