"""Apply a plan: look again, write down the intent, do the steps, judge by what is read back.

For one switch and a whole configuration that is three round trips: the read that compares, the command, the
read that proves. Switches work at the same time; whatever happens, every circuit is accounted for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from lightbed.wording import counted
from ocs_drivers.contract import OpticalSwitch
from ocs_drivers.engine.device_lock import DeviceLock, lock_names
from ocs_drivers.engine.reports import report_of
from ocs_drivers.errors import OcsError
from ocs_drivers.model import ApplyReport, CrossConnects, Outcome, Snapshot, Status, Step
from testbed.errors import ApplyFailed, DriftError, Interrupted, JournalError, RefusedToMove, TestbedError
from testbed.lab.model import Lab
from testbed.leases.model import parts_of
from testbed.log_context import about, logger
from testbed.operate.engine.consent import Consent, EmergencyStop, is_interrupted
from testbed.operate.engine.goal import goal_text
from testbed.operate.engine.planned import PlannedStep
from testbed.operate.engine.threads import each
from testbed.operate.model import ApplyResult, LabPlan, SwitchPlan
from testbed.operate.plan import pair_label, port_owners

if TYPE_CHECKING:
    from testbed.leases.fence import Fence
    from testbed.operate.journal import Journal  # SQLAlchemy: not for a plan

Pair = tuple[int, int]
T = TypeVar("T")
LONG_STEP_S = 1.0
"""Steps that take longer are written down as started, too: a robot's minutes have time for another commit."""


def check_permission(lab: Lab, really_move: str | None) -> None:
    """Raise `RefusedToMove` for a real lab whose name was not given."""
    if lab.simulated or really_move == lab.name:
        return
    said = f"'--really-move {really_move}' names another lab" if really_move else "nobody said to move it"
    raise RefusedToMove(
        f"lab '{lab.name}' is real and {said}; to move its light give --really-move {lab.name}"
    )


def apply_plan(
    lab: Lab,
    plan: LabPlan,
    switches: Mapping[str, OpticalSwitch],
    journal: Journal,
    begun: Callable[[str], object] = lambda _operation: None,
    *,
    within: str | None = None,
    done: Callable[[str], object] = lambda _switch: None,
) -> ApplyResult:
    """Bring every switch from what the plan saw to what it wants, in an operation of its own or `within` an open one.

    `begun` is called with the operation's id when nothing has been sent yet, `done` with a switch after each step.
    Raises `DriftError` (nothing was sent) when a switch is not as the plan saw it, `ApplyFailed` naming every circuit
    that failed or is unknown, `Interrupted` after Ctrl-C, `OperationStopped`, and drivers' errors.
    """
    from testbed.leases.fence import fenced  # SQLAlchemy: not for a plan

    commits_before_s, consent = journal.commit_s, EmergencyStop(journal.directory, lab.name).check
    consent()
    opened: AbstractContextManager[str] = nullcontext(within) if within else journal.operation(lab.name)
    held, begin = fenced(journal.database, lab.name, parts_of_plan(lab, plan)), time.monotonic()
    with _sole_operation(plan, switches), held as fence, opened as operation:
        seen = _seen_as_planned(lab, plan, switches, journal)
        work = _Work(journal, operation, consent, fence, done)
        begun(operation)
        work.plan(plan, switches)
        reports = _carried_out(plan, switches, seen, work)
        result = ApplyResult(
            operation=operation,
            reports=reports,
            outage_s=max((_device_s(report) for report in reports.values()), default=0.0),
            journal_s=journal.commit_s - commits_before_s,
            total_s=time.monotonic() - begin,
        )
        _check_complete(lab, result, consent)
    return result


def _seen_as_planned(
    lab: Lab, plan: LabPlan, switches: Mapping[str, OpticalSwitch], journal: Journal
) -> Mapping[str, Snapshot]:
    """Read all switches and settle in the journal what earlier steps left open. Raises `DriftError`."""
    seen = _each(plan, lambda part: switches[part.switch].read())
    for name, snapshot in seen.items():
        journal.settle(lab.name, switches[name].address, snapshot)
    demand_no_drift(lab, {part.switch: part.seen for part in plan.switches}, seen)
    return seen


