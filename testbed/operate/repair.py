"""Repair a lab whose fibre is lost while a collective runs: around it at once, then by other circuits.

    look  ->  plan (`testbed.design.repair`)  ->  routes over a borrowed link  ->  re-patch, journal first  ->  verify

Connections live on node addresses and next hops are permanent neighbours, so that a collective under way waits and
goes on: no rank starts again. Nothing is done unless the switches hold what the topology, or a repair of it, left.

A receive fibre whose circuit has been given up shows nowhere any more, so what was lost is kept on record. A record
counts only while the switches hold its links to the last one: `testbed apply` ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from lightbed.wording import count_noun
from ocs_drivers.model import Snapshot
from testbed.design.model import Link, Nic, Topology, Wiring
from testbed.design.repair import CurrentLinks, Detour, Repair, find_bought_pairs, plan_repair, routes_over
from testbed.design.routing.routes import find_routes
from testbed.errors import DriftError, TopologyError
from testbed.lab.model import Lab
from testbed.operate.apply import check_no_drift
from testbed.operate.design import Design, with_routes
from testbed.operate.intent import Stated
from testbed.operate.light import Fibre, Loss, Sight, look
from testbed.operate.model import Circuit, LabPlan, VerifyReport
from testbed.operate.plan import circuits_of, own_ports, pair_label, port_owners
from testbed.operate.session import DEFAULT, Change, LabSession, Note

if TYPE_CHECKING:
    from testbed.design.routing.route_sets import RouteSets


RoutesFor = Callable[[Topology], "RouteSets | None"]
_NO_DETOUR = "no detour joins all hosts: their traffic waits for the circuits"


@dataclass(frozen=True, slots=True)
class RepairRecord:
    """Links of a topology, the fibres that were lost, and the links that the repair was to leave."""

    planned: frozenset[Link]
    losses: tuple[Loss, ...]
    links: frozenset[Link]

    def to_json(self, lab: Lab) -> dict[str, Any]:
        """Return what the run's record keeps: NICs and links as people name them."""
        return {
            "planned": sorted(map(lab.link_label, self.planned)),
            "losses": losses_json(lab, self.losses),
            "links": sorted(map(lab.link_label, self.links)),
        }

    @classmethod
    def from_json(cls, lab: Lab, data: Mapping[str, Any]) -> RepairRecord | None:
        """Return what `to_json` made; None when it names hosts or NICs that this lab does not have."""
        nics = {
            f"{host.name}/{nic.name}": Nic(node, index)
            for node, host in enumerate(lab.hosts)
            for index, nic in enumerate(host.nics)
        }

        def link(label: str) -> Link:
            source, target = label.split(" -> ")
            return Link(nics[source], nics[target])

        try:
            losses = tuple(
                Loss(nics[loss["nic"]], cast("Fibre", loss["fibre"]), link(loss["link"]), loss["sure"])
                for loss in data["losses"]
            )
            return cls(frozenset(map(link, data["planned"])), losses, frozenset(map(link, data["links"])))
        except KeyError:
            return None

    def stands(self, lab: Lab, wiring: Wiring, seen: Mapping[str, Snapshot]) -> bool:
        """Return whether this is a repair of that wiring, and what the switches hold."""
        left = replace(wiring, links=tuple(self.links))
        return self.planned == frozenset(wiring.links) and not differences(lab, left, seen)


