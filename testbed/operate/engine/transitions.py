r"""States of a step, from the plan to the proof: one table for every kind of change.

    planned -> intent -> started -> observed -> verified
                  \_________\______ failed   \
                             \_____ unknown   -> compensated

`TRANSITIONS` lists every valid event of every state; any other event is a bug. A step becomes `observed` only by a read
of the device or host, never by its answer to a command.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, StrEnum


class StepState(StrEnum):
    """State of a step; the value is what the journal holds."""

    PLANNED = "planned"
    """Stored with its operation; nothing was sent."""
    INTENT = "intent"
    """The intent is on disk and bytes may be sent. If the process dies now, nobody knows whether they were sent."""
    STARTED = "started"
    """Bytes were sent. For a step shorter than a second this state is stored only together with its outcome."""
    OBSERVED = "observed"
    """The read-back shows the planned state."""
    VERIFIED = "verified"
    """Its whole operation was verified by light, probe frames and packets."""
    FAILED = "failed"
    """Nothing was sent, or the read-back does not show the planned state."""
    UNKNOWN = "unknown"
    """Nothing could be read, or the read-back shows neither the earlier nor the planned state."""
    COMPENSATED = "compensated"
    """A verified rollback has replaced it."""


class StepEvent(Enum):
    """Event that changes the state of a step."""

    INTEND = "its intent is on disk"
    SEND = "the first byte is sent"
    REFUSE = "nothing was sent: the driver, the lease or the operator refused"
    WITHDRAW = "it was never started, and the rest is planned again"
    READ_AS_WANTED = "the read-back shows the planned state"
    READ_OTHERWISE = "the read-back does not show the planned state"
    UNREADABLE = "not read, or the read-back shows neither the earlier nor the planned state"
    PROVE = "its operation was verified"
    COMPENSATE = "a verified rollback replaces it"


_S, _E = StepState, StepEvent

_STATE_BY_READ_EVENT = {
    _E.READ_AS_WANTED: _S.OBSERVED,
    _E.READ_OTHERWISE: _S.FAILED,
    _E.UNREADABLE: _S.UNKNOWN,
}

TRANSITIONS: Mapping[tuple[StepState, StepEvent], StepState] = {
    (_S.PLANNED, _E.INTEND): _S.INTENT,
    (_S.PLANNED, _E.WITHDRAW): _S.FAILED,
    (_S.INTENT, _E.SEND): _S.STARTED,
    (_S.INTENT, _E.REFUSE): _S.FAILED,
    **{
        (state, event): next_state
        for state in (_S.INTENT, _S.STARTED, _S.UNKNOWN)
        for event, next_state in _STATE_BY_READ_EVENT.items()
    },
    (_S.OBSERVED, _E.PROVE): _S.VERIFIED,
    (_S.OBSERVED, _E.READ_OTHERWISE): _S.FAILED,
    **{(state, _E.COMPENSATE): _S.COMPENSATED for state in (_S.OBSERVED, _S.VERIFIED, _S.FAILED, _S.UNKNOWN)},
}
"""Next state by state and event. Missing pairs are invalid."""

OPEN_STATES = frozenset({_S.INTENT, _S.STARTED})
"""States without a known outcome: the device must be read before anything is sent again."""


class TransitionError(RuntimeError):
    """An event that is not valid in the state of a step, which is a bug."""


def find_next_state(state: StepState, event: StepEvent) -> StepState:
    """Return the state after an event. Raises `TransitionError`.

    >>> find_next_state(StepState.STARTED, StepEvent.READ_AS_WANTED)
    <StepState.OBSERVED: 'observed'>
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise TransitionError(f"a step that is {state.value} has no event {event.name}") from None


def replay_events(events: Iterable[StepEvent]) -> StepState:
    """Return the state of a step after these events, starting from `planned`. Raises `TransitionError`."""
    state = StepState.PLANNED
    for event in events:
        state = find_next_state(state, event)
    return state