def _carried_out(
    plan: LabPlan, switches: Mapping[str, OpticalSwitch], seen: Mapping[str, Snapshot], work: _Work
) -> dict[str, ApplyReport]:
    """Return what became of each switch; after the second Ctrl-C what was sent may still be carried out."""
    try:
        return _each(plan, lambda part: _run(part, seen[part.switch], switches[part.switch], work))
    except KeyboardInterrupt:
        work.journal.steps.give_up(work.operation, "Ctrl-C while it was under way")
        raise


def _check_complete(lab: Lab, result: ApplyResult, consent: Consent) -> None:
    if all(report.complete for report in result.reports.values()):
        return
    if is_interrupted():
        raise Interrupted(_stopped(result.reports))
    consent()
    raise ApplyFailed(_account(lab, result.reports), result=result)


def parts_of_plan(lab: Lab, plan: LabPlan) -> frozenset[str]:
    """Return what a plan moves, as parts of leases: the hosts of its circuits, and every port whose circuit changes."""
    hosts = {f"host:{lab.hosts[nic.node].name}" for circuit in plan.circuits for nic in circuit.link}
    moved = {
        f"port:{part.switch}/{port}"
        for part in plan.switches
        for step in part.steps
        for pair in step.before.pairs ^ step.after.pairs
        for port in pair
    }
    return parts_of(lab, hosts | moved) if hosts | moved else frozenset()


@contextmanager
def _sole_operation(plan: LabPlan, switches: Mapping[str, OpticalSwitch]) -> Iterator[None]:
    """Lock the switches against other operations of this machine, from the read that compares to the one that proves.

    Raises `SwitchHeld`. Beside the drivers' own lock, which covers one step: steps may run in threads.
    """
    addresses = [switches[part.switch].address for part in plan.switches]
    with DeviceLock(*(f"{name}#operation" for address in addresses for name in lock_names(address))):
        yield


def _each(plan: LabPlan, work: Callable[[SwitchPlan], T]) -> dict[str, T]:
    """Do something for all switches at once."""
    return each({part.switch: part for part in plan.switches}, work)


def demand_no_drift(lab: Lab, planned: Mapping[str, Snapshot], now: Mapping[str, Snapshot]) -> None:
    """Raise `DriftError` unless each switch holds what a plan was made for."""
    owners = port_owners(lab)
    drifts = []
    for name, before in planned.items():
        expected, found = before.connections.pairs, now[name].connections.pairs
        words = [f"-{_named(owners, name, pair)}" for pair in sorted(expected - found)]
        words += [f"+{_named(owners, name, pair)}" for pair in sorted(found - expected)]
        if words:
            drifts.append(f"{name}: {', '.join(words)}")
    if drifts:
        what = f"changed since the plan was made: {'; '.join(drifts)}"
        raise DriftError(f"{what}; nothing was sent. Find out who changed it, then plan again")


def _named(owners: Mapping[tuple[str, int], str], switch: str, pair: Pair) -> str:
    return f"{pair[0]}->{pair[1]} ({pair_label(owners, switch, pair)})"


@dataclass(frozen=True, slots=True)
class _Work:
    """One operation under way; `first` are the numbers of the first steps of switches in it."""

    journal: Journal
    operation: str
    consent: Consent
    fence: Fence
    done: Callable[[str], object]
    first: dict[str, int] = field(default_factory=dict)

    def plan(self, plan: LabPlan, switches: Mapping[str, OpticalSwitch]) -> None:
        """Write down all steps, and what they are for."""
        planned = []
        following = self.journal.steps.next_ordinals(self.operation)
        for part in plan.switches:
            self.first[part.switch] = following.get(part.switch, 0)
            address = switches[part.switch].address
            for ordinal, step in enumerate(part.steps, self.first[part.switch]):
                planned.append(PlannedStep.of(part.switch, ordinal, address, step))
        goal = {part.switch: (switches[part.switch].address, part) for part in plan.switches}
        self.journal.begin(self.operation, planned, goal_text(goal))


