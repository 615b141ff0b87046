"""Repair of a lab that loses a fibre or a GPU while a collective runs: detours at once, then new circuits.

    observe  ->  plan (`testbed.design.repair`)  ->  detours over a borrowed link  ->  re-patch by journal  ->  verify

TCP connections use node addresses, and every next hop has a permanent entry in the neighbour table. So a running
collective waits and then continues, and no rank restarts. Nothing is changed unless the switches hold the circuits of
the topology, or of a repair of it.

No reading shows a lost receive fibre after its circuit is removed, so a repair record keeps the lost fibres. A record
is valid only while the switches hold exactly its links: `testbed apply` ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from lightbed.wording import format_count
from ocs_drivers.model import Snapshot
from testbed.design.model import Link, Nic, Topology, Wiring
from testbed.design.repair import (
    CurrentLinks,
    Detour,
    Repair,
    apply_detours,
    find_non_ring_pairs,
    plan_repair,
)
from testbed.design.routing.routes import find_routes
from testbed.errors import DriftError, TopologyError
from testbed.lab.model import Lab
from testbed.operate.apply import check_no_drift
from testbed.operate.boards import find_free_circuits
from testbed.operate.design import Design, replace_routes
from testbed.operate.failure_rules import Gpu, find_gpu_losses, find_lost_nics, list_failed_gpus
from testbed.operate.intent import TopologySource
from testbed.operate.light import Loss, LossObservation, LostPart, observe_losses
from testbed.operate.model import Circuit, LabPlan, VerifyReport
from testbed.operate.plan import find_port_owners, label_pair, list_circuits, list_lab_ports, list_used_ports
from testbed.operate.session import DEFAULT_SOURCE, AddNote, Change, LabSession

if TYPE_CHECKING:
    from testbed.design.routing.route_sets import RouteSets


ChooseRoutes = Callable[[Topology], "RouteSets | None"]
_NO_DETOUR_MESSAGE = "no detour joins all hosts: their traffic waits for the circuits"


@dataclass(frozen=True, slots=True)
class RepairRecord:
    """Links of a topology (`planned_links`), the lost fibres, and the links after the repair (`repaired_links`)."""

    planned_links: frozenset[Link]
    losses: tuple[Loss, ...]
    repaired_links: frozenset[Link]

    def to_json(self, lab: Lab) -> dict[str, Any]:
        """Return the record for JSON documents, with NICs and links by their labels."""
        return {
            "planned": sorted(map(lab.link_label, self.planned_links)),
            "losses": make_losses_json(lab, self.losses),
            "links": sorted(map(lab.link_label, self.repaired_links)),
        }

    @classmethod
    def from_json(cls, lab: Lab, data: Mapping[str, Any]) -> RepairRecord | None:
        """Return the record in the output of `to_json`, or None if it names hosts or NICs that this lab lacks."""
        nic_by_label = {
            f"{host.name}/{nic.name}": Nic(node, index)
            for node, host in enumerate(lab.hosts)
            for index, nic in enumerate(host.nics)
        }

        def parse_link(label: str) -> Link:
            source, target = label.split(" -> ")
            return Link(nic_by_label[source], nic_by_label[target])

        try:
            losses = tuple(
                Loss(
                    nic_by_label[loss["nic"]],
                    cast("LostPart", loss["fibre"]),
                    parse_link(loss["link"]),
                    loss["sure"],
                )
                for loss in data["losses"]
            )
            return cls(
                frozenset(map(parse_link, data["planned"])), losses, frozenset(map(parse_link, data["links"]))
            )
        except KeyError:
            return None

    def is_in_force(self, lab: Lab, wiring: Wiring, snapshots: Mapping[str, Snapshot]) -> bool:
        """Return whether this is a repair of `wiring` and the switches hold the links of the repair."""
        repaired_wiring = replace(wiring, links=tuple(self.repaired_links))
        return self.planned_links == frozenset(wiring.links) and not find_differences(
            lab, repaired_wiring, snapshots
        )


def find_differences(lab: Lab, wiring: Wiring, snapshots: Mapping[str, Snapshot]) -> tuple[str, ...]:
    """Return the missing circuits of a wiring (`-a/nic1 -> b/nic1`), and extra circuits at the lab's ports (`+`).

    Circuits to boards at NICs that the wiring leaves free are not a difference.
    """
    lab_ports, owner_by_port = list_lab_ports(lab), find_port_owners(lab)
    circuits = list_circuits(lab, wiring)
    planned_circuits = {(circuit.switch, circuit.input_port, circuit.output_port) for circuit in circuits}
    circuits_by_switch = {name: snapshot.connections for name, snapshot in snapshots.items()}
    board_circuits = find_free_circuits(lab, circuits_by_switch, list_used_ports(circuits))
    current_circuits = {
        (name, *pair)
        for name, snapshot in snapshots.items()
        for pair in snapshot.connections.pairs
        if any((name, port) in lab_ports for port in pair)
    }

    def label_circuits(sign: str, circuits: set[tuple[str, int, int]]) -> list[str]:
        return [
            f"{sign}{label_pair(owner_by_port, name, (input_port, output_port))}"
            for name, input_port, output_port in sorted(circuits)
        ]

    return (
        *label_circuits("-", planned_circuits - current_circuits),
        *label_circuits("+", current_circuits - planned_circuits - board_circuits),
    )


@dataclass(frozen=True, slots=True)
class LabRepair:
    """A planned repair in two stages: the detours of `detour_design`, then the circuits of `repatched_design`.

    `detour_design` is None if the links that carry data do not connect all hosts. `repatched_design` is None if no
    circuit changes. `is_repaired` is True if the switches already hold the repair. `unexpected_circuits` lists circuits
    that belong neither to the topology nor to an earlier repair of it, and missing circuits. `record` must be stored
    for the next repair before anything changes.
    """

    observation: LossObservation
    repair: Repair
    detour_design: Design | None
    repatched_design: Design | None
    is_repaired: bool
    unexpected_circuits: tuple[str, ...]
    record: RepairRecord


@dataclass(frozen=True, slots=True)
class RepairResult:
    """Outcome of a repair: the time from the start of each stage until its routes were installed, and the verification.

    `outage_s` is the time of the slowest switch. The durations of a skipped stage are 0.
    """

    reroute_s: float
    repatch_s: float
    outage_s: float
    verified: VerifyReport

    def as_json(self) -> dict[str, Any]:
        """Return the result for the record of a run."""
        findings = tuple(finding.as_json() for finding in self.verified.findings)
        return asdict(self) | {"verified": asdict(self.verified) | {"findings": findings}}


def observe_design(session: LabSession, design: Design) -> LossObservation:
    """Return the current losses of a design in force. Raises the switches' errors and `HostError`."""
    return observe_losses(
        session.lab, list_circuits(session.lab, design.wiring), session.switches, session.fleet
    )


