"""A design brought into force: circuits, routes, and the proof of both, as one operation and one epoch."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lightbed.wording import counted
from testbed.leases.model import parts_of
from testbed.operate.apply import parts_of_plan
from testbed.operate.change import Change
from testbed.operate.confirmation import Confirmations, check_none_pending
from testbed.operate.design import Design
from testbed.operate.engine.consent import EmergencyStop
from testbed.operate.intent import Intent, Stated
from testbed.operate.intent_log import Applying, IntentLog, NotKept
from testbed.operate.model import ApplyResult, LabPlan, VerifyReport
from testbed.operate.part_checks import record_checks

if TYPE_CHECKING:
    from testbed.lab.model import Lab
    from testbed.operate.journal import Journal
    from testbed.operate.session import LabSession

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class BringUpReport:
    """Report of bringing a design into force; `routes_s` is the time from the first write until routes stood.

    `epoch` is its number in the journal, None where it is not kept; `detour_s` until a repair led around its fibres.
    """

    design: Design
    plan: LabPlan
    apply: ApplyResult
    verified: VerifyReport
    routes_s: float
    epoch: int | None = None
    detour_s: float = 0.0


def carry_out(
    session: LabSession, design: Design, plan: LabPlan, note: Note, stated: Stated, change: Change
) -> BringUpReport:
    """Apply a plan made for a design, route and verify; raises what `LabSession.carry_out` raises."""
    from testbed.leases.fence import fenced  # SQLAlchemy: not for a plan

    journal, lab = session.writable, session.lab.name
    if change.kind != "rollback":
        check_none_pending(journal.directory, lab)
    some = "some" if plan.has_changes else "nothing"
    note(f"{counted(len(plan.circuits), 'circuit')} planned, {some} to change")
    why = change.why or stated.words or design.name
    with (
        fenced(journal.database, lab, _parts(session, design, plan)),
        session.operation(change.kind, why, again=change.again) as operation,
        session.applying(design, stated, change.epoch) as intent,
    ):
        detour_s = _lead_around(session, change, intent, operation, note)
        started = time.monotonic()
        applied = session.apply(plan, partial(_begin, session, intent, change))
        journal.note(operation, stage="routes")
        EmergencyStop(journal.directory, lab).check_boundary("the hosts' routes")
        session.install_routes(design)
        routes_s = time.monotonic() - started
        intent.advance("applied")
        modelled = "hosts are modelled: no routes"
        routes = f"routes stand after {routes_s * 1000:.0f} ms" if session.fleet else modelled
        note(f"switches done in {applied.total_s * 1000:.0f} ms, {routes}")
        verified = session.verify(plan, design.routes, further=design.further)
        found = counted(len(verified.findings), "finding")
        journal.prove(operation, is_proven=verified.ok)
        record_checks(journal, session.lab, design.wiring, verified)
        intent.advance(*(("verified", "") if verified.ok else ("failed", found)))
    note(f"verified: {found} on {counted(verified.circuits, 'circuit')}")
    return BringUpReport(design, plan, applied, verified, routes_s, intent.epoch, detour_s)


def record_proof(journal: Journal, lab: Lab, intent: Intent, report: VerifyReport) -> None:
    """Complete an epoch whose own proof did not end by a later one without findings.

    Raises `JournalError`, also where somebody has gone on with it meanwhile, and `OperationRunning`.
    """
    IntentLog(journal, lab).complete(intent.epoch)
    with journal.operation(lab.name, again=intent.operation) as operation:
        journal.prove(operation, is_proven=True)
        record_checks(journal, lab, intent.wiring, report)


def _parts(session: LabSession, design: Design, plan: LabPlan) -> frozenset[str]:
    """Return what is moved or configured, as parts of leases."""
    hosts = {f"host:{host.name}" for host in session.lab.hosts[: design.wiring.nodes]}
    return parts_of_plan(session.lab, plan) | parts_of(session.lab, hosts)


def lead_around(session: LabSession, detour: Design, note: Note) -> float:
    """Lead hosts around lost fibres; return how long that took."""
    began = time.monotonic()
    session.install_routes(detour)
    took_s = time.monotonic() - began
    modelled = session.fleet is None
    note("hosts are modelled: no routes" if modelled else f"detours are in force after {took_s * 1e3:.0f} ms")
    return took_s


def _lead_around(
    session: LabSession, change: Change, intent: Applying | NotKept, operation: str, note: Note
) -> float:
    """Lead hosts around before any circuit moves, when the epoch that is to come is stored."""
    if change.detour is None:
        return 0.0
    _begin(session, intent, change, operation)
    return lead_around(session, change.detour, note)


def _begin(session: LabSession, intent: Applying | NotKept, change: Change, operation: str) -> None:
    """Store what is meant, and that it is to be confirmed, before anything is sent."""
    is_new = intent.epoch is None
    intent.begin(operation)
    if change.confirm and is_new and intent.epoch is not None:
        within_s, back_to = change.confirm
        Confirmations(session.writable, session.lab.name).request(intent.epoch, back_to, within_s)
