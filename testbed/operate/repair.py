"""Repair a lab whose fibre is lost while a collective runs: around it at once, then by other circuits.

    look  ->  plan (`testbed.design.repair`)  ->  routes over a borrowed link  ->  re-patch, journal first  ->  verify

Connections live on node addresses and next hops are permanent neighbours, so that a collective under way waits and
goes on: no rank starts again. Nothing is done unless the switches hold what the topology, or a repair of it, left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lightbed.wording import counted
from testbed.design.model import Link, Topology, Wiring
from testbed.design.repair import CurrentLinks, Repair, bought_pairs, plan_repair, routes_over
from testbed.design.routing.routes import find_routes
from testbed.errors import DriftError, TopologyError
from testbed.lab.model import Lab
from testbed.operate.apply import demand_no_drift
from testbed.operate.change import Change
from testbed.operate.design import with_routes
from testbed.operate.intent import Stated
from testbed.operate.loss import Loss, Sight, look
from testbed.operate.model import LabPlan, VerifyReport
from testbed.operate.plan import circuits_of
from testbed.operate.repair_record import RepairRecord, differences
from testbed.operate.session import DEFAULT, Design, LabSession, Note

if TYPE_CHECKING:
    from testbed.design.routing.route_sets import RouteSets

RoutesFor = Callable[[Topology], "RouteSets | None"]


@dataclass(frozen=True, slots=True)
class LabRepair:
    """A repair of a lab as planned: `running` holds until `repatched` does.

    `running` is None when what carries data does not join all hosts, `repatched` when nothing is to move.
    `strange` are circuits by which the switches differ from what the topology, or a repair of it, left there;
    `record` is to be kept before anything moves, for the next plan.
    """

    sight: Sight
    repair: Repair
    running: Design | None
    repatched: Design | None
    is_repaired: bool
    strange: tuple[str, ...]
    record: RepairRecord


@dataclass(frozen=True, slots=True)
class Repaired:
    """Durations of a repair, from the beginning of each stage until its routes stood.

    `outage_s` is how long the switches moved; the figures of the second stage are 0 when there was none.
    """

    reroute_s: float
    repatch_s: float
    outage_s: float
    verified: VerifyReport


def look_at(session: LabSession, design: Design) -> Sight:
    """Return what of a design in force is lost now. Raises the switches' errors and `HostError`."""
    return look(session.lab, circuits_of(session.lab, design.wiring), session.switches, session.fleet)


def plan_lab_repair(
    lab: Lab,
    design: Design,
    sight: Sight,
    earlier: RepairRecord | None = None,
    sent: NDArray[np.float64] | None = None,
    routes_for: RoutesFor = lambda _topology: None,
) -> LabRepair | None:
    """Return how to repair what was seen; None when no fibre is lost. Pure.

    Links of pairs are given up in the order of what they have `sent`, see `bought_pairs`. An `earlier` repair
    that stands adds what was lost then. Detours lead over links that carry data only. `routes_for` gives the sets of
    routes of a plan on a topology; where it gives none there is one set, which is led over the detours.
    Raises `TopologyError` when a host is cut off, `DriftError` when that is so because another topology stands.
    """
    losses = _all_losses(sight, earlier)
    if not losses:
        return None
    left = replace(design.wiring, links=tuple(earlier.links)) if earlier else design.wiring
    strange = differences(lab, left, sight.seen)
    try:
        repair = _repair_of(lab, design, sight, losses, sent)
    except TopologyError as error:
        if strange:
            raise DriftError(not_in_force(strange)) from error
        raise
    is_repaired = repair.restores and not differences(lab, repair.repatched, sight.seen)
    moves = is_repaired or repair.make or repair.remove
    return LabRepair(
        sight,
        repair,
        _rerouted(design, repair, routes_for),
        _design(f"{design.name}, repaired", design, repair.repatched, routes_for) if moves else None,
        is_repaired,
        () if is_repaired else strange,
        RepairRecord(frozenset(design.wiring.links), losses, frozenset(repair.repatched.links)),
    )


def _repair_of(
    lab: Lab, design: Design, sight: Sight, losses: tuple[Loss, ...], sent: NDArray[np.float64] | None
) -> Repair:
    return plan_repair(
        _with_idle_nics(lab, design.wiring),
        sorted({loss.nic for loss in losses}),
        bought_pairs(design.topology, sent),
        planes=len(lab.switches),
        lost=_lost_with(design.wiring, losses),
        current=CurrentLinks(sight.held, sight.carrying),
    )


def _all_losses(sight: Sight, earlier: RepairRecord | None) -> tuple[Loss, ...]:
    """Return each fibre once: a transmit fibre that was lost before is seen to be dark still."""
    known = {(loss.nic, loss.fibre): loss for loss in (*(earlier.losses if earlier else ()), *sight.losses)}
    return tuple(known.values())


def _lost_with(wiring: Wiring, losses: tuple[Loss, ...]) -> set[Link]:
    """Return links of a wiring that lost fibres take with them: a NIC in the dark does not send."""
    into, out = wiring.link_into, wiring.link_from
    deaf = {loss.nic for loss in losses if loss.fibre == "receive"}
    deaf |= {out[loss.nic].target for loss in losses if loss.fibre == "transmit" and loss.nic in out}
    lost = {links[nic] for nic in deaf for links in (into, out) if nic in links}
    if not wiring.simplex:
        dead = {loss.nic for loss in losses}
        lost |= {link for link in wiring.links if dead.intersection(link)}
    return lost


