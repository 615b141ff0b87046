"""Whether an operation can go on from what its switches hold: pure.

A port is as it was left when it carries what it carried before the step that nobody knows the end of, or what it was to
carry after it. Anything else is the work of somebody else, of a device that restarted, or of a robot that dropped a
fibre: that is for a person.
"""

from __future__ import annotations

from collections.abc import Iterator

from ocs_drivers.model import CrossConnects, Snapshot, Status
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
    if not steps:
        return
    before, after = left_by(steps)
    ports = _touched(steps)
    target = operation.goal[device].target if device in operation.goal else after
    now = _at(ports, found.connections)
    foreign = now - before.pairs - after.pairs - target.pairs
    gone = _at(ports, CrossConnects(before.pairs & after.pairs)) - now
    for pair in sorted(foreign):
        yield f"{device} holds {pair[0]}->{pair[1]}, which is neither of before the operation nor of its goal"
    for pair in sorted(gone):
        yield f"{device} no longer holds {pair[0]}->{pair[1]}, which the step under way did not touch"


def judged(step: StepRecord, found: Snapshot, *, in_doubt: bool) -> Status:
    """Return what became of a step by what was read: one of which a part is done has failed, and is planned again."""
    ports = _touched((step,))
    if _at(ports, found.connections) == _at(ports, step.after):
        return Status.DONE
    return Status.UNKNOWN if in_doubt else Status.FAILED


def is_doubted(step: StepRecord) -> bool:
    """Return whether nobody knows yet what became of a step."""
    return step.state in _DOUBTED


def _touched(steps: tuple[StepRecord, ...]) -> frozenset[int]:
    return frozenset(port for step in steps for pair in step.before.pairs ^ step.after.pairs for port in pair)


def _at(ports: frozenset[int], connections: CrossConnects) -> frozenset[Pair]:
    return frozenset(pair for pair in connections.pairs if not ports.isdisjoint(pair))