def differences(lab: Lab, wiring: Wiring, seen: Mapping[str, Snapshot]) -> tuple[str, ...]:
    """Return what a wiring lacks (`-a/nic1 -> b/nic1`), and what else there is at ports of the lab's hosts (`+`)."""
    ours, owners = own_ports(lab), port_owners(lab)
    wanted = {(c.switch, c.input_port, c.output_port) for c in circuits_of(lab, wiring)}
    found = {
        (name, *pair)
        for name, snapshot in seen.items()
        for pair in snapshot.connections.pairs
        if any((name, port) in ours for port in pair)
    }

    def words(sign: str, circuits: set[tuple[str, int, int]]) -> list[str]:
        return [f"{sign}{pair_label(owners, name, (here, there))}" for name, here, there in sorted(circuits)]

    return (*words("-", wanted - found), *words("+", found - wanted))


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

    def as_json(self) -> dict[str, Any]:
        """Return what the run of a repair has on record."""
        findings = tuple(finding.as_json() for finding in self.verified.findings)
        return asdict(self) | {"verified": asdict(self.verified) | {"findings": findings}}


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
    # Each fibre once: a transmit fibre that was lost before is seen to be dark still.
    known = {(loss.nic, loss.fibre): loss for loss in (*(earlier.losses if earlier else ()), *sight.losses)}
    losses = tuple(known.values())
    if not losses:
        return None
    left = replace(design.wiring, links=tuple(earlier.links)) if earlier else design.wiring
    strange = differences(lab, left, sight.seen)
    try:
        repair = plan_repair(
            _with_idle_nics(lab, design.wiring),
            sorted({loss.nic for loss in losses}),
            find_bought_pairs(design.topology, sent),
            planes=len(lab.switches),
            lost=_find_lost_with(design.wiring, losses),
            current=CurrentLinks(sight.held, sight.carrying),
        )
    except TopologyError as error:
        if strange:
            raise DriftError(not_in_force(strange)) from error
        raise
    is_repaired = repair.restores and not differences(lab, repair.repatched, sight.seen)
    moves = is_repaired or repair.make or repair.remove
    return LabRepair(
        sight,
        repair,
        _reroute(design, repair, routes_for),
        _design(f"{design.name}, repaired", design, repair.repatched, routes_for) if moves else None,
        is_repaired,
        () if is_repaired else strange,
        RepairRecord(frozenset(design.wiring.links), losses, frozenset(repair.repatched.links)),
    )


def _find_lost_with(wiring: Wiring, losses: tuple[Loss, ...]) -> set[Link]:
    """Return links of a wiring that lost fibres take with them: a NIC in the dark does not send."""
    into, out = wiring.link_into, wiring.link_from
    deaf = {loss.nic for loss in losses if loss.fibre == "receive"}
    deaf |= {out[loss.nic].target for loss in losses if loss.fibre == "transmit" and loss.nic in out}
    lost = {links[nic] for nic in deaf for links in (into, out) if nic in links}
    if not wiring.simplex:
        dead = {loss.nic for loss in losses}
        lost |= {link for link in wiring.links if dead.intersection(link)}
    return lost


def _reroute(design: Design, repair: Repair, routes_for: RoutesFor) -> Design | None:
    if not all(detour.path for detour in repair.detours):
        return None
    running = _design(f"{design.name}, rerouted", design, repair.running, routes_for)
    if running.sets is not None:
        return running
    return replace(running, routes=routes_over(running.routes, repair.detours))


def _with_idle_nics(lab: Lab, wiring: Wiring) -> Wiring:
    """Return a wiring with NICs that the topology left idle: they step in first, where any NIC can meet any."""
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
    """Carry both stages out and prove them; circuits that move are stored as intent with `stated`.

    Raises what `LabSession.bring_up` raises, and `HostError`. Raises `DriftError`, and does nothing, when the switches
    do not hold what the topology or a repair of it left, or no longer what was seen. A lab that was repaired before
    keeps its circuits, and its traffic is not led around them.
    """
    check_in_force(planned)
    target = planned.repatched or planned.running
    assert target is not None, "without detours and circuits there is no plan"
    plan = session.plan(target)
    check_no_drift(session.lab, planned.sight.seen, {part.switch: part.seen for part in plan.switches})
    if planned.repatched is None:
        return carry_out_detours(session, planned, plan, note)
    detour = None if planned.is_repaired else planned.running
    if planned.running is None and not planned.is_repaired:
        note(_NO_DETOUR)
    change = Change("repair", stated.words, detour=detour)
    brought = session.carry_out(planned.repatched, plan, note, stated=stated, change=change)
    return Repaired(brought.detour_s, brought.routes_s, brought.apply.outage_s, brought.verified)


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
    """Explain circuits that neither the topology nor a repair of it left, and say what to do."""
    missing = sum(word.startswith("-") for word in strange)
    shown = ", ".join(strange[:4]) + (", ..." if len(strange) > 4 else "")
    return (
        f"the switches hold neither this topology nor a repair of it on record: {_are(missing, 'circuit')} missing and "
        f"{_are(len(strange) - missing, 'other')} there ({shown}). Give the --plan or options of the topology in force "
        "and the --runs-dir of its repair, or bring this one up with `testbed apply`"
    )


def _are(number: int, noun: str) -> str:
    return f"{count_noun(number, noun)} {'is' if number == 1 else 'are'}"


