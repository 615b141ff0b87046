"""Mend a lab whose fibre is lost while a collective runs: around it at once, then by other circuits.

    look  ->  plan (`testbed.design.repair`)  ->  routes over a borrowed link  ->  re-patch, journal first  ->  verify

Connections live on node addresses and next hops are permanent neighbours, so that a collective under way waits and
goes on: no rank starts anew.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from testbed.design.model import Link, Topology, Wiring
from testbed.design.repair import Repair, bought_pairs, plan_repair, routes_over
from testbed.design.routes import find_routes
from testbed.lab.model import Lab
from testbed.operate.loss import Loss, Sight, look
from testbed.operate.model import Circuit, VerifyReport
from testbed.operate.plan import circuits_of
from testbed.operate.session import Design, LabSession, Note


@dataclass(frozen=True, slots=True)
class LabRepair:
    """What to do about what was seen: `running` holds until `repatched` does, which is None when nothing is to move."""

    sight: Sight
    repair: Repair
    running: Design
    repatched: Design | None


@dataclass(frozen=True, slots=True)
class Repaired:
    """What it took, from the beginning of each stage until its routes stood.

    `dark_s` is how long the switches moved; the figures of the second stage are 0 when there was none.
    """

    reroute_s: float
    repatch_s: float
    dark_s: float
    verified: VerifyReport | None


def look_at(session: LabSession, design: Design) -> Sight:
    """What of a design in force is lost now. Raises the switches' errors and `HostError`."""
    return look(session.lab, circuits_of(session.lab, design.wiring), session.switches, session.fleet)


def plan_lab_repair(lab: Lab, design: Design, sight: Sight) -> LabRepair | None:
    """How to mend what was seen; None when no fibre is lost. Pure.

    Circuits that are merely not patched are taken for standing: to make them is the second stage's, or `apply`'s.
    Raises `TopologyError` when a host is cut off.
    """
    if not sight.losses:
        return None
    dead = {loss.nic for loss in sight.losses}
    lost = set(sight.dark)
    if not design.wiring.simplex:
        lost |= {link for link in design.wiring.links if dead.intersection(link)}
    repair = plan_repair(
        _with_idle_nics(lab, design.wiring),
        sorted(dead),
        bought_pairs(design.topology),
        planes=len(lab.switches),
        lost=lost,
    )
    running = _design(f"{design.name}, rerouted", design, repair.running)
    running = replace(running, routes=routes_over(running.routes, repair.detours))
    moves = repair.make or repair.remove
    return LabRepair(
        sight,
        repair,
        running,
        _design(f"{design.name}, repaired", design, repair.repatched) if moves else None,
    )


def _with_idle_nics(lab: Lab, wiring: Wiring) -> Wiring:
    """NICs that every host has and the topology left idle are the first to step in, where any can meet any."""
    degree = min(len(host.nics) for host in lab.hosts) if len(lab.switches) == 1 else wiring.degree
    return Wiring(wiring.nodes, degree, wiring.simplex, wiring.links)


def _design(name: str, design: Design, wiring: Wiring) -> Design:
    edges = tuple(sorted((link.source.node, link.target.node) for link in wiring.links))
    old = design.topology
    topology = Topology(old.nodes, wiring.degree, old.simplex, old.strides, edges)
    return Design(name, topology, wiring, find_routes(wiring))


def carry_out(session: LabSession, planned: LabRepair, note: Note = lambda _text: None) -> Repaired:
    """Both stages, and the proof. Raises what `LabSession.bring_up` raises, and `HostError`.

    A lab that was mended before keeps its circuits, and its traffic is not led around them.
    """
    reroute_s = 0.0
    if not is_mended(session, planned):
        reroute_s = reroute(session, planned)
        note(f"detours are in force after {reroute_s * 1e3:.0f} ms")
    if planned.repatched is None:
        return Repaired(reroute_s, 0.0, 0.0, None)
    brought = session.bring_up(planned.repatched, note)
    return Repaired(reroute_s, brought.routes_s, brought.apply.dark_s, brought.verified)


def is_mended(session: LabSession, planned: LabRepair) -> bool:
    """Whether the switches hold the circuits of the second stage already. Raises the switches' errors."""
    return planned.repatched is not None and not session.plan(planned.repatched).has_changes


def reroute(session: LabSession, planned: LabRepair) -> float:
    """The first stage: routes around what is lost, over borrowed links; seconds until they stood."""
    began = time.monotonic()
    session.install_routes(planned.running)
    return time.monotonic() - began


def describe_repair(lab: Lab, planned: LabRepair) -> Iterator[str]:
    """What is lost and what would be done, as lines for people."""
    for loss in planned.sight.losses:
        yield f"lost: {_fibre(lab, loss)}, for {lab.link_label(loss.link)}"
    for detour in planned.repair.detours:
        way = ", ".join(map(lab.link_label, detour.path))
        yield f"at once: {lab.link_label(detour.lost)} over {way}"
    for verb, links in (("give up", planned.repair.remove), ("make", planned.repair.make)):
        for link in links:
            yield f"then: {verb} {lab.link_label(link)}"
    yield planned.repair.why


def repair_json(lab: Lab, planned: LabRepair) -> dict[str, Any]:
    """The same for programs."""

    def labels(links: tuple[Link, ...]) -> list[str]:
        return [lab.link_label(link) for link in links]

    return {
        "lost": [
            {"nic": lab.nic_label(loss.nic), "fibre": loss.fibre, "link": lab.link_label(loss.link)}
            for loss in planned.sight.losses
        ],
        "detours": [
            {"link": lab.link_label(detour.lost), "path": labels(detour.path)}
            for detour in planned.repair.detours
        ],
        "remove": labels(planned.repair.remove),
        "make": labels(planned.repair.make),
        "why": planned.repair.why,
    }


def describe_unpatched(lab: Lab, circuits: tuple[Circuit, ...]) -> Iterator[str]:
    """Circuits that are missing or pass no light: no fibre's fault."""
    for circuit in circuits:
        pair = f"{circuit.input_port} -> {circuit.output_port}"
        yield f"not patched: {lab.link_label(circuit.link)}, {circuit.switch} passes no light {pair}: `testbed apply`"


def _fibre(lab: Lab, loss: Loss) -> str:
    nic = lab.nic(loss.nic)
    end = nic.transmit if loss.fibre == "transmit" else nic.receive
    return f"the {loss.fibre} fibre of {lab.nic_label(loss.nic)} at {end.switch}:{end.port}"
