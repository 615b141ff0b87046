"""Application of a plan: read the switches again, store the intent, execute the steps, and judge by a read-back.

A switch that takes a whole configuration in one command needs three round trips: a read to compare, the command, and a
read to prove the result. Switches work in parallel. A failure reports the outcome of every circuit. Routes and
neighbours of hosts are steps too; the state of the kernels decides their outcome.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from lightbed.wording import format_count
from ocs_drivers.contract import OpticalSwitch
from ocs_drivers.engine.device_lock import DeviceLock, make_lock_names
from ocs_drivers.engine.reports import make_report
from ocs_drivers.errors import OcsError
from ocs_drivers.model import ApplyReport, Outcome, Snapshot, Status, Step
from testbed.errors import (
    ApplyFailed,
    DriftError,
    HostError,
    Interrupted,
    JournalError,
    RefusedToMove,
    TestbedError,
)
from testbed.lab.hosts.forwarding import HostForwarding, install
from testbed.lab.hosts.kernel_state import KernelState, plan_state, read_kernels
from testbed.lab.model import Lab
from testbed.leases.model import find_parts
from testbed.log_context import about, logger
from testbed.operate.engine.consent import CheckSending, EmergencyStop, is_interrupted
from testbed.operate.engine.planned import ROUTES_CHANGE, PlannedStep, render_goal
from testbed.operate.engine.transitions import StepState
from testbed.operate.model import ApplyResult, LabPlan, SwitchPlan
from testbed.operate.plan import find_port_owners, label_pair
from testbed.operate.proof.host_findings import judge_host

if TYPE_CHECKING:
    from testbed.lab.hosts.fleet import Fleet
    from testbed.leases.fence import Fence
    from testbed.operate.journal import Journal  # imported late: a plan needs no SQLAlchemy


Pair = tuple[int, int]
Item = TypeVar("Item")
Result = TypeVar("Result")
LONG_STEP_S = 1.0
"""Steps longer than this are also recorded as started. One more commit is cheap beside a robot's minutes."""


def check_permission(lab: Lab, really_move: str | None) -> None:
    """Raise `RefusedToMove` for a real lab unless `really_move` is its name."""
    if lab.simulated or really_move == lab.name:
        return
    reason = f", and '--really-move {really_move}' names another lab" if really_move else ""
    raise RefusedToMove(
        f"lab '{lab.name}' is real hardware{reason}: pass --really-move {lab.name} to change it"
    )


def apply_plan(
    lab: Lab,
    plan: LabPlan,
    switches: Mapping[str, OpticalSwitch],
    journal: Journal,
    on_begin: Callable[[str], object] = lambda _operation: None,
    *,
    open_operation: str | None = None,
    on_step_done: Callable[[str], object] = lambda _switch: None,
) -> ApplyResult:
    """Bring every switch to its target, in a new operation or in `open_operation`.

    `on_begin` is called with the operation's id before anything is sent, and `on_step_done` with a switch's name after
    each of its steps.
    Raises `DriftError` before anything is sent if a switch has changed since the plan was made, `ApplyFailed` naming
    every circuit that failed or is unknown, `Interrupted` after Ctrl-C, `OperationStopped`, and drivers' errors.
    """
    from testbed.leases.fence import hold_fence  # imported late: a plan needs no SQLAlchemy

    commits_before_s, check_sending = journal.commit_s, EmergencyStop(journal.directory, lab.name).check
    check_sending()
    operation_context: AbstractContextManager[str] = (
        nullcontext(open_operation) if open_operation else journal.open_operation(lab.name)
    )
    fence_context = hold_fence(journal.database, lab.name, find_plan_parts(lab, plan))
    begin_s = time.monotonic()
    # Lock, lease, then operation: a refused lock or lease leaves no new operation in the journal.
    with _lock_switches(plan, switches), fence_context as fence, operation_context as operation:
        snapshots = _check_unchanged(lab, plan, switches, journal)
        context = _ApplyContext(journal, operation, check_sending, fence, on_step_done)
        on_begin(operation)
        context.store_plan(plan, switches)
        reports = _execute_plan(plan, switches, snapshots, context)
        result = ApplyResult(
            operation=operation,
            reports=reports,
            outage_s=max(
                (sum(outcome.device_s for outcome in report.outcomes) for report in reports.values()),
                default=0.0,
            ),
            journal_s=journal.commit_s - commits_before_s,
            total_s=time.monotonic() - begin_s,
        )
        _check_complete(lab, result, check_sending)
    return result


