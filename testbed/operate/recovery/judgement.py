"""Judgement of an operation that ended too early, from what its switches hold: pure.

A switch is as it was left when it holds what it held before the step that nobody knows the end of, what it was to hold
after it, or some of either. Anything else is the work of somebody else, of a device that restarted, or of a robot that
dropped a fibre: that is for a person.
"""

from __future__ import annotations

from collections.abc import Iterator

from ocs_drivers.engine.reports import describe_pairs
from ocs_drivers.model import CrossConnects, Snapshot, Status
from testbed.operate.engine.goal import SwitchGoal
from testbed.operate.engine.transitions import OPEN, StepState
from testbed.operate.recovery.records import OperationRecord, StepRecord

Pair = tuple[int, int]
_DOUBTED = OPEN | {StepState.UNKNOWN}


def left_by(steps: tuple[StepRecord, ...]) -> tuple[CrossConnects, CrossConnects]:
    """Return what a switch held before the step whose end is not known, and what it was to hold after it."""
    known = steps[0].before
    for step in steps:
        if step.state in _DOUBTED:
            return known, step.after
        if step.state in (StepState.OBSERVED, StepState.VERIFIED):
            known = step.after
    return known, known


def doubts_about(operation: OperationRecord, device: str, found: Snapshot) -> Iterator[str]:
    """Yield why an operation cannot go on by itself on one switch; nothing where it can."""
    steps = operation.on(device)
    goal = operation.goal.get(device)
    if not steps or goal is None:
        return
    before, after = left_by(steps)
    now = _in_scope(goal, found.connections)
    foreign = now - before.pairs - after.pairs - goal.target.pairs
    gone = _in_scope(goal, before) & after.pairs & goal.target.pairs - now
    if foreign:
        yield f"{device} holds {describe_pairs(sorted(foreign))}, neither of before the operation nor of its goal"
    if gone:
        yield f"{device} no longer holds {describe_pairs(sorted(gone))}, which the operation was to keep"


def judged(step: StepRecord, found: Snapshot, *, in_doubt: bool) -> Status:
    """Return what became of a step by what was read: one of which a part is done has failed, and is planned again."""
    ports = _touched((step,))
    if _at(ports, found.connections) == _at(ports, step.after):
        return Status.DONE
    return Status.UNKNOWN if in_doubt else Status.FAILED


def is_doubted(step: StepRecord) -> bool:
    """Return whether nobody knows yet what became of a step."""
    return step.state in _DOUBTED


def _in_scope(goal: SwitchGoal, connections: CrossConnects) -> frozenset[Pair]:
    outputs = frozenset(goal.target.values())
    if goal.scope is None:
        return connections.pairs
    return frozenset(pair for pair in connections.pairs if pair[0] in goal.scope or pair[1] in outputs)


def _touched(steps: tuple[StepRecord, ...]) -> frozenset[int]:
    return frozenset(port for step in steps for pair in step.before.pairs ^ step.after.pairs for port in pair)


def _at(ports: frozenset[int], connections: CrossConnects) -> frozenset[Pair]:
    return frozenset(pair for pair in connections.pairs if not ports.isdisjoint(pair))
