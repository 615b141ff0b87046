"""The table of a step's states: every step ends, and none moves again without having been read."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.operate.engine.transitions import (
    OPEN_STATES,
    TRANSITIONS,
    StepEvent,
    StepState,
    TransitionError,
    find_next_state,
    replay_events,
)

READ = {StepEvent.READ_AS_WANTED, StepEvent.READ_OTHERWISE, StepEvent.UNREADABLE}


def test_the_way_of_a_step_that_works():
    events = [StepEvent.INTEND, StepEvent.SEND, StepEvent.READ_AS_WANTED, StepEvent.PROVE]
    states = [replay_events(events[:count]).value for count in range(len(events) + 1)]
    assert states == ["planned", "intent", "started", "observed", "verified"]
    assert replay_events([*events, StepEvent.COMPENSATE]) is StepState.COMPENSATED


def test_only_a_read_says_what_became_of_an_open_step():
    for state in OPEN_STATES:
        ends = {
            event: to for (one, event), to in TRANSITIONS.items() if one is state and to not in OPEN_STATES
        }
        assert ends.keys() - {StepEvent.REFUSE} == READ
        assert ends[StepEvent.READ_AS_WANTED] is StepState.OBSERVED
        assert ends.get(StepEvent.REFUSE, StepState.FAILED) is StepState.FAILED
    assert (StepState.STARTED, StepEvent.REFUSE) not in TRANSITIONS, (
        "bytes are out: nobody can refuse any more"
    )


def test_verified_comes_from_observed_alone():
    assert [state for (state, _), to in TRANSITIONS.items() if to is StepState.VERIFIED] == [
        StepState.OBSERVED
    ]


def test_nothing_follows_a_compensation():
    assert not [key for key in TRANSITIONS if key[0] is StepState.COMPENSATED]


def test_an_event_that_a_state_does_not_have_is_refused():
    with pytest.raises(TransitionError, match="a step that is planned has no event SEND"):
        find_next_state(StepState.PLANNED, StepEvent.SEND)


@pytest.mark.slow
def test_whatever_happens_to_a_step_it_is_sent_only_after_its_intent():
    """Events in any order, those that the table refuses left out, as a process that asks the table does."""
    reached: Counter[StepState] = Counter()

    @settings(max_examples=300)
    @given(st.lists(st.sampled_from(StepEvent), min_size=20, max_size=80))
    def holds(drawn):
        state, told = StepState.PLANNED, []
        for event in drawn:
            try:
                state = find_next_state(state, event)
            except TransitionError:
                continue
            told.append(event)
            reached[state] += 1
        assert replay_events(told) is state
        if StepEvent.SEND in told:
            assert told.index(StepEvent.INTEND) < told.index(StepEvent.SEND)
        if state is StepState.VERIFIED:
            assert StepEvent.READ_AS_WANTED in told
        assert told.count(StepEvent.SEND) <= 1

    holds()
    assert set(reached) == set(StepState) - {StepState.PLANNED}
    assert min(reached.values()) >= 10, reached