def plan_lab_repair(
    lab: Lab,
    design: Design,
    observation: LossObservation,
    earlier_repair: RepairRecord | None = None,
    traffic_bytes: NDArray[np.float64] | None = None,
    choose_routes: ChooseRoutes = lambda _topology: None,
) -> LabRepair | None:
    """Return the repair of the observed losses, or None if nothing is lost.

    `traffic_bytes` (bytes per pair) decides the order in which links may be given up, see `find_non_ring_pairs`. If a
    GPU has failed, no link is given up, because only an idle GPU and its NICs can replace it. An `earlier_repair` in
    force adds the fibres that it recorded. Detours use only links that carry data. `choose_routes` returns the sets of
    routes of a plan on a topology. If it returns None, one set of shortest paths is used and routed over the detours.
    Raises `TopologyError` if a host is cut off, and `DriftError` if the reason is that another topology is in force.
    """
    # Keep each fibre once. The current observation comes last, because it also shows transmit fibres lost earlier.
    losses_by_fibre = {
        (loss.nic, loss.lost_part): loss
        for loss in (*(earlier_repair.losses if earlier_repair else ()), *observation.losses)
    }
    losses = tuple(losses_by_fibre.values())
    if not losses:
        return None
    expected_wiring = (
        replace(design.wiring, links=tuple(earlier_repair.repaired_links))
        if earlier_repair
        else design.wiring
    )
    unexpected_circuits = find_differences(lab, expected_wiring, observation.snapshots)
    # The idle NICs of a failed GPU cannot be used either.
    dead_nics = {loss.nic for loss in losses} | find_lost_nics(lab, set(list_failed_gpus(lab, losses)))
    try:
        repair = plan_repair(
            _add_idle_nics(lab, design.wiring),
            sorted(dead_nics),
            ()
            if any(loss.lost_part == "gpu" for loss in losses)
            else find_non_ring_pairs(design.topology, traffic_bytes),
            planes=len(lab.switches),
            failed_links=_find_affected_links(design.wiring, losses),
            current=CurrentLinks(observation.held_links, observation.carrying_links),
        )
    except TopologyError as error:
        if unexpected_circuits:
            raise DriftError(describe_unexpected_circuits(unexpected_circuits)) from error
        raise
    is_repaired = repair.restores_ring and not find_differences(lab, repair.repatched, observation.snapshots)
    has_new_circuits = is_repaired or repair.new_links or repair.removed_links
    return LabRepair(
        observation,
        repair,
        _design_detours(design, repair, choose_routes),
        _make_design(f"{design.name}, repaired", design, repair.repatched, choose_routes)
        if has_new_circuits
        else None,
        is_repaired,
        () if is_repaired else unexpected_circuits,
        RepairRecord(frozenset(design.wiring.links), losses, frozenset(repair.repatched.links)),
    )


