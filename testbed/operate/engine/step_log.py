"""Steps in the journal: each event goes through the table of transitions, and is on disk when a method returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import sqlalchemy as sa

from ocs_drivers.model import Outcome, Status
from testbed.operate.engine.planned import PlannedStep, as_text, now
from testbed.operate.engine.transitions import OPEN, StepEvent, StepState, next_state, replay_events
from testbed.storage.owner import this_run
from testbed.storage.schema import step_events as transitions
from testbed.storage.schema import steps

Transaction = Callable[[], AbstractContextManager[sa.Connection]]
LATER = "judged by a read after the operation had ended"
"""Reason of a step that was concluded later: its times say nothing of the device."""
Key = tuple[str, int]
"""A step of an operation: device and ordinal."""

_OF_STATUS = {
    Status.DONE: StepEvent.READ_AS_WANTED,
    Status.FAILED: StepEvent.READ_OTHERWISE,
    Status.UNKNOWN: StepEvent.UNREADABLE,
}


class StepLog:
    """Steps of operations, written in transactions of the journal."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def plan(self, operation: str, planned: Iterable[PlannedStep]) -> None:
        """Write steps as planned; those that are written stay."""
        with self._transaction() as connection:
            self.plan_in(connection, operation, planned)

    def plan_in(self, connection: sa.Connection, operation: str, planned: Iterable[PlannedStep]) -> None:
        """Write the same in a transaction that is open."""
        for step in planned:
            _insert(connection, operation, step)

    def next_ordinals(self, operation: str) -> dict[str, int]:
        """Return the number of the next step of each device: an operation that is resumed goes on counting."""
        query = (
            sa.select(steps.c.switch, sa.func.max(steps.c.ordinal))
            .where(steps.c.operation == operation)
            .group_by(steps.c.switch)
        )
        with self._transaction() as connection:
            return {device: last + 1 for device, last in connection.execute(query)}

    def intend(self, operation: str, planned: Sequence[PlannedStep]) -> None:
        """Write that the next byte of these steps may go out."""
        with self._transaction() as connection:
            for step in planned:
                _insert(connection, operation, step)
                _advance(connection, operation, (step.device, step.ordinal), [StepEvent.INTEND])

    def send(self, operation: str, device: str, ordinal: int) -> None:
        """Write that bytes go out now."""
        with self._transaction() as connection:
            _advance(connection, operation, (device, ordinal), [StepEvent.SEND])

    def close(
        self,
        operation: str,
        judged: Mapping[Key, tuple[Status, str | None]],
        *,
        refused: bool = False,
        reason: str = "",
    ) -> None:
        """Write what became of steps: status and what was read of each; `refused` where nothing was sent."""
        with self._transaction() as connection:
            _close(connection, operation, judged, refused=refused, reason=reason)

    def record(self, operation: str, device: str, ordinal: int, outcome: Outcome) -> None:
        """Write what a switch was read to hold after a step."""
        read_back = as_text(outcome.read_back.connections) if outcome.read_back else None
        refused = outcome.read_back is None and outcome.status is Status.FAILED
        reason = str(outcome.error) if outcome.error else ""
        self.close(
            operation, {(device, ordinal): (outcome.status, read_back)}, refused=refused, reason=reason
        )

    def give_up(self, operation: str, reason: str) -> None:
        """Write that nobody knows what becomes of the steps that are under way."""
        with self._transaction() as connection:
            open_keys = _keys(connection, operation, OPEN)
            _close(connection, operation, dict.fromkeys(open_keys, (Status.UNKNOWN, None)), reason=reason)

    def for_all(self, operation: str, event: StepEvent, states: Iterable[StepState], reason: str = "") -> int:
        """Let all steps of an operation in these states have one event, in one commit; return how many there were."""
        with self._transaction() as connection:
            keys = _keys(connection, operation, states)
            for key in keys:
                _advance(connection, operation, key, [event])
                if reason:
                    connection.execute(sa.update(steps).where(_is(operation, key)).values(reason=reason))
        return len(keys)

    def replay(self, operation: str) -> dict[Key, StepState]:
        """Return the states that the events of an operation give; `TransitionError` where they cannot be."""
        query = sa.select(transitions).where(transitions.c.operation == operation).order_by("number")
        told: dict[Key, list[StepEvent]] = {}
        with self._transaction() as connection:
            for row in connection.execute(query).mappings():
                told.setdefault((row["switch"], row["ordinal"]), []).append(StepEvent[row["event"]])
            for key in _keys(connection, operation, [StepState.PLANNED]):
                told.setdefault(key, [])
        return {key: replay_events(events) for key, events in told.items()}


def _close(
    connection: sa.Connection,
    operation: str,
    judged: Mapping[Key, tuple[Status, str | None]],
    *,
    refused: bool = False,
    reason: str = "",
) -> None:
    for key, (status, read_back) in judged.items():
        state = _state(connection, operation, key)
        events = [StepEvent.REFUSE] if refused else [_OF_STATUS[status]]
        if state is StepState.INTENT and not refused:
            events.insert(0, StepEvent.SEND)
        if state is StepState.OBSERVED and events == [StepEvent.READ_AS_WANTED]:
            continue
        _advance(connection, operation, key, events)
        known = {"outcome": status.value, "outcome_at": now(), "read_back": read_back}
        if reason:
            known["reason"] = reason
        connection.execute(sa.update(steps).where(_is(operation, key)).values(known))


def _insert(connection: sa.Connection, operation: str, step: PlannedStep) -> None:
    if connection.execute(
        sa.select(steps.c.state).where(_is(operation, (step.device, step.ordinal)))
    ).first():
        return
    values: dict[str, Any] = {
        "operation": operation,
        "switch": step.device,
        "ordinal": step.ordinal,
        "address": step.address,
        "kind": step.kind,
        "before": step.before,
        "after": step.after,
        "intent_at": "",
        "state": StepState.PLANNED.value,
        "change": step.change,
    }
    connection.execute(sa.insert(steps).values(values))


def _advance(connection: sa.Connection, operation: str, key: Key, events: Iterable[StepEvent]) -> None:
    state = _state(connection, operation, key)
    for event in events:
        state = next_state(state, event)
        told = {"operation": operation, "switch": key[0], "ordinal": key[1], "event": event.name, "at": now()}
        connection.execute(sa.insert(transitions).values(told | {"run": this_run()}))
    known = {"state": state.value} | ({"intent_at": now()} if state is StepState.INTENT else {})
    connection.execute(sa.update(steps).where(_is(operation, key)).values(known))


def _state(connection: sa.Connection, operation: str, key: Key) -> StepState:
    return StepState(connection.execute(sa.select(steps.c.state).where(_is(operation, key))).scalar_one())


def _keys(connection: sa.Connection, operation: str, states: Iterable[StepState]) -> list[Key]:
    wanted = [state.value for state in states]
    query = (
        sa.select(steps.c.switch, steps.c.ordinal)
        .where(steps.c.operation == operation, steps.c.state.in_(wanted))
        .order_by(steps.c.switch, steps.c.ordinal)
    )
    return [(row.switch, row.ordinal) for row in connection.execute(query)]


def _is(operation: str, key: Key) -> sa.ColumnElement[bool]:
    return (steps.c.operation == operation) & (steps.c.switch == key[0]) & (steps.c.ordinal == key[1])
