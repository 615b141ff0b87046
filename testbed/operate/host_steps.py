"""Routes and neighbours of hosts as steps of an operation: intent first, outcome from what the kernels hold."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ocs_drivers.model import Status
from testbed.errors import HostError
from testbed.lab.hosts.forwarding import HostForwarding, install
from testbed.lab.hosts.kernel_state import KernelState, read_kernels
from testbed.lab.hosts.planned_state import planned_state
from testbed.lab.model import Lab
from testbed.leases.model import parts_of
from testbed.operate.engine.consent import EmergencyStop
from testbed.operate.engine.planned import ROUTES, PlannedStep
from testbed.operate.engine.transitions import StepState
from testbed.operate.proof.host_findings import judge_host

if TYPE_CHECKING:
    from testbed.lab.hosts.fleet import Fleet
    from testbed.operate.journal import Journal


def install_hosts(
    lab: Lab,
    fleet: Fleet,
    parts: Mapping[str, HostForwarding],
    journal: Journal,
    operation: str,
    *,
    again: bool = False,
) -> None:
    """Configure hosts, all at once; a host is done when its kernel holds what was planned for it.

    With `again` hosts that hold it already are left alone. Raises `LeaseDenied`, `OperationStopped`, and `HostError`
    naming hosts that failed; the journal tells what became of each, the proof of kernels that do not hold it.
    """
    from testbed.leases.fence import fenced  # SQLAlchemy: not for a plan

    if again:
        parts = _settled(lab, fleet, parts, journal, operation)
    following = journal.steps.next_ordinals(operation)
    if not parts:
        return
    steps = [_planned(lab, part, following.get(name, 0)) for name, part in parts.items()]
    failure: HostError | None = None
    held = fenced(journal.database, lab.name, parts_of(lab, (f"host:{name}" for name in parts)))
    with held as fence, fence.sending():
        EmergencyStop(journal.directory, lab.name).check()
        journal.steps.intend(operation, steps)
        try:
            install(fleet, parts)
        except HostError as error:
            failure = error
    states = _read(lab, fleet)
    judged = {
        (step.device, step.ordinal): _judged(lab, parts[step.device], states.get(step.device))
        for step in steps
    }
    journal.steps.close(operation, judged, reason=str(failure) if failure else "")
    if failure:
        raise failure


def _settled(
    lab: Lab, fleet: Fleet, parts: Mapping[str, HostForwarding], journal: Journal, operation: str
) -> dict[str, HostForwarding]:
    """Write what became of the steps of hosts by what is read; return the parts that are still to be installed."""
    states = _read(lab, fleet)
    judged = {name: _judged(lab, part, states.get(name)) for name, part in parts.items()}
    doubted = (StepState.INTENT, StepState.STARTED, StepState.UNKNOWN)
    for row in journal.history(operation):
        if row["change"] == ROUTES and row["switch"] in judged and row["state"] in doubted:
            journal.steps.close(operation, {(row["switch"], row["ordinal"]): judged[row["switch"]]})
    return {name: part for name, part in parts.items() if judged[name][0] is not Status.DONE}


def digest_of(part: HostForwarding) -> str:
    """Return what identifies the configuration of one host."""
    return hashlib.sha256(f"{part.command}\n{part.text}".encode()).hexdigest()[:16]


def _planned(lab: Lab, part: HostForwarding, ordinal: int) -> PlannedStep:
    management = next(str(host.management) for host in lab.hosts if host.name == part.host)
    return PlannedStep(part.host, ordinal, management, "configure", "", digest_of(part), ROUTES)


def _read(lab: Lab, fleet: Fleet) -> Mapping[str, KernelState]:
    """Return the state of hosts; nothing where not all can be read: the next command looks again."""
    try:
        return read_kernels(fleet, lab)
    except HostError:
        return {}


def _judged(lab: Lab, part: HostForwarding, state: KernelState | None) -> tuple[Status, str | None]:
    if state is None:
        return Status.UNKNOWN, None
    host = next(host for host in lab.hosts if host.name == part.host)
    planned = planned_state(part)
    findings = judge_host(lab, host, planned, state)
    if findings:
        return Status.FAILED, "; ".join(f"{one.kind}: {one.subject}" for one in findings[:4])
    return Status.DONE, digest_of(part)