def _find_affected_links(wiring: Wiring, losses: tuple[Loss, ...]) -> set[Link]:
    """Return the links that lost fibres and failed GPUs disable.

    A NIC without light does not send, so its outgoing link is included.
    """
    incoming_link_by_nic, outgoing_link_by_nic = wiring.link_by_receiver, wiring.link_by_transmitter
    dark_nics = {loss.nic for loss in losses if loss.lost_part in ("receive", "gpu")}
    dark_nics |= {
        outgoing_link_by_nic[loss.nic].target
        for loss in losses
        if loss.lost_part == "transmit" and loss.nic in outgoing_link_by_nic
    }
    lost_links = {
        link_by_nic[nic]
        for nic in dark_nics
        for link_by_nic in (incoming_link_by_nic, outgoing_link_by_nic)
        if nic in link_by_nic
    }
    if not wiring.simplex:
        dead_nics = {loss.nic for loss in losses}
        lost_links |= {link for link in wiring.links if dead_nics.intersection(link)}
    return lost_links


def add_failed_gpus(
    lab: Lab, design: Design, observation: LossObservation, failed_gpus: Collection[Gpu]
) -> LossObservation:
    """Return the observation with the losses that failed GPUs cause. Links of their NICs carry nothing."""
    losses = tuple(find_gpu_losses(lab, design.wiring, failed_gpus))
    dead_nics = find_lost_nics(lab, failed_gpus)
    carrying_links = frozenset(
        link for link in observation.carrying_links if not dead_nics.intersection(link)
    )
    return replace(observation, losses=(*observation.losses, *losses), carrying_links=carrying_links)


def _design_detours(design: Design, repair: Repair, choose_routes: ChooseRoutes) -> Design | None:
    if not all(detour.path for detour in repair.detours):
        return None
    rerouted_design = _make_design(f"{design.name}, rerouted", design, repair.running, choose_routes)
    if rerouted_design.route_sets is not None:
        return rerouted_design
    return replace(rerouted_design, routes=apply_detours(rerouted_design.routes, repair.detours))


def _add_idle_nics(lab: Lab, wiring: Wiring) -> Wiring:
    """Return the wiring with idle NICs as spares. With several switches, return it unchanged."""
    degree = min(len(host.nics) for host in lab.hosts) if len(lab.switches) == 1 else wiring.degree
    return Wiring(wiring.nodes, degree, wiring.simplex, wiring.links)


def _make_design(name: str, design: Design, wiring: Wiring, choose_routes: ChooseRoutes) -> Design:
    edges = tuple(sorted((link.source.node, link.target.node) for link in wiring.links))
    old_topology = design.topology
    topology = Topology(old_topology.nodes, wiring.degree, old_topology.simplex, old_topology.strides, edges)
    design_with_routes, routes = Design(name, topology, wiring, find_routes(wiring)), choose_routes(topology)
    return design_with_routes if routes is None else replace_routes(design_with_routes, routes)