def _check_unchanged(
    lab: Lab, plan: LabPlan, switches: Mapping[str, OpticalSwitch], journal: Journal
) -> Mapping[str, Snapshot]:
    """Read all switches, record the outcome of open steps, and return the snapshots.

    Raises `DriftError` if a switch has changed since the plan was made.
    """
    snapshots = _call_each_switch(plan, lambda switch_plan: switches[switch_plan.switch].read())
    for name, snapshot in snapshots.items():
        journal.settle(lab.name, switches[name].address, snapshot)
    check_no_drift(
        lab, {switch_plan.switch: switch_plan.snapshot for switch_plan in plan.switches}, snapshots
    )
    return snapshots


def _execute_plan(
    plan: LabPlan,
    switches: Mapping[str, OpticalSwitch],
    snapshots: Mapping[str, Snapshot],
    context: _ApplyContext,
) -> dict[str, ApplyReport]:
    """Execute the steps of every switch and return a report for each."""
    try:
        return _call_each_switch(
            plan,
            lambda switch_plan: _run_steps(
                switch_plan, snapshots[switch_plan.switch], switches[switch_plan.switch], context
            ),
        )
    except KeyboardInterrupt:  # this was the second Ctrl-C: a device may still execute what was sent to it
        context.journal.step_log.mark_unknown(context.operation, "Ctrl-C while it was under way")
        raise


def _check_complete(lab: Lab, result: ApplyResult, check_sending: CheckSending) -> None:
    if all(report.complete for report in result.reports.values()):
        return
    if is_interrupted():
        raise Interrupted(_describe_stop(result.reports))
    check_sending()
    raise ApplyFailed(_describe_outcomes(lab, result.reports), result=result)


def find_plan_parts(lab: Lab, plan: LabPlan) -> frozenset[str]:
    """Return the parts to lease for a plan: hosts and boards of its circuits, and every port whose circuit changes."""
    board_names = {board.name for board in lab.boards}
    node_names = {lab.hosts[nic.node].name for circuit in plan.circuits for nic in circuit.link}
    host_parts = {f"{'board' if name in board_names else 'host'}:{name}" for name in node_names}
    port_parts = {
        f"port:{switch_plan.switch}/{port}"
        for switch_plan in plan.switches
        for step in switch_plan.steps
        for pair in step.before.pairs ^ step.after.pairs
        for port in pair
    }
    return find_parts(lab, host_parts | port_parts) if host_parts | port_parts else frozenset()


@contextmanager
def _lock_switches(plan: LabPlan, switches: Mapping[str, OpticalSwitch]) -> Iterator[None]:
    """Lock the switches against other operations on this machine. Raises `SwitchHeld`.

    A driver's own lock covers only one step. This lock covers everything from the first read to the last.
    """
    addresses = [switches[switch_plan.switch].address for switch_plan in plan.switches]
    with DeviceLock(*(f"{name}#operation" for address in addresses for name in make_lock_names(address))):
        yield


def _call_each_switch(plan: LabPlan, execute: Callable[[SwitchPlan], Result]) -> dict[str, Result]:
    """Call `execute` for all switches in parallel."""
    return call_each({switch_plan.switch: switch_plan for switch_plan in plan.switches}, execute)


