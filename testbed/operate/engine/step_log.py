"""Steps in the journal: each event follows the table of transitions, and is on disk when a method returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import sqlalchemy as sa

from ocs_drivers.model import Outcome, Status
from testbed.operate.engine.planned import PlannedStep, format_now, render_circuits
from testbed.operate.engine.transitions import (
    OPEN_STATES,
    StepEvent,
    StepState,
    find_next_state,
    replay_events,
)
from testbed.storage.owner import get_current_run
from testbed.storage.schema import step_events as transitions
from testbed.storage.schema import steps

Transaction = Callable[[], AbstractContextManager[sa.Connection]]
SETTLED_LATER_REASON = "judged by a read after the operation had ended"
"""Reason of a step whose outcome was read later, so that its times do not show the speed of the device."""
StepKey = tuple[str, int]
"""A step of an operation: device and ordinal."""

_EVENT_BY_STATUS = {
    Status.DONE: StepEvent.READ_AS_WANTED,
    Status.FAILED: StepEvent.READ_OTHERWISE,
    Status.UNKNOWN: StepEvent.UNREADABLE,
}


class StepLog:
    """Steps of operations, written in transactions of the journal. All methods raise `JournalError`."""

    def __init__(self, open_transaction: Transaction) -> None:
        self._open_transaction = open_transaction

    def store_planned(self, operation: str, planned_steps: Iterable[PlannedStep]) -> None:
        """Store planned steps; steps that are already stored are unchanged."""
        with self._open_transaction() as connection:
            self.insert_planned(connection, operation, planned_steps)

    def insert_planned(
        self, connection: sa.Connection, operation: str, planned_steps: Iterable[PlannedStep]
    ) -> None:
        """Store planned steps in an open transaction, see `store_planned`."""
        for step in planned_steps:
            _insert(connection, operation, step)

    def find_next_ordinals(self, operation: str) -> dict[str, int]:
        """Return the number of the next step of each device. A resumed operation continues its numbers."""
        query = (
            sa.select(steps.c.switch, sa.func.max(steps.c.ordinal))
            .where(steps.c.operation == operation)
            .group_by(steps.c.switch)
        )
        with self._open_transaction() as connection:
            return {device: last_ordinal + 1 for device, last_ordinal in connection.execute(query)}

    def store_intents(self, operation: str, planned_steps: Sequence[PlannedStep]) -> None:
        """Store the intents of steps: from now on their bytes may be sent."""
        with self._open_transaction() as connection:
            for step in planned_steps:
                _insert(connection, operation, step)
                _apply_events(connection, operation, (step.device, step.ordinal), [StepEvent.INTEND])

    def mark_sent(self, operation: str, device: str, ordinal: int) -> None:
        """Store that bytes of a step are being sent."""
        with self._open_transaction() as connection:
            _apply_events(connection, operation, (device, ordinal), [StepEvent.SEND])

    def store_outcomes(
        self,
        operation: str,
        outcomes: Mapping[StepKey, tuple[Status, str | None]],
        *,
        is_refused: bool = False,
        reason: str = "",
    ) -> None:
        """Store the outcome of steps: status and read-back of each. Pass `is_refused` if nothing was sent."""
        with self._open_transaction() as connection:
            _store_outcomes(connection, operation, outcomes, is_refused=is_refused, reason=reason)

    def store_outcome(self, operation: str, device: str, ordinal: int, outcome: Outcome) -> None:
        """Store the outcome of a step of a switch, with its read-back."""
        read_back = render_circuits(outcome.read_back.connections) if outcome.read_back else None
        is_refused = outcome.read_back is None and outcome.status is Status.FAILED
        reason = str(outcome.error) if outcome.error else ""
        self.store_outcomes(
            operation, {(device, ordinal): (outcome.status, read_back)}, is_refused=is_refused, reason=reason
        )

    def mark_unknown(self, operation: str, reason: str) -> None:
        """Store the outcome of all open steps of an operation as unknown."""
        with self._open_transaction() as connection:
            open_keys = _select_step_keys(connection, operation, OPEN_STATES)
            _store_outcomes(
                connection, operation, dict.fromkeys(open_keys, (Status.UNKNOWN, None)), reason=reason
            )

    def apply_event(
        self, operation: str, event: StepEvent, states: Iterable[StepState], reason: str = ""
    ) -> int:
        """Apply an event to all steps of an operation in these states, in one commit; return their number."""
        with self._open_transaction() as connection:
            keys = _select_step_keys(connection, operation, states)
            for key in keys:
                _apply_events(connection, operation, key, [event])
                if reason:
                    connection.execute(
                        sa.update(steps).where(_match_step(operation, key)).values(reason=reason)
                    )
        return len(keys)

    def replay(self, operation: str) -> dict[StepKey, StepState]:
        """Return the state of each step by replaying the stored events. Raises `TransitionError` if one is invalid."""
        query = sa.select(transitions).where(transitions.c.operation == operation).order_by("number")
        events_by_step: dict[StepKey, list[StepEvent]] = {}
        with self._open_transaction() as connection:
            for row in connection.execute(query).mappings():
                events_by_step.setdefault((row["switch"], row["ordinal"]), []).append(StepEvent[row["event"]])
            for key in _select_step_keys(connection, operation, [StepState.PLANNED]):
                events_by_step.setdefault(key, [])
        return {key: replay_events(events) for key, events in events_by_step.items()}


def _store_outcomes(
    connection: sa.Connection,
    operation: str,
    outcomes: Mapping[StepKey, tuple[Status, str | None]],
    *,
    is_refused: bool = False,
    reason: str = "",
) -> None:
    for key, (status, read_back) in outcomes.items():
        state = _read_state(connection, operation, key)
        events = [StepEvent.REFUSE] if is_refused else [_EVENT_BY_STATUS[status]]
        if state is StepState.INTENT and not is_refused:
            events.insert(0, StepEvent.SEND)
        if state is StepState.OBSERVED and events == [StepEvent.READ_AS_WANTED]:
            continue
        _apply_events(connection, operation, key, events)
        values = {"outcome": status.value, "outcome_at": format_now(), "read_back": read_back}
        if reason:
            values["reason"] = reason
        connection.execute(sa.update(steps).where(_match_step(operation, key)).values(values))


def _insert(connection: sa.Connection, operation: str, step: PlannedStep) -> None:
    if connection.execute(
        sa.select(steps.c.state).where(_match_step(operation, (step.device, step.ordinal)))
    ).first():
        return
    values: dict[str, Any] = {
        "operation": operation,
        "switch": step.device,
        "ordinal": step.ordinal,
        "address": step.address,
        "kind": step.step_kind,
        "before": step.state_before,
        "after": step.state_after,
        "intent_at": "",
        "state": StepState.PLANNED.value,
        "change": step.change_kind,
    }
    connection.execute(sa.insert(steps).values(values))


def _apply_events(
    connection: sa.Connection, operation: str, step_key: StepKey, events: Iterable[StepEvent]
) -> None:
    state = _read_state(connection, operation, step_key)
    for event in events:
        state = find_next_state(state, event)
        row = {
            "operation": operation,
            "switch": step_key[0],
            "ordinal": step_key[1],
            "event": event.name,
            "at": format_now(),
        }
        connection.execute(sa.insert(transitions).values(row | {"run": get_current_run()}))
    values = {"state": state.value} | ({"intent_at": format_now()} if state is StepState.INTENT else {})
    connection.execute(sa.update(steps).where(_match_step(operation, step_key)).values(values))


def _read_state(connection: sa.Connection, operation: str, step_key: StepKey) -> StepState:
    return StepState(
        connection.execute(sa.select(steps.c.state).where(_match_step(operation, step_key))).scalar_one()
    )


def _select_step_keys(
    connection: sa.Connection, operation: str, states: Iterable[StepState]
) -> list[StepKey]:
    state_names = [state.value for state in states]
    query = (
        sa.select(steps.c.switch, steps.c.ordinal)
        .where(steps.c.operation == operation, steps.c.state.in_(state_names))
        .order_by(steps.c.switch, steps.c.ordinal)
    )
    return [(row.switch, row.ordinal) for row in connection.execute(query)]


def _match_step(operation: str, step_key: StepKey) -> sa.ColumnElement[bool]:
    return (
        (steps.c.operation == operation) & (steps.c.switch == step_key[0]) & (steps.c.ordinal == step_key[1])
    )