def carry_out(
    session: LabSession,
    lab_repair: LabRepair,
    add_note: AddNote = lambda _text: None,
    *,
    topology_source: TopologySource = DEFAULT_SOURCE,
) -> RepairResult:
    """Execute both stages and verify them. Store new circuits as an epoch with `topology_source`.

    Raises what `LabSession.bring_up` raises, and `HostError`. Raises `DriftError`, and changes nothing, if the switches
    hold neither the topology nor a repair of it, or have changed since the observation. A lab that is repaired already
    keeps its circuits and gets no detours.
    """
    check_in_force(lab_repair)
    target_design = lab_repair.repatched_design or lab_repair.detour_design
    assert target_design is not None, "without detours and circuits there is no plan"
    plan = session.plan(target_design)
    check_no_drift(
        session.lab, lab_repair.observation.snapshots, {part.switch: part.snapshot for part in plan.switches}
    )
    if lab_repair.repatched_design is None:
        return carry_out_detours(session, lab_repair, plan, add_note)
    detour = None if lab_repair.is_repaired else lab_repair.detour_design
    if lab_repair.detour_design is None and not lab_repair.is_repaired:
        add_note(_NO_DETOUR_MESSAGE)
    change = Change("repair", topology_source.options_text, detour_design=detour)
    report = session.carry_out(
        lab_repair.repatched_design, plan, add_note, topology_source=topology_source, change=change
    )
    return RepairResult(report.detour_s, report.routes_s, report.apply_result.outage_s, report.verify_report)


def carry_out_detours(
    session: LabSession,
    lab_repair: LabRepair,
    plan: LabPlan,
    add_note: AddNote,
    *,
    resumed_operation: str | None = None,
) -> RepairResult:
    """Install detours around lost fibres if no circuit can help, and verify them in the same operation.

    Pass `resumed_operation` (an operation id) to resume an unfinished repair. Raises what `carry_out` raises.
    """
    with session.operation("repair", "around lost fibres", resumed_operation=resumed_operation) as operation:
        reroute_s = 0.0 if lab_repair.is_repaired else reroute(session, lab_repair, add_note)
        verify_report = _verify_detours(session, lab_repair, plan, add_note)
        session.writable_journal.record_proof(operation, is_proven=verify_report.ok)
    return RepairResult(reroute_s, 0.0, 0.0, verify_report)


def check_in_force(lab_repair: LabRepair) -> None:
    """Raise `DriftError` if the repair is not for the topology in force."""
    if lab_repair.unexpected_circuits:
        raise DriftError(f"{describe_unexpected_circuits(lab_repair.unexpected_circuits)}; nothing was done")


def describe_unexpected_circuits(unexpected_circuits: tuple[str, ...]) -> str:
    """Return an error message about circuits that belong neither to the topology nor to a repair of it."""
    missing_count = sum(label.startswith("-") for label in unexpected_circuits)
    missing_circuits = _count_with_verb(missing_count, "circuit")
    other_circuits = _count_with_verb(len(unexpected_circuits) - missing_count, "other")
    examples = ", ".join(unexpected_circuits[:4]) + (", ..." if len(unexpected_circuits) > 4 else "")
    return (
        f"the switches hold neither this topology nor a recorded repair of it: {missing_circuits} missing and "
        f"{other_circuits} there ({examples}). Give the --plan or options of the topology in force "
        "and the --runs-dir of its repair, or bring this one into force with `testbed apply`"
    )


def _count_with_verb(count: int, noun: str) -> str:
    return f"{format_count(count, noun)} {'is' if count == 1 else 'are'}"


def reroute(session: LabSession, lab_repair: LabRepair, add_note: AddNote = lambda _text: None) -> float:
    """Install the first stage, routes over detours. Return its duration in seconds, or 0 if no detours exist.

    Raises `DriftError` if another topology is in force, and `HostError`.
    """
    check_in_force(lab_repair)
    if lab_repair.detour_design is None:
        add_note(_NO_DETOUR_MESSAGE)
        return 0.0
    return session.install_detours(lab_repair.detour_design, add_note)


def _verify_detours(
    session: LabSession, lab_repair: LabRepair, plan: LabPlan, add_note: AddNote
) -> VerifyReport:
    """Verify the links that carry traffic. Circuits of lost fibres, which stay in place, do not count as findings."""
    dark_labels = {
        session.lab.link_label(link)
        for link in lab_repair.observation.held_links - lab_repair.observation.carrying_links
    }
    report = session.verify(plan)
    findings = tuple(
        finding
        for finding in report.findings
        if finding.kind != "extra_circuit" or not dark_labels.issuperset(finding.parts or (finding.subject,))
    )
    add_note(
        f"verified: {format_count(len(findings), 'finding')} on {format_count(report.circuits, 'remaining circuit')}"
    )
    return replace(report, findings=findings)


