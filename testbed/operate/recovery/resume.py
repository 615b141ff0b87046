"""Go on with an operation that ended too early: read the devices, then finish it, or stop and say why.

Nothing is sent again blindly. What a switch holds decides: a step that is there is done, one of which nothing or a part
is there is planned again from what was read, and a switch that holds anything else is left to a person. A switch is as
it was left when it holds what it held before the step that nobody knows the end of, what it was to hold after it, or
some of either. Anything else is the work of somebody else, of a device that restarted, or of a robot that dropped a
fibre.

The journal of a repair that moves no circuit holds no goal: routes around fibres that were lost an hour ago help nobody
when others are lost by now. Such a repair checks again which fibres are lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lightbed.wording import count_noun
from ocs_drivers.contract import OpticalSwitch
from ocs_drivers.engine.reports import describe_pairs
from ocs_drivers.model import CrossConnects, Snapshot, Status
from testbed.design.model import Wiring
from testbed.errors import ApplyFailed
from testbed.lab.model import Lab
from testbed.operate.design import Design
from testbed.operate.engine.order import order_steps
from testbed.operate.engine.planned import SwitchGoal, as_text
from testbed.operate.engine.step_log import LATER
from testbed.operate.engine.transitions import OPEN, StepEvent, StepState
from testbed.operate.model import LabPlan, SwitchPlan, VerifyReport
from testbed.operate.plan import circuits_of
from testbed.operate.recovery.records import OperationRecord, StepRecord, find_operation, operations_of
from testbed.operate.repair import LabRepair, carry_out_detours, not_in_force
from testbed.operate.session import Change, LabSession, Note
from testbed.operate.unfinished import Unfinished, find_unfinished_operations
from testbed.operation_errors import NoSuchOperation, OperationRunning, Superseded

_NOTHING = Wiring(0, 0, simplex=True, links=())
_DOUBTED = OPEN | {StepState.UNKNOWN}
Pair = tuple[int, int]
POLL_S = (0.05, 1.0)
"""First and longest pause between two reads of a robot that is at work."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """Result of a resume: `state` is verified, done, failed or unknown, and of nothing unfinished `none`."""

    operation: str | None
    state: str
    reason: str
    epoch: int | None = None
    steps: tuple[dict[str, Any], ...] = ()

    @property
    def ok(self) -> bool:
        """True if the goal stands, or there was nothing to do."""
        return self.state in ("verified", "done", "none")


def find_unfinished(runs_dir: str | Path, lab: Lab, operation: str | None) -> Unfinished | None:
    """Return the operation to go on with, the newest if none is named; None where nothing is unfinished.

    Raises `NoSuchOperation`, `OperationRunning`, `Superseded` and `JournalError`.
    """
    left = find_unfinished_operations(runs_dir, lab)
    if operation is None:
        found = max(left, key=lambda one: (not one.is_for_a_person, one.operation), default=None)
    else:
        found = next((one for one in left if one.operation == operation), None)
        if found is None:
            _check_finished(operations_of(runs_dir, lab.name), operation, lab.name)
    if found and found.is_superseded:
        raise Superseded(f"{found.operation} cannot be resumed: {found.detail}; {found.hint}")
    return found


def _check_finished(records: tuple[OperationRecord, ...], operation: str, lab: str) -> None:
    record = find_operation(records, operation)
    if record is None:
        raise NoSuchOperation(f"lab '{lab}' has no operation {operation}; see `testbed journal`")
    if record.state == "running":
        raise OperationRunning(f"operation {operation} is running: wait for it, or run `testbed stop LAB`")


def resume(
    session: LabSession, left: Unfinished, design: Design | None, note: Note = lambda _text: None
) -> Resumed:
    """Go on with an operation; `design` is that of its epoch, None where it has none.

    Raises the switches' errors and `HostError` where devices do not answer: then nothing was decided.
    """
    journal, lab = session.writable, session.lab
    record = find_operation(operations_of(journal.directory, lab.name), left.operation)
    has_goal = record is not None and bool(record.goal) and record.kind != "repair"
    if left.is_for_a_person or record is None or (design is None and not has_goal):
        return _left_to_a_person(left, record)
    devices = sorted({*record.goal, *(step.device for step in record.steps if step.change == "circuits")})
    seen = {name: _at_rest(session.switches[name], note) for name in devices}
    doubts = [doubt for name in devices for doubt in doubts_about(record, name, seen[name])]
    doubts += [
        f"{name} is still at work on {count_noun(len(s.pending), 'move')}"
        for name, s in seen.items()
        if s.pending
    ]
    _settle(session, record, seen, in_doubt=bool(doubts))
    if doubts:
        hint = "Find out who changed it, then `testbed apply` or `testbed rollback`"
        return conclude(session, left, "unknown", f"{'; '.join(doubts)}. Nothing was sent. {hint}")
    change = Change(record.kind, str(record.row.get("why") or ""), again=left.operation)  # type: ignore[arg-type]
    try:
        if design is None or left.intent is None:
            return _towards_goal(session, left, record, change)
        change = replace(change, epoch=left.intent.epoch)
        plan = _plan(session, record, design.wiring) if record.goal else session.plan(design)
        brought = session.carry_out(design, plan, note, stated=left.intent.stated, change=change)
    except ApplyFailed as failed:
        reports = getattr(failed.result, "reports", {}).values()
        is_known = Status.UNKNOWN not in {status for report in reports for status in report.pairs.values()}
        return conclude(session, left, "failed" if is_known else "unknown", str(failed))
    if brought.verified.ok:
        return conclude(session, left, "verified", "finished and proven")
    return with_findings(session, left, brought.verified)


def with_findings(session: LabSession, left: Unfinished, verified: VerifyReport) -> Resumed:
    """Return the result of a resume that was carried out, and whose proof found something."""
    found = "; ".join(f"{one.kind}: {one.subject}: {one.detail}" for one in verified.findings)
    return conclude(session, left, "failed", f"finished, and its proof found: {found}")


def _left_to_a_person(left: Unfinished, record: OperationRecord | None) -> Resumed:
    """Return why an operation cannot go on: it had sent nothing, or its journal does not hold its goal."""
    if record and record.has_sent_nothing and not left.is_for_a_person:
        return Resumed(left.operation, "none", "it had sent nothing: give its command again")
    return Resumed(left.operation, "unknown", f"{left.detail}; {left.hint}")


def _at_rest(switch: OpticalSwitch, note: Callable[[str], object]) -> Snapshot:
    """Return what a switch holds when no move waits in it any more, or as it is when it should have made them all."""
    seen = switch.read()
    deadline = time.monotonic() + switch.capabilities.switch_time_s[1] * (len(seen.pending) + 1)
    pause_s = POLL_S[0]
    while seen.pending and time.monotonic() < deadline:
        note(f"{switch.address} is at work on {count_noun(len(seen.pending), 'move')}: waiting")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, POLL_S[1])
        seen = switch.read()
    return seen


def _settle(
    session: LabSession, record: OperationRecord, seen: dict[str, Snapshot], *, in_doubt: bool
) -> None:
    """Write what became of its steps by what was read; what was never begun is planned again."""
    log = session.writable.steps
    for step in record.steps:
        if step.change == "circuits" and is_doubted(step):
            status = judge_step(step, seen[step.device], in_doubt=in_doubt)
            read_back = as_text(seen[step.device].connections)
            log.close(record.id, {(step.device, step.ordinal): (status, read_back)}, reason=LATER)
    if not in_doubt:
        log.for_all(record.id, StepEvent.WITHDRAW, [StepState.PLANNED], "planned again")


def _plan(session: LabSession, record: OperationRecord, wiring: Wiring) -> LabPlan:
    """Return the plan from what the switches hold to the goal of the operation, within the scope that it had."""
    parts = []
    for name, goal in record.goal.items():
        switch = session.switches[name]
        seen = switch.read()
        steps = order_steps(switch.plan(goal.target, seen, goal.scope))
        parts.append(SwitchPlan(name, goal.target, goal.scope, seen, steps))
    circuits = circuits_of(session.lab, wiring) if wiring is not _NOTHING else ()
    return LabPlan(wiring, circuits, tuple(parts))


def _towards_goal(session: LabSession, left: Unfinished, record: OperationRecord, change: Change) -> Resumed:
    """Finish an operation that is no epoch: its switches get the circuits that it was to leave."""
    with session.operation(change.kind, change.why, again=left.operation):
        session.apply(_plan(session, record, _NOTHING))
    return conclude(session, left, "done", "the switches hold what it was to leave")


def conclude(session: LabSession, left: Unfinished, state: str, reason: str) -> Resumed:
    """Return the result of a resume, with the steps as they are now; why it stopped is written down."""
    record = find_operation(operations_of(session.writable.directory, session.lab.name), left.operation)
    steps = tuple(step.json() for step in record.steps) if record else ()
    if state == "unknown":
        session.writable.note(left.operation, reason=reason)
    return Resumed(left.operation, state, reason, left.intent.epoch if left.intent else None, steps)


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


def judge_step(step: StepRecord, found: Snapshot, *, in_doubt: bool) -> Status:
    """Return what became of a step by what was read: one of which a part is done has failed, and is planned again."""
    ports = {port for pair in step.before.pairs ^ step.after.pairs for port in pair}
    if found.connections.touching(ports) == step.after.touching(ports):
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


def resume_detours(
    session: LabSession, left: Unfinished, planned: LabRepair | None, note: Note = lambda _text: None
) -> Resumed:
    """Go on with a repair that only leads hosts around lost fibres; `planned` is the repair of what is lost now.

    Hosts get their routes, those that hold them are left alone, and the links that carry are proven. It stops as
    unknown where no fibre is lost any more, or circuits are to move: that is another repair.
    Raises `HostError`, and the switches' errors.
    """
    record = find_operation(operations_of(session.writable.directory, session.lab.name), left.operation)
    if record and record.has_sent_nothing:
        return Resumed(left.operation, "none", "it had sent nothing: give its command again")
    if planned is None:
        why = "no fibre is lost any more: `testbed apply` gives the hosts the routes of the topology again"
    elif planned.strange:
        why = not_in_force(planned.strange)
    elif planned.repatched is not None or planned.running is None:
        why = "what is lost now takes another repair: see `testbed repair`, then `testbed repair --apply`"
    else:
        plan = session.plan(planned.running)
        repaired = carry_out_detours(session, planned, plan, note, again=left.operation)
        if repaired.verified.ok:
            return conclude(session, left, "verified", "finished and proven")
        return with_findings(session, left, repaired.verified)
    return conclude(session, left, "unknown", f"{why}. Nothing was sent")