def _run(plan: SwitchPlan, seen: Snapshot, switch: OpticalSwitch, work: _Work) -> ApplyReport:
    """Return all steps of one switch, up to the first that is not done, or to Ctrl-C."""
    outcomes: list[Outcome] = []
    for ordinal, step in enumerate(plan.steps, work.first[plan.switch]):
        if is_interrupted():
            break
        outcomes.append(_do(plan.switch, ordinal, step, switch, work))
        if outcomes[-1].status is not Status.DONE:
            break
        work.done(plan.switch)
    return report_of(plan.target, seen, plan.steps, outcomes, scope=plan.scope)


def _do(name: str, ordinal: int, step: Step, switch: OpticalSwitch, work: _Work) -> Outcome:
    """Carry out one step: its intent is committed before the first byte, its outcome comes from the device.

    From the guard to the end of the step the lease is checked and cannot end.
    """
    journal, operation, intended, sending = work.journal, work.operation, False, ExitStack()

    def guard() -> None:
        nonlocal intended
        work.consent()
        if intended:
            return  # a driver asks before every write, the intent is one
        sending.enter_context(work.fence.sending())
        journal.intend(operation, name, ordinal, switch.address, step)
        intended = True
        logger.info("step %d (%s) is sent", ordinal, step.kind)
        if step.estimated_s >= LONG_STEP_S:
            journal.steps.send(operation, name, ordinal)

    try:
        sending.enter_context(about(device=name))
        with sending:
            outcome = switch.execute(step, guard)
            logger.info("step %d is %s", ordinal, outcome.status.value)
    except (OcsError, TestbedError) as error:
        # By contract a driver raises only while nothing has been sent, and so does what the guard raises.
        moved = step.before.pairs ^ step.after.pairs
        outcome = Outcome(Status.FAILED, dict.fromkeys(moved, Status.FAILED), None, error=error)
    if intended:
        try:
            journal.record(operation, name, ordinal, outcome)
        except JournalError as error:  # the move was made all the same: the account must say so
            return replace(outcome, status=Status.UNKNOWN, error=error)
    return outcome


def _stopped(reports: Mapping[str, ApplyReport]) -> str:
    done = sum(len(report.outcomes) for report in reports.values())
    left = sum(len(report.steps) - len(report.outcomes) for report in reports.values())
    return (
        f"stopped by Ctrl-C between two steps: {counted(done, 'step')} done and read back, {left} not begun; "
        "`testbed resume` goes on"
    )


def _device_s(report: ApplyReport) -> float:
    return sum(outcome.device_s for outcome in report.outcomes)


def _account(lab: Lab, reports: Mapping[str, ApplyReport]) -> str:
    """Return what became of everything, switch by switch, and what to do."""
    owners = port_owners(lab)
    parts = [_account_switch(owners, name, report) for name, report in reports.items()]
    return f"{'; '.join(parts)}. Run `testbed plan` to see what the switches hold now, then apply again"


def _account_switch(owners: Mapping[tuple[str, int], str], name: str, report: ApplyReport) -> str:
    by_status = {
        status: [pair for pair, became in sorted(report.pairs.items()) if became is status]
        for status in Status
    }
    text = f"{name}: {len(by_status[Status.DONE])} done"
    for status in (Status.FAILED, Status.UNKNOWN):
        if by_status[status]:
            text += f", {len(by_status[status])} {status.value}: "
            text += ", ".join(_named_move(owners, name, pair, report.target) for pair in by_status[status])
    error = report.outcomes[-1].error if report.outcomes else None
    return f"{text} (because {error})" if error else text


def _named_move(owners: Mapping[tuple[str, int], str], switch: str, pair: Pair, target: CrossConnects) -> str:
    verb = "" if pair in target.pairs else "remove "
    return verb + _named(owners, switch, pair)