def describe_repair(lab: Lab, lab_repair: LabRepair) -> Iterator[str]:
    """Yield lost fibres and the planned changes as lines of text."""
    yield from describe_losses(lab, lab_repair.record.losses)
    if lab_repair.unexpected_circuits:
        yield describe_unexpected_circuits(lab_repair.unexpected_circuits)
        return
    for detour in _list_detours(lab_repair):
        path = ", ".join(map(lab.link_label, detour.path)) or "nothing: no path is left"
        yield f"at once: {lab.link_label(detour.lost_link)} over {path}"
    for verb, links in (("give up", lab_repair.repair.removed_links), ("make", lab_repair.repair.new_links)):
        for link in links:
            yield f"then: {verb} {lab.link_label(link)}"
    yield lab_repair.repair.reason
    held_links = lab_repair.observation.held_links
    yield from _list_unpatched_circuits(
        lab, (circuit for circuit in lab_repair.observation.unpatched_circuits if circuit.link in held_links)
    )


def describe_losses(lab: Lab, losses: Iterable[Loss]) -> Iterator[str]:
    """Yield lost fibres as lines of text."""
    for loss in losses:
        certainty_note = "" if loss.is_certain else " (or the one at the other end)"
        yield f"lost: {_describe_part(lab, loss)}{certainty_note}, for {lab.link_label(loss.link)}"


def make_losses_json(lab: Lab, losses: Iterable[Loss]) -> list[dict[str, Any]]:
    """Return lost fibres for JSON documents."""
    return [
        {
            "nic": lab.nic_label(loss.nic),
            "fibre": loss.lost_part,
            "link": lab.link_label(loss.link),
            "sure": loss.is_certain,
        }
        for loss in losses
    ]


def make_repair_json(lab: Lab, lab_repair: LabRepair) -> dict[str, Any]:
    """Return a planned repair for JSON documents."""

    def label_links(links: tuple[Link, ...]) -> list[str]:
        return [lab.link_label(link) for link in links]

    return {
        "lost": make_losses_json(lab, lab_repair.record.losses),
        "detours": [
            {"link": lab.link_label(detour.lost_link), "path": label_links(detour.path)}
            for detour in _list_detours(lab_repair)
        ],
        "remove": label_links(lab_repair.repair.removed_links),
        "make": label_links(lab_repair.repair.new_links),
        "why": lab_repair.repair.reason,
    }


def describe_unpatched_circuits(lab: Lab, design: Design, observation: LossObservation) -> Iterator[str]:
    """Yield lines about circuits that are missing or pass no light, or one line if another topology is in force."""
    unexpected_circuits = find_differences(lab, design.wiring, observation.snapshots)
    if observation.unpatched_circuits and any(label.startswith("+") for label in unexpected_circuits):
        yield describe_unexpected_circuits(unexpected_circuits)
        return
    yield from _list_unpatched_circuits(lab, observation.unpatched_circuits)


def _list_unpatched_circuits(lab: Lab, circuits: Iterable[Circuit]) -> Iterator[str]:
    for circuit in circuits:
        pair = f"{circuit.input_port} -> {circuit.output_port}"
        yield f"not patched: {lab.link_label(circuit.link)}, {circuit.switch} passes no light {pair}: `testbed apply`"


def _list_detours(lab_repair: LabRepair) -> tuple[Detour, ...]:
    """Return the detours to install. Links that the circuits of an earlier repair replace need none."""
    if lab_repair.is_repaired:
        return ()
    held_links = lab_repair.observation.held_links
    return tuple(
        detour
        for detour in lab_repair.repair.detours
        if detour.lost_link in held_links or len(detour.path) != 1
    )


def _describe_part(lab: Lab, loss: Loss) -> str:
    nic = lab.get_nic(loss.nic)
    if loss.lost_part == "gpu":
        return f"the GPU beside {lab.nic_label(loss.nic)}"
    fibre_end = nic.transmit if loss.lost_part == "transmit" else nic.receive
    return f"the {loss.lost_part} fibre of {lab.nic_label(loss.nic)} at {fibre_end.switch}:{fibre_end.port}"