def _rerouted(design: Design, repair: Repair, routes_for: RoutesFor) -> Design | None:
    if not all(detour.path for detour in repair.detours):
        return None
    running = _design(f"{design.name}, rerouted", design, repair.running, routes_for)
    if running.sets is not None:
        return running
    return replace(running, routes=routes_over(running.routes, repair.detours))


def _with_idle_nics(lab: Lab, wiring: Wiring) -> Wiring:
    """Return NICs that every host has and the topology left idle are the first to step in, where any can meet any."""
    degree = min(len(host.nics) for host in lab.hosts) if len(lab.switches) == 1 else wiring.degree
    return Wiring(wiring.nodes, degree, wiring.simplex, wiring.links)


def _design(name: str, design: Design, wiring: Wiring, routes_for: RoutesFor) -> Design:
    edges = tuple(sorted((link.source.node, link.target.node) for link in wiring.links))
    old = design.topology
    topology = Topology(old.nodes, wiring.degree, old.simplex, old.strides, edges)
    made, routes = Design(name, topology, wiring, find_routes(wiring)), routes_for(topology)
    return made if routes is None else with_routes(made, routes)


def carry_out(
    session: LabSession,
    planned: LabRepair,
    note: Note = lambda _text: None,
    *,
    stated: Stated = DEFAULT,
) -> Repaired:
    """Return both stages, and the proof; circuits that move are stored as intent with `stated`.

    Raises what `LabSession.bring_up` raises, and `HostError`.

    Raises `DriftError`, and does nothing, when the switches do not hold what the topology or a repair of it left,
    or no longer what was seen. A lab that was repaired before keeps its circuits, and its traffic is not led around
    them.
    """
    check_in_force(planned)
    target = planned.repatched or planned.running
    assert target is not None, "without detours and circuits there is no plan"
    plan = session.plan(target)
    demand_no_drift(session.lab, planned.sight.seen, {part.switch: part.seen for part in plan.switches})
    if planned.repatched is None:
        return carry_out_detours(session, planned, plan, note)
    detour = None if planned.is_repaired else planned.running
    if planned.running is None and not planned.is_repaired:
        note(_NO_DETOUR)
    change = Change("repair", stated.words, detour=detour)
    brought = session.carry_out(planned.repatched, plan, note, stated=stated, change=change)
    return Repaired(brought.detour_s, brought.routes_s, brought.apply.outage_s, brought.verified)


_NO_DETOUR = "no detour joins all hosts: their traffic waits for the circuits"


def carry_out_detours(
    session: LabSession, planned: LabRepair, plan: LabPlan, note: Note, *, again: str | None = None
) -> Repaired:
    """Lead around what is lost where no circuit can help, and prove that in the same operation, or in one `again`.

    Raises what `carry_out` raises.
    """
    with session.operation("repair", "around lost fibres", again=again) as operation:
        reroute_s = 0.0 if planned.is_repaired else reroute(session, planned, note)
        verified = _verify_detours(session, planned, plan, note)
        session.writable.prove(operation, is_proven=verified.ok)
    return Repaired(reroute_s, 0.0, 0.0, verified)


def check_in_force(planned: LabRepair) -> None:
    """Raise `DriftError` when another topology is in force than the repair is for."""
    if planned.strange:
        raise DriftError(f"{not_in_force(planned.strange)}; nothing was done")


def not_in_force(strange: tuple[str, ...]) -> str:
    """Return what is said of circuits that neither the topology nor a repair of it explains, and what to do."""
    missing = sum(word.startswith("-") for word in strange)
    shown = ", ".join(strange[:4]) + (", ..." if len(strange) > 4 else "")
    return (
        f"the switches hold neither this topology nor a repair of it on record: {_are(missing, 'circuit')} missing and "
        f"{_are(len(strange) - missing, 'other')} there ({shown}). Give the --plan or options of the topology in force "
        "and the --runs-dir of its repair, or bring this one up with `testbed apply`"
    )


def _are(number: int, noun: str) -> str:
    return f"{counted(number, noun)} {'is' if number == 1 else 'are'}"


def reroute(session: LabSession, planned: LabRepair, note: Note = lambda _text: None) -> float:
    """Return the first stage: routes around what is lost, over borrowed links; seconds until they stood.

    Raises `DriftError` when another topology is in force, and `HostError`.
    """
    check_in_force(planned)
    if planned.running is None:
        note(_NO_DETOUR)
        return 0.0
    return session.lead_around(planned.running, note)


def _verify_detours(session: LabSession, planned: LabRepair, plan: LabPlan, note: Note) -> VerifyReport:
    """Return whether every link that traffic was led over carries.

    Circuits of lost fibres stand beside them, as known.
    """
    known = {session.lab.link_label(link) for link in planned.sight.held - planned.sight.carrying}
    report = session.verify(plan)
    findings = tuple(
        one
        for one in report.findings
        if one.kind != "extra_circuit" or not known.issuperset(one.parts or (one.subject,))
    )
    note(f"verified: {counted(len(findings), 'finding')} on {counted(report.circuits, 'circuit')} left")
    return replace(report, findings=findings)