def call_each(items: Mapping[str, Item], execute: Callable[[Item], Result]) -> dict[str, Result]:
    """Call `execute` for every item in its own thread and return the results by name.

    Once all threads have ended, raises the first error in the order of `items`. A second Ctrl-C does not wait for the
    threads. A single item is processed in the caller's thread.
    """
    if len(items) == 1:
        return {name: execute(item) for name, item in items.items()}
    results: dict[str, Result] = {}
    errors: dict[str, BaseException] = {}

    def execute_item(name: str, item: Item) -> None:
        try:
            results[name] = execute(item)
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            errors[name] = error

    threads = [
        threading.Thread(target=copy_context().run, args=(execute_item, *named_item), daemon=True)
        for named_item in items.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in items:
        if name in errors:
            raise errors[name]
    return {name: results[name] for name in items}


def check_no_drift(
    lab: Lab, planned_snapshots: Mapping[str, Snapshot], current_snapshots: Mapping[str, Snapshot]
) -> None:
    """Raise `DriftError` unless each switch holds the circuits that it held when the plan was made."""
    owner_by_port = find_port_owners(lab)
    drifts = []
    for name, planned_snapshot in planned_snapshots.items():
        planned_pairs, current_pairs = (
            planned_snapshot.connections.pairs,
            current_snapshots[name].connections.pairs,
        )
        changes = [
            f"-{_name_pair(owner_by_port, name, pair)}" for pair in sorted(planned_pairs - current_pairs)
        ]
        changes += [
            f"+{_name_pair(owner_by_port, name, pair)}" for pair in sorted(current_pairs - planned_pairs)
        ]
        if changes:
            drifts.append(f"{name}: {', '.join(changes)}")
    if drifts:
        problem = f"changed since the plan was made: {'; '.join(drifts)}"
        raise DriftError(f"{problem}; nothing was sent. Find out who changed them, then run `testbed plan`")


def _name_pair(owner_by_port: Mapping[tuple[str, int], str], switch: str, pair: Pair) -> str:
    return f"{pair[0]}->{pair[1]} ({label_pair(owner_by_port, switch, pair)})"


@dataclass(frozen=True, slots=True)
class _ApplyContext:
    """An operation in progress.

    `first_ordinal_by_switch` maps each switch to the number of its first step in the operation.
    """

    journal: Journal
    operation: str
    check_sending: CheckSending
    fence: Fence
    on_step_done: Callable[[str], object]
    first_ordinal_by_switch: dict[str, int] = field(default_factory=dict)

    def store_plan(self, plan: LabPlan, switches: Mapping[str, OpticalSwitch]) -> None:
        """Store all steps and the goal of the operation in the journal."""
        planned_steps = []
        first_ordinals = self.journal.step_log.find_next_ordinals(self.operation)
        for switch_plan in plan.switches:
            self.first_ordinal_by_switch[switch_plan.switch] = first_ordinals.get(switch_plan.switch, 0)
            address = switches[switch_plan.switch].address
            for ordinal, step in enumerate(
                switch_plan.steps, self.first_ordinal_by_switch[switch_plan.switch]
            ):
                planned_steps.append(PlannedStep.from_step(switch_plan.switch, ordinal, address, step))
        goal = {
            switch_plan.switch: (switches[switch_plan.switch].address, switch_plan)
            for switch_plan in plan.switches
        }
        self.journal.store_plan(self.operation, planned_steps, render_goal(goal))


def _run_steps(
    plan: SwitchPlan, snapshot: Snapshot, switch: OpticalSwitch, context: _ApplyContext
) -> ApplyReport:
    """Execute the steps of one switch until a step is not done or Ctrl-C is pressed, and return its report."""
    outcomes: list[Outcome] = []
    for ordinal, step in enumerate(plan.steps, context.first_ordinal_by_switch[plan.switch]):
        if is_interrupted():
            break
        outcomes.append(_execute_step(plan.switch, ordinal, step, switch, context))
        if outcomes[-1].status is not Status.DONE:
            break
        context.on_step_done(plan.switch)
    return make_report(plan.target, snapshot, plan.steps, outcomes, scope=plan.scope)


def _execute_step(
    name: str, ordinal: int, step: Step, switch: OpticalSwitch, context: _ApplyContext
) -> Outcome:
    """Execute one step. Its intent is committed before the first byte is sent, and its outcome comes from the device.

    The guard checks the lease. After the check, the lease cannot end before the step ends.
    """
    journal, operation, has_intent, sending_stack = context.journal, context.operation, False, ExitStack()

    def check_before_sending() -> None:
        nonlocal has_intent
        context.check_sending()
        if has_intent:
            return  # a driver calls the guard before every write, but a step has one intent
        sending_stack.enter_context(context.fence.guard_sending())
        journal.store_intent(operation, name, ordinal, switch.address, step)
        has_intent = True
        logger.info("step %d (%s) is sent", ordinal, step.kind)
        if step.estimated_s >= LONG_STEP_S:
            journal.step_log.mark_sent(operation, name, ordinal)

    try:
        sending_stack.enter_context(about(device=name))
        with sending_stack:
            outcome = switch.execute(step, check_before_sending)
            logger.info("step %d is %s", ordinal, outcome.status.value)
    except (OcsError, TestbedError) as error:
        # By contract, a driver raises only before it has sent anything. The guard, too, runs before anything is sent.
        changed_pairs = step.before.pairs ^ step.after.pairs
        outcome = Outcome(Status.FAILED, dict.fromkeys(changed_pairs, Status.FAILED), None, error=error)
    if has_intent:
        try:
            journal.store_outcome(operation, name, ordinal, outcome)
        except JournalError as error:  # the device may have moved nevertheless, so the outcome is unknown
            return replace(outcome, status=Status.UNKNOWN, error=error)
    return outcome


def _describe_stop(reports: Mapping[str, ApplyReport]) -> str:
    done_count = sum(len(report.outcomes) for report in reports.values())
    remaining_count = sum(len(report.steps) - len(report.outcomes) for report in reports.values())
    return (
        f"stopped by Ctrl-C between two steps: {format_count(done_count, 'step')} done and read back, "
        f"{remaining_count} not started; "
        "run `testbed resume` to continue"
    )


def _describe_outcomes(lab: Lab, reports: Mapping[str, ApplyReport]) -> str:
    """Return a text with the outcomes of all circuits, switch by switch, and the next command."""
    owner_by_port = find_port_owners(lab)
    descriptions = [_describe_switch(owner_by_port, name, report) for name, report in reports.items()]
    return (
        f"{'; '.join(descriptions)}. Run `testbed plan` to see what the switches hold now, then apply again"
    )


def _describe_switch(owner_by_port: Mapping[tuple[str, int], str], name: str, report: ApplyReport) -> str:
    pairs_by_status = {
        status: [pair for pair, pair_status in sorted(report.pairs.items()) if pair_status is status]
        for status in Status
    }
    text = f"{name}: {len(pairs_by_status[Status.DONE])} done"
    for status in (Status.FAILED, Status.UNKNOWN):
        if pairs_by_status[status]:
            text += f", {len(pairs_by_status[status])} {status.value}: "
            text += ", ".join(
                f"{'' if pair in report.target.pairs else 'remove '}{_name_pair(owner_by_port, name, pair)}"
                for pair in pairs_by_status[status]
            )
    error = report.outcomes[-1].error if report.outcomes else None
    return f"{text} (because {error})" if error else text


def install_hosts(
    lab: Lab,
    fleet: Fleet,
    forwarding_by_host: Mapping[str, HostForwarding],
    journal: Journal,
    operation: str,
    *,
    is_resumed: bool = False,
) -> None:
    """Configure hosts in parallel. A host is done when its kernel holds the planned state.

    With `is_resumed`, hosts that are already configured are skipped. Raises `LeaseDenied`, `OperationStopped`, and
    `HostError` naming hosts that failed. The journal records the outcome of each host. A kernel that differs although
    no command failed raises nothing here, because the proof reports it.
    """
    from testbed.leases.fence import hold_fence  # imported late: a plan needs no SQLAlchemy

    if is_resumed:
        forwarding_by_host = _store_host_outcomes(lab, fleet, forwarding_by_host, journal, operation)
    first_ordinals = journal.step_log.find_next_ordinals(operation)
    if not forwarding_by_host:
        return
    steps = [
        _make_host_step(lab, forwarding, first_ordinals.get(name, 0))
        for name, forwarding in forwarding_by_host.items()
    ]
    host_error: HostError | None = None
    fence_context = hold_fence(
        journal.database, lab.name, find_parts(lab, (f"host:{name}" for name in forwarding_by_host))
    )
    with fence_context as fence, fence.guard_sending():
        EmergencyStop(journal.directory, lab.name).check()
        journal.step_log.store_intents(operation, steps)
        try:
            install(fleet, forwarding_by_host)
        except HostError as error:
            host_error = error
    states = _read_states(lab, fleet)
    outcomes = {
        (step.device, step.ordinal): _judge_kernel(
            lab, forwarding_by_host[step.device], states.get(step.device)
        )
        for step in steps
    }
    journal.step_log.store_outcomes(operation, outcomes, reason=str(host_error) if host_error else "")
    if host_error:
        raise host_error


def _store_host_outcomes(
    lab: Lab, fleet: Fleet, forwarding_by_host: Mapping[str, HostForwarding], journal: Journal, operation: str
) -> dict[str, HostForwarding]:
    """Record the outcome of open host steps from the kernels' state; return the parts that are not yet installed."""
    states = _read_states(lab, fleet)
    outcomes = {
        name: _judge_kernel(lab, forwarding, states.get(name))
        for name, forwarding in forwarding_by_host.items()
    }
    open_states = (StepState.INTENT, StepState.STARTED, StepState.UNKNOWN)
    for row in journal.read_steps(operation):
        if row["change"] == ROUTES_CHANGE and row["switch"] in outcomes and row["state"] in open_states:
            journal.step_log.store_outcomes(
                operation, {(row["switch"], row["ordinal"]): outcomes[row["switch"]]}
            )
    return {
        name: forwarding
        for name, forwarding in forwarding_by_host.items()
        if outcomes[name][0] is not Status.DONE
    }


def compute_digest(forwarding: HostForwarding) -> str:
    """Return 16 hexadecimal digits that identify the configuration of one host."""
    return hashlib.sha256(f"{forwarding.install_command}\n{forwarding.batch_text}".encode()).hexdigest()[:16]


def _make_host_step(lab: Lab, forwarding: HostForwarding, ordinal: int) -> PlannedStep:
    management = next(str(host.management) for host in lab.hosts if host.name == forwarding.host)
    return PlannedStep(
        forwarding.host, ordinal, management, "configure", "", compute_digest(forwarding), ROUTES_CHANGE
    )


def _read_states(lab: Lab, fleet: Fleet) -> Mapping[str, KernelState]:
    """Return the kernel state of every host. If one cannot be read, return {}: a later command records the outcomes."""
    try:
        return read_kernels(fleet, lab)
    except HostError:
        return {}


def _judge_kernel(
    lab: Lab, forwarding: HostForwarding, state: KernelState | None
) -> tuple[Status, str | None]:
    if state is None:
        return Status.UNKNOWN, None
    host = next(host for host in lab.hosts if host.name == forwarding.host)
    planned_state = plan_state(forwarding)
    findings = judge_host(lab, host, planned_state, state)
    if findings:
        return Status.FAILED, "; ".join(f"{finding.kind}: {finding.subject}" for finding in findings[:4])
    return Status.DONE, compute_digest(forwarding)
