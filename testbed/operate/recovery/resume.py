"""Resume of an unfinished operation: read the devices, then finish it, or stop and say why.

Nothing is sent again blindly. The circuits of a switch decide:

| the switch holds | resume |
|---|---|
| the result of the step | counts the step as done |
| the state before the step, or part of its result | plans the rest from what it read |
| anything else | sends nothing and stops as `unknown` |

The last case means that somebody else changed the switch, that the switch restarted, or that a robot dropped a fibre.

A repair that only installs detours has no goal in the journal. Its resume checks again which fibres are lost, because
other fibres may be lost by now.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lightbed.wording import format_count
from ocs_drivers.contract import OpticalSwitch
from ocs_drivers.engine.reports import describe_pairs
from ocs_drivers.model import CrossConnects, Snapshot, Status
from testbed.design.model import Wiring
from testbed.errors import ApplyFailed
from testbed.lab.model import Lab
from testbed.operate.design import Design
from testbed.operate.engine.order import order_steps
from testbed.operate.engine.planned import SwitchGoal, render_circuits
from testbed.operate.engine.step_log import SETTLED_LATER_REASON
from testbed.operate.engine.transitions import OPEN_STATES, StepEvent, StepState
from testbed.operate.model import LabPlan, SwitchPlan, VerifyReport
from testbed.operate.plan import list_circuits
from testbed.operate.recovery.records import OperationRecord, StepRecord, find_operation, load_operations
from testbed.operate.repair import LabRepair, carry_out_detours, describe_unexpected_circuits
from testbed.operate.session import AddNote, Change, LabSession
from testbed.operate.unfinished import IncompleteOperation, find_unfinished_operations
from testbed.operation_errors import NoSuchOperation, OperationRunning, OperationSuperseded

_NO_WIRING = Wiring(0, 0, simplex=True, links=())
_UNSETTLED_STATES = OPEN_STATES | {StepState.UNKNOWN}
Pair = tuple[int, int]
POLL_PAUSES_S = (0.05, 1.0)
"""First and longest pause in seconds between two reads of a robot that has pending moves."""


@dataclass(frozen=True, slots=True)
class ResumeResult:
    """Result of a resume; `state` is `verified`, `done`, `failed`, `unknown`, or `none` if there was nothing to do."""

    operation: str | None
    state: str
    reason: str
    epoch: int | None = None
    steps: tuple[dict[str, Any], ...] = ()

    @property
    def ok(self) -> bool:
        """True if the goal is reached, or there was nothing to do."""
        return self.state in ("verified", "done", "none")


def find_unfinished(runs_dir: str | Path, lab: Lab, operation: str | None) -> IncompleteOperation | None:
    """Return the unfinished operation with this id, or None if it is finished.

    If `operation` is None, return the newest unfinished operation, or None. An operation whose epoch awaits
    confirmation is returned only if there is no other. Raises `NoSuchOperation`, `OperationRunning`,
    `OperationSuperseded` and `JournalError`.
    """
    candidates = find_unfinished_operations(runs_dir, lab)
    if operation is None:
        unfinished = max(
            candidates,
            key=lambda candidate: (not candidate.awaits_confirmation, candidate.operation),
            default=None,
        )
    else:
        unfinished = next((candidate for candidate in candidates if candidate.operation == operation), None)
        if unfinished is None:
            _check_has_ended(load_operations(runs_dir, lab.name), operation, lab.name)
    if unfinished and unfinished.is_superseded:
        raise OperationSuperseded(
            f"{unfinished.operation} cannot be resumed: {unfinished.detail}; {unfinished.hint}"
        )
    return unfinished


def _check_has_ended(records: tuple[OperationRecord, ...], operation: str, lab: str) -> None:
    record = find_operation(records, operation)
    if record is None:
        raise NoSuchOperation(f"lab '{lab}' has no operation {operation}; see `testbed journal`")
    if record.state == "running":
        raise OperationRunning(f"operation {operation} is running: wait for it, or run `testbed stop LAB`")


def resume(
    session: LabSession,
    unfinished: IncompleteOperation,
    design: Design | None,
    add_note: AddNote = lambda _text: None,
) -> ResumeResult:
    """Resume an operation. `design` is the design of its epoch, or None without an epoch.

    Raises the switches' errors and `HostError` if devices do not answer. The operation then stays as it was.
    """
    journal, lab = session.writable_journal, session.lab
    record = find_operation(load_operations(journal.directory, lab.name), unfinished.operation)
    has_goal = record is not None and bool(record.goal) and record.kind != "repair"
    if unfinished.awaits_confirmation or record is None or (design is None and not has_goal):
        return _refuse(unfinished, record)
    devices = sorted(
        {*record.goal, *(step.device for step in record.steps if step.change_kind == "circuits")}
    )
    snapshots = {name: _wait_for_moves(session.switches[name], add_note) for name in devices}
    obstacles = [
        obstacle for name in devices for obstacle in find_resume_obstacles(record, name, snapshots[name])
    ]
    obstacles += [
        f"{name} is still executing {format_count(len(snapshot.pending), 'move')}"
        for name, snapshot in snapshots.items()
        if snapshot.pending
    ]
    _settle_steps(session, record, snapshots, is_in_doubt=bool(obstacles))
    if obstacles:
        hint = "Find out who changed it, then run `testbed apply` or `testbed rollback`"
        return conclude(session, unfinished, "unknown", f"{'; '.join(obstacles)}. Nothing was sent. {hint}")
    change = Change(record.kind, str(record.row.get("why") or ""), resumed_operation=unfinished.operation)  # type: ignore[arg-type]
    try:
        if design is None or unfinished.intent is None:
            return _reach_goal(session, unfinished, record, change)
        change = replace(change, epoch=unfinished.intent.epoch)
        plan = _plan_goal(session, record, design.wiring) if record.goal else session.plan(design)
        outcome = session.carry_out(
            design, plan, add_note, topology_source=unfinished.intent.topology_source, change=change
        )
    except ApplyFailed as error:
        reports = getattr(error.result, "reports", {}).values()
        is_outcome_known = Status.UNKNOWN not in {
            status for report in reports for status in report.pairs.values()
        }
        return conclude(session, unfinished, "failed" if is_outcome_known else "unknown", str(error))
    if outcome.verify_report.ok:
        return conclude(session, unfinished, "verified", "finished and verified")
    return report_findings(session, unfinished, outcome.verify_report)


def report_findings(
    session: LabSession, unfinished: IncompleteOperation, verify_report: VerifyReport
) -> ResumeResult:
    """Return the result of a resume that finished, but whose verification has findings."""
    findings = "; ".join(
        f"{finding.kind}: {finding.subject}: {finding.detail}" for finding in verify_report.findings
    )
    return conclude(session, unfinished, "failed", f"finished, but its verification has findings: {findings}")


def _refuse(unfinished: IncompleteOperation, record: OperationRecord | None) -> ResumeResult:
    """Return the result of an operation that cannot be resumed: it sent nothing, has no goal, or needs a decision."""
    if record and record.has_sent_nothing and not unfinished.awaits_confirmation:
        return ResumeResult(unfinished.operation, "none", "it had sent nothing: run its command again")
    return ResumeResult(unfinished.operation, "unknown", f"{unfinished.detail}; {unfinished.hint}")


def _wait_for_moves(switch: OpticalSwitch, add_note: Callable[[str], object]) -> Snapshot:
    """Read a switch until it has no pending moves, or their time limit has passed; return the last snapshot."""
    snapshot = switch.read()
    deadline_s = time.monotonic() + switch.capabilities.switch_time_s[1] * (len(snapshot.pending) + 1)
    pause_s = POLL_PAUSES_S[0]
    while snapshot.pending and time.monotonic() < deadline_s:
        add_note(f"{switch.address} is executing {format_count(len(snapshot.pending), 'move')}: waiting")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, POLL_PAUSES_S[1])
        snapshot = switch.read()
    return snapshot


def _settle_steps(
    session: LabSession, record: OperationRecord, snapshots: dict[str, Snapshot], *, is_in_doubt: bool
) -> None:
    """Store the outcome of open steps from `snapshots`. Unless in doubt, withdraw the steps that never started."""
    log = session.writable_journal.step_log
    for step in record.steps:
        if step.change_kind == "circuits" and is_unsettled(step):
            status = judge_step(step, snapshots[step.device], is_in_doubt=is_in_doubt)
            read_back = render_circuits(snapshots[step.device].connections)
            log.store_outcomes(
                record.id, {(step.device, step.ordinal): (status, read_back)}, reason=SETTLED_LATER_REASON
            )
    if not is_in_doubt:
        log.apply_event(record.id, StepEvent.WITHDRAW, [StepState.PLANNED], "planned again")


def _plan_goal(session: LabSession, record: OperationRecord, wiring: Wiring) -> LabPlan:
    """Return a plan from the current circuits of the switches to the goal of the operation, within its scope."""
    switch_plans = []
    for name, goal in record.goal.items():
        switch = session.switches[name]
        snapshot = switch.read()
        steps = order_steps(switch.plan(goal.target, snapshot, goal.scope))
        switch_plans.append(SwitchPlan(name, goal.target, goal.scope, snapshot, steps))
    circuits = list_circuits(session.lab, wiring) if wiring is not _NO_WIRING else ()
    return LabPlan(wiring, circuits, tuple(switch_plans))


def _reach_goal(
    session: LabSession, unfinished: IncompleteOperation, record: OperationRecord, change: Change
) -> ResumeResult:
    """Finish an operation without an epoch: bring its switches to its goal."""
    with session.operation(change.kind, change.reason, resumed_operation=unfinished.operation):
        session.apply(_plan_goal(session, record, _NO_WIRING))
    return conclude(session, unfinished, "done", "the switches hold its goal")


def conclude(session: LabSession, unfinished: IncompleteOperation, state: str, reason: str) -> ResumeResult:
    """Return the result of a resume, with the current steps. If `state` is `unknown`, journal the reason."""
    record = find_operation(
        load_operations(session.writable_journal.directory, session.lab.name), unfinished.operation
    )
    steps = tuple(step.json() for step in record.steps) if record else ()
    if state == "unknown":
        session.writable_journal.update_operation(unfinished.operation, reason=reason)
    return ResumeResult(
        unfinished.operation, state, reason, unfinished.intent.epoch if unfinished.intent else None, steps
    )


def find_open_step_circuits(steps: tuple[StepRecord, ...]) -> tuple[CrossConnects, CrossConnects]:
    """Return the circuits of a switch before its first open step, and the planned circuits after that step.

    Without an open step, both are the circuits after the last step that was done.
    """
    circuits_before = steps[0].circuits_before
    for step in steps:
        if step.state in _UNSETTLED_STATES:
            return circuits_before, step.circuits_after
        if step.state in (StepState.OBSERVED, StepState.VERIFIED):
            circuits_before = step.circuits_after
    return circuits_before, circuits_before


def find_resume_obstacles(operation: OperationRecord, device: str, snapshot: Snapshot) -> Iterator[str]:
    """Yield the reasons why an operation cannot be resumed safely on one switch."""
    steps = operation.list_steps(device)
    goal = operation.goal.get(device)
    if not steps or goal is None:
        return
    circuits_before, circuits_after = find_open_step_circuits(steps)
    current_pairs = _select_in_scope(goal, snapshot.connections)
    foreign_pairs = current_pairs - circuits_before.pairs - circuits_after.pairs - goal.target.pairs
    lost_pairs = (
        _select_in_scope(goal, circuits_before) & circuits_after.pairs & goal.target.pairs - current_pairs
    )
    if foreign_pairs:
        pairs = describe_pairs(sorted(foreign_pairs))
        yield f"{device} holds {pairs}, which matches neither the state before the operation nor its goal"
    if lost_pairs:
        yield f"{device} no longer holds {describe_pairs(sorted(lost_pairs))}, which the operation was to keep"


def judge_step(step: StepRecord, snapshot: Snapshot, *, is_in_doubt: bool) -> Status:
    """Return the outcome of a step from a read: `DONE` if its result is there; else `UNKNOWN` in doubt, or `FAILED`.

    A step that is partly done has failed, and the rest of the step is planned again.
    """
    ports = {port for pair in step.circuits_before.pairs ^ step.circuits_after.pairs for port in pair}
    if snapshot.connections.touching(ports) == step.circuits_after.touching(ports):
        return Status.DONE
    return Status.UNKNOWN if is_in_doubt else Status.FAILED


def is_unsettled(step: StepRecord) -> bool:
    """Return whether the outcome of a step is not known."""
    return step.state in _UNSETTLED_STATES


def _select_in_scope(goal: SwitchGoal, connections: CrossConnects) -> frozenset[Pair]:
    outputs = frozenset(goal.target.values())
    if goal.scope is None:
        return connections.pairs
    return frozenset(pair for pair in connections.pairs if pair[0] in goal.scope or pair[1] in outputs)


def resume_detours(
    session: LabSession,
    unfinished: IncompleteOperation,
    lab_repair: LabRepair | None,
    add_note: AddNote = lambda _text: None,
) -> ResumeResult:
    """Resume a repair that only installs detours. `lab_repair` is the plan for the fibres that are lost now, or None.

    Routes are installed on hosts that do not hold them yet, and the links that carry data are verified. The result is
    `unknown` if no fibre is lost any more, or if the current losses need other circuits.
    Raises `HostError`, and the switches' errors.
    """
    record = find_operation(
        load_operations(session.writable_journal.directory, session.lab.name), unfinished.operation
    )
    if record and record.has_sent_nothing:
        return ResumeResult(unfinished.operation, "none", "it had sent nothing: run its command again")
    if lab_repair is None:
        reason = "no fibre is lost any more: run `testbed apply` to install the routes of the topology again"
    elif lab_repair.unexpected_circuits:
        reason = describe_unexpected_circuits(lab_repair.unexpected_circuits)
    elif lab_repair.repatched_design is not None or lab_repair.detour_design is None:
        reason = (
            "the current losses need another repair: see `testbed repair`, then run `testbed repair --apply`"
        )
    else:
        plan = session.plan(lab_repair.detour_design)
        result = carry_out_detours(
            session, lab_repair, plan, add_note, resumed_operation=unfinished.operation
        )
        if result.verified.ok:
            return conclude(session, unfinished, "verified", "finished and verified")
        return report_findings(session, unfinished, result.verified)
    return conclude(session, unfinished, "unknown", f"{reason}. Nothing was sent")
