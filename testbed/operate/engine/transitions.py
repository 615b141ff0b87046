r"""States of a step, from the plan to the proof: one table for every kind of change.

    planned -> intent -> started -> observed -> verified
                  \_________\______ failed   \
                             \_____ unknown   -> compensated

`TRANSITIONS` lists all that can happen; an event that a state does not have there is a fault of ours. A step is
`observed` only by what a device or a host was read to hold, never by its answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, StrEnum


class StepState(StrEnum):
    """State of a step; the value is what the journal holds."""

    PLANNED = "planned"
    """Written down with its operation; nothing was sent."""
    INTENT = "intent"
    """On disk, and the next byte may go out: after a death nobody knows whether it did."""
    STARTED = "started"
    """Bytes have gone out. A step of less than a second is not written down as started by itself."""
    OBSERVED = "observed"
    """Read back as wanted."""
    VERIFIED = "verified"
    """Proven by light, probe frames and packets, with its whole operation."""
    FAILED = "failed"
    """Nothing was sent, or it was read back as not wanted."""
    UNKNOWN = "unknown"
    """Nothing could be read, or what was read is neither as before nor as wanted."""
    COMPENSATED = "compensated"
    """A rollback that was proven has replaced it."""


class StepEvent(Enum):
    """Event that changes the state of a step."""

    INTEND = "its intent is on disk"
    SEND = "the first byte goes out"
    REFUSE = "nothing was sent: the driver, the lease or the operator refused"
    WITHDRAW = "it was never begun, and what is left is planned again"
    READ_AS_WANTED = "read back as wanted"
    READ_OTHERWISE = "read back, and not as wanted"
    UNREADABLE = "not read, or neither as before nor as wanted"
    PROVE = "its operation was proven"
    COMPENSATE = "a rollback that was proven replaces it"


_S, _E = StepState, StepEvent

_JUDGED = {
    _E.READ_AS_WANTED: _S.OBSERVED,
    _E.READ_OTHERWISE: _S.FAILED,
    _E.UNREADABLE: _S.UNKNOWN,
}

TRANSITIONS: Mapping[tuple[StepState, StepEvent], StepState] = {
    (_S.PLANNED, _E.INTEND): _S.INTENT,
    (_S.PLANNED, _E.WITHDRAW): _S.FAILED,
    (_S.INTENT, _E.SEND): _S.STARTED,
    (_S.INTENT, _E.REFUSE): _S.FAILED,
    **{(state, event): to for state in (_S.INTENT, _S.STARTED, _S.UNKNOWN) for event, to in _JUDGED.items()},
    (_S.OBSERVED, _E.PROVE): _S.VERIFIED,
    (_S.OBSERVED, _E.READ_OTHERWISE): _S.FAILED,
    **{(state, _E.COMPENSATE): _S.COMPENSATED for state in (_S.OBSERVED, _S.VERIFIED, _S.FAILED, _S.UNKNOWN)},
}
"""All transitions."""

OPEN = frozenset({_S.INTENT, _S.STARTED})
"""States of which nobody knows what became: a device must be read before anything is sent again."""


class TransitionError(RuntimeError):
    """An event that the state of a step does not have: a fault of ours."""


def next_state(state: StepState, event: StepEvent) -> StepState:
    """Return the state after an event. Raises `TransitionError`.

    >>> next_state(StepState.STARTED, StepEvent.READ_AS_WANTED)
    <StepState.OBSERVED: 'observed'>
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise TransitionError(f"a step that is {state.value} has no event {event.name}") from None


def replay_events(events: Iterable[StepEvent]) -> StepState:
    """Return the state that a step is in after these events, from `planned` on. Raises `TransitionError`."""
    state = StepState.PLANNED
    for event in events:
        state = next_state(state, event)
    return state