def reroute(session: LabSession, planned: LabRepair, note: Note = lambda _text: None) -> float:
    """Install the first stage, routes around what is lost over borrowed links; return the seconds until they stood.

    Raises `DriftError` when another topology is in force, and `HostError`.
    """
    check_in_force(planned)
    if planned.running is None:
        note(_NO_DETOUR)
        return 0.0
    return session.install_detours(planned.running, note)


def _verify_detours(session: LabSession, planned: LabRepair, plan: LabPlan, note: Note) -> VerifyReport:
    """Prove that every link that traffic was led over carries.

    Circuits of lost fibres stand beside them, as known.
    """
    known = {session.lab.link_label(link) for link in planned.sight.held - planned.sight.carrying}
    report = session.verify(plan)
    findings = tuple(
        one
        for one in report.findings
        if one.kind != "extra_circuit" or not known.issuperset(one.parts or (one.subject,))
    )
    note(f"verified: {count_noun(len(findings), 'finding')} on {count_noun(report.circuits, 'circuit')} left")
    return replace(report, findings=findings)


def describe_repair(lab: Lab, planned: LabRepair) -> Iterator[str]:
    """Yield what is lost and what would be done, as lines for people."""
    yield from describe_losses(lab, planned.record.losses)
    if planned.strange:
        yield not_in_force(planned.strange)
        return
    for detour in _detours(planned):
        way = ", ".join(map(lab.link_label, detour.path)) or "nothing: no way is left"
        yield f"at once: {lab.link_label(detour.lost)} over {way}"
    for verb, links in (("give up", planned.repair.remove), ("make", planned.repair.make)):
        for link in links:
            yield f"then: {verb} {lab.link_label(link)}"
    yield planned.repair.why
    held = planned.sight.held
    yield from _not_patched(lab, (one for one in planned.sight.unpatched if one.link in held))


def describe_losses(lab: Lab, losses: Iterable[Loss]) -> Iterator[str]:
    """Yield lost fibres as lines for people."""
    for loss in losses:
        doubt = "" if loss.sure else " (or the one at the other end)"
        yield f"lost: {_fibre(lab, loss)}{doubt}, for {lab.link_label(loss.link)}"


def losses_json(lab: Lab, losses: Iterable[Loss]) -> list[dict[str, Any]]:
    """Return lost fibres for programs."""
    return [
        {
            "nic": lab.nic_label(loss.nic),
            "fibre": loss.fibre,
            "link": lab.link_label(loss.link),
            "sure": loss.sure,
        }
        for loss in losses
    ]


def repair_json(lab: Lab, planned: LabRepair) -> dict[str, Any]:
    """Return the same for programs."""

    def labels(links: tuple[Link, ...]) -> list[str]:
        return [lab.link_label(link) for link in links]

    return {
        "lost": losses_json(lab, planned.record.losses),
        "detours": [
            {"link": lab.link_label(detour.lost), "path": labels(detour.path)} for detour in _detours(planned)
        ],
        "remove": labels(planned.repair.remove),
        "make": labels(planned.repair.make),
        "why": planned.repair.why,
    }


def describe_unpatched(lab: Lab, design: Design, sight: Sight) -> Iterator[str]:
    """Yield circuits that are missing or pass no light, where no fibre is lost; or that others stand in their place."""
    strange = differences(lab, design.wiring, sight.seen)
    if sight.unpatched and any(word.startswith("+") for word in strange):
        yield not_in_force(strange)
        return
    yield from _not_patched(lab, sight.unpatched)


def _not_patched(lab: Lab, circuits: Iterable[Circuit]) -> Iterator[str]:
    for circuit in circuits:
        pair = f"{circuit.input_port} -> {circuit.output_port}"
        yield f"not patched: {lab.link_label(circuit.link)}, {circuit.switch} passes no light {pair}: `testbed apply`"


def _detours(planned: LabRepair) -> tuple[Detour, ...]:
    """Return those that are new: none for what the circuits of a repair carry already."""
    if planned.is_repaired:
        return ()
    held = planned.sight.held
    return tuple(one for one in planned.repair.detours if one.lost in held or len(one.path) != 1)


def _fibre(lab: Lab, loss: Loss) -> str:
    nic = lab.nic(loss.nic)
    end = nic.transmit if loss.fibre == "transmit" else nic.receive
    return f"the {loss.fibre} fibre of {lab.nic_label(loss.nic)} at {end.switch}:{end.port}"
