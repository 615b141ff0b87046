"""Proof that a lab is as planned: all evidence is gathered, then judged together, so that each cause is one finding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ocs_drivers.contract import OpticalSwitch
from testbed.design.model import Link, Nic, Routes
from testbed.lab.hosts.forwarding import plan_forwarding
from testbed.lab.hosts.kernel_state import UNKNOWN_MAC, plan_state
from testbed.lab.model import Lab
from testbed.operate.boards import BoardLink, find_board_links
from testbed.operate.light import find_held_circuits, is_circuit_dark, judge_circuits, read_light
from testbed.operate.model import Circuit, FindingKind, LabPlan, LinkFinding, VerifyReport
from testbed.operate.probe_findings import count_received_links, find_silent_links, judge_probe
from testbed.operate.proof.board_findings import judge_boards
from testbed.operate.proof.effects import InterruptedState, OperationEffects
from testbed.operate.proof.evidence import Evidence, gather_evidence
from testbed.operate.proof.host_findings import NOT_CONFIGURED, OTHER_TOPOLOGY, WRONG_MTU, judge_host
from testbed.operate.proof.reach_findings import (
    BlamedParts,
    RoundTrip,
    count_pings,
    find_loss_floor,
    judge_reachability,
)
from testbed.operate.proof.receivers import judge_receivers, merge_cable_findings
from testbed.operate.unfinished import IncompleteOperation

if TYPE_CHECKING:
    from testbed.lab.hosts.fleet import Fleet


SWITCH_OFF = FindingKind(
    "switch_off",
    "a switch does not answer; its circuits and its light are not judged",
    "check its power, its management cable and the address in the lab file",
)
HOST_OFF = FindingKind(
    "host_off",
    "a host does not answer over SSH; its links are not judged",
    "check its power, its management network and sshd",
)
NOT_PROBED = FindingKind(
    "not_probed",
    "a host answers, but some checks cannot run on it; what these checks cover is not judged",
    "the checks need root, Python 3, `ip`, `tc` and `ethtool` on the host; the detail says what failed",
    stops_packets=False,
)
UNDER_CHANGE = FindingKind(
    "changing",
    "circuits of a switch change while `verify` reads them",
    "wait until the other operation has ended, then run `testbed verify` again",
)

_MERGED_KINDS = {kind.name: kind for kind in (NOT_CONFIGURED, OTHER_TOPOLOGY)}


def verify_circuits(
    lab: Lab, circuits: Iterable[Circuit], switches: Mapping[str, OpticalSwitch]
) -> tuple[LinkFinding, ...]:
    """Read the switches and return findings about their circuits. Nothing is changed."""
    planned_circuits = tuple(circuits)
    return judge_circuits(lab, planned_circuits, read_light(planned_circuits, switches))


def verify_lab(
    lab: Lab,
    plan: LabPlan,
    switches: Mapping[str, OpticalSwitch],
    fleet: Fleet | None = None,
    *,
    epoch: int = 0,
    routes: Routes | None = None,
    further_routes: tuple[Routes, ...] = (),
    unreachable: Mapping[str, str] | None = None,
    unfinished: tuple[IncompleteOperation, ...] = (),
) -> VerifyReport:
    """Read the lab and compare it with a plan: the switches; with a fleet, every fibre; with `routes`, also packets.

    Without a fleet (modelled hosts), only the switches are read and `links_received` is 0. `unreachable` maps switches
    and hosts that do not answer to the reason; each is a finding. Each unfinished operation (`unfinished`) is a finding
    with all that it explains. Raises the drivers' errors and `HostError`, but not for differences from the plan.
    """
    route_sets = (routes, *further_routes) if routes else ()
    ping_count_by_trip = count_pings(route_sets) if route_sets else None
    evidence = gather_evidence(
        lab,
        plan,
        switches,
        fleet,
        epoch=epoch,
        unreachable_reasons=unreachable or {},
        ping_count_by_trip=ping_count_by_trip,
    )
    findings = judge_evidence(lab, plan, routes, evidence, unfinished, further_routes)
    held_pairs = {
        name: tuple(sorted(reading.snapshot.connections.pairs))
        for name, reading in evidence.reading_by_switch.items()
    }
    received_count = (
        count_received_links(lab, plan.wiring, evidence.probe_report) if evidence.probe_report else 0
    )
    report = VerifyReport(len(plan.circuits), received_count, findings, held=held_pairs)
    if not evidence.reached:
        return report
    pair_count = plan.wiring.nodes * (plan.wiring.nodes - 1)
    unanswered_pairs = {pair for reachability in evidence.reached for pair in reachability.missing_pairs}
    node_by_host = {host.name: node for node, host in enumerate(lab.hosts)}
    ping_counts = {
        RoundTrip(set_number, node_by_host[source], node_by_host[target]): count
        for set_number, reachability in enumerate(evidence.reached)
        for (source, target), (_, count) in reachability.loss_by_pair.items()
    }
    loss_floor = find_loss_floor(route_sets, ping_counts)
    answered_count = len(evidence.reached[0].answered_pairs - unanswered_pairs)
    return replace(report, pairs=pair_count, pairs_reached=answered_count, loss_floor=loss_floor)


def judge_evidence(
    lab: Lab,
    plan: LabPlan,
    routes: Routes | None,
    evidence: Evidence,
    unfinished_operations: tuple[IncompleteOperation, ...] = (),
    further_routes: tuple[Routes, ...] = (),
) -> tuple[LinkFinding, ...]:
    """Return the findings about the evidence. Kernels and pings are judged only with `routes`.

    Unfinished operations (`unfinished_operations`) come first, each with what it explains. `further_routes` holds the
    other sets of routes.
    """
    macs_by_host = {host.name: {nic.name: _find_mac(evidence, host.name, nic.name) for nic in host.nics}
            for host in (*lab.hosts, *lab.other_hosts)}  # fmt: skip
    judgement = _Judgement(
        lab, plan, evidence, OperationEffects(lab, plan, evidence, macs_by_host, unfinished_operations)
    )
    if evidence.changing:
        return (*judgement.effects.report_findings({}), *_judge_devices(judgement))
    findings_by_host, interrupted_states = (
        _judge_hosts(judgement, routes, further_routes) if routes else ({}, {})
    )
    findings = [
        *judgement.effects.report_findings(interrupted_states),
        *_judge_devices(judgement),
        *_judge_light(judgement),
    ]
    route_sets = (routes, *further_routes) if routes else ()
    blamed_parts = BlamedParts(
        judgement.silent_links, judgement.find_failed_nodes(findings_by_host, interrupted_states)
    )
    findings += judge_boards(judgement.board_links, evidence.reading_by_switch, evidence.has_answer_by_label)
    packet_findings = judge_reachability(
        lab, route_sets, evidence.reached, blamed_parts, judgement.select_nodes(WRONG_MTU, findings_by_host)
    )
    return (*findings, *_merge_host_findings(findings_by_host), *packet_findings)


@dataclass(frozen=True)
class _Judgement:
    """A plan and the evidence about it, with conclusions from both."""

    lab: Lab
    plan: LabPlan
    evidence: Evidence
    effects: OperationEffects

    @cached_property
    def silent_nics(self) -> frozenset[Nic]:
        """NICs that cannot send or receive because their host is off, or their interface is down or enslaved."""
        return frozenset(
            Nic(node, index)
            for node, host in enumerate(self.lab.hosts)
            for index, nic in enumerate(host.nics)
            if host.name in self.evidence.unreachable_reasons or not self._is_up(host.name, nic.name)
        )

    def _is_up(self, host: str, nic: str) -> bool:
        kernel = self.evidence.kernel_by_host.get(host)
        interface = kernel.interfaces.get(nic) if kernel else None
        return kernel is None or (interface is not None and interface.is_up and not interface.master)

    @cached_property
    def filtered_nics(self) -> frozenset[Nic]:
        """NICs at which a filter takes incoming packets, including probe frames, before the kernel sees them."""
        return frozenset(
            Nic(node, index)
            for node, host in enumerate(self.lab.hosts)
            if (kernel := self.evidence.kernel_by_host.get(host.name))
            for index, nic in enumerate(host.nics)
            if ((interface := kernel.interfaces.get(nic.name)) and interface.has_ingress_hook)
            or any(
                packet_filter.is_at_nic and packet_filter.concerns([nic.name], ())
                for packet_filter in kernel.filters
            )
        )

    @cached_property
    def current_circuits(self) -> tuple[Circuit, ...]:
        """Circuits that switches hold between NICs of the lab, and planned circuits of switches without a reading."""
        snapshots = {name: reading.snapshot for name, reading in self.evidence.reading_by_switch.items()}
        assumed_circuits = (circuit for circuit in self.plan.circuits if circuit.switch not in snapshots)
        return (*find_held_circuits(self.lab, snapshots), *assumed_circuits)

    @cached_property
    def board_links(self) -> tuple[BoardLink, ...]:
        """NICs that the switches connect with a port of a board."""
        return find_board_links(
            self.lab,
            {name: reading.snapshot.connections for name, reading in self.evidence.reading_by_switch.items()},
        )

    @cached_property
    def dark_links(self) -> frozenset[Link]:
        """Links that carry no light according to the reading of their switch."""
        readings = self.evidence.reading_by_switch
        return frozenset(
            circuit.link
            for circuit in (*self.plan.circuits, *self.current_circuits)
            if circuit.switch in readings and is_circuit_dark(circuit, readings[circuit.switch])
        )

    def has_carrier(self, nic: Nic) -> bool:
        """Return whether a NIC reports carrier."""
        report = self.evidence.probe_report and self.evidence.probe_report.nics.get(
            (self.lab.hosts[nic.node].name, self.lab.get_nic(nic).name)
        )
        return bool(report and report.has_carrier)

    @cached_property
    def excused_links(self) -> frozenset[Link]:
        """Links to ignore in the link probe, because another finding explains why no frame arrives."""
        incoming_link_by_nic, planned_links = self.plan.wiring.link_by_receiver, set(self.plan.wiring.links)
        return frozenset(
            circuit.link
            for circuit in self.current_circuits
            if circuit.link in self.dark_links
            or circuit.link not in planned_links  # reported as an extra circuit
            or circuit.switch in self.evidence.unreachable_reasons
            or not self.silent_nics.isdisjoint(circuit.link)
            or circuit.link.target in self.filtered_nics
            or self._is_unprobed(circuit.link)
            or (
                circuit.link.source in incoming_link_by_nic
                and not self.has_carrier(circuit.link.source)
                and self.has_carrier(circuit.link.target)
            )
        )

    def _is_unprobed(self, link: Link) -> bool:
        """Return whether an end of the link could not take part in the probe."""
        return any(self.lab.hosts[nic.node].name in self.evidence.unprobed_hosts for nic in link)

    @cached_property
    def silent_links(self) -> frozenset[Link]:
        """Planned links on which no probe frame arrived. The reason has its own finding."""
        probe = self.evidence.probe_report
        silent_links = find_silent_links(self.lab, self.plan.wiring, probe) if probe else frozenset()
        return frozenset(link for link in silent_links if not self._is_unprobed(link))

    def select_nodes(
        self, kind: FindingKind, findings_by_host: Mapping[str, Iterable[LinkFinding]]
    ) -> frozenset[int]:
        """Return the nodes that have a finding of this kind."""
        return frozenset(
            node
            for node, host in enumerate(self.lab.hosts)
            if any(finding.kind == kind.name for finding in findings_by_host.get(host.name, ()))
        )

    def find_failed_nodes(
        self, findings_by_host: Mapping[str, Iterable[LinkFinding]], interrupted_hosts: Iterable[str]
    ) -> frozenset[int]:
        """Return the nodes that other findings blame for lost packets."""
        failing_hosts = {*self.evidence.unreachable_reasons, *interrupted_hosts} | {
            host
            for host, findings in findings_by_host.items()
            if any(finding.stops_packets for finding in findings)
        }
        return frozenset(node for node, host in enumerate(self.lab.hosts) if host.name in failing_hosts)


def _judge_devices(judgement: _Judgement) -> Iterator[LinkFinding]:
    """Yield findings about switches and hosts that do not answer, cannot run a part of the proof, or keep changing."""
    switches = {switch.name for switch in judgement.lab.switches}
    for name, reason in judgement.evidence.unreachable_reasons.items():
        yield (SWITCH_OFF if name in switches else HOST_OFF).report(name, reason)
    for host, reason_by_part in judgement.evidence.failures_by_host.items():
        detail = "; ".join(f"{part}: {reason}" for part, reason in reason_by_part.items())
        yield NOT_PROBED.report(host, detail)
    for name in judgement.evidence.changing:
        yield UNDER_CHANGE.report(name, f"the circuits of {name} changed during every reading")


def _judge_light(judgement: _Judgement) -> Iterator[LinkFinding]:
    """Yield findings about circuits, light and fibres."""
    lab, plan, evidence = judgement.lab, judgement.plan, judgement.evidence
    explained_labels = judgement.effects.explained_labels
    findings = judge_circuits(
        lab, plan.circuits, evidence.reading_by_switch, judgement.silent_nics, explained_labels
    )
    if evidence.probe_report:
        wiring = replace(plan.wiring, links=tuple(circuit.link for circuit in judgement.current_circuits))
        findings += judge_probe(lab, wiring, evidence.probe_report, judgement.excused_links)
    yield from merge_cable_findings(lab, plan.circuits, evidence.reading_by_switch, findings)
    dark_links = judgement.dark_links | judgement.silent_links
    yield from judge_receivers(lab, plan.circuits, evidence.reading_by_switch, evidence.received, dark_links)


def _judge_hosts(
    judgement: _Judgement, routes: Routes, further_routes: tuple[Routes, ...]
) -> tuple[dict[str, tuple[LinkFinding, ...]], dict[str, InterruptedState]]:
    """Return the findings of each host whose kernel was read, and the states in which an unfinished apply left it."""
    lab, kernel_by_host = judgement.lab, judgement.evidence.kernel_by_host
    forwarding_by_host = plan_forwarding(
        lab, judgement.plan.wiring, routes, judgement.effects.macs_by_host, further_routes
    )
    findings_by_host, interrupted_state_by_host = {}, {}
    for host in lab.hosts:
        if host.name in kernel_by_host and host.name in forwarding_by_host:
            host_forwarding, kernel_state = forwarding_by_host[host.name], kernel_by_host[host.name]
            planned_state = plan_state(host_forwarding)
            interrupted_state = judgement.effects.find_interrupted_state(host, host_forwarding, kernel_state)
            if interrupted_state:
                interrupted_state_by_host[host.name] = interrupted_state
                planned_state = interrupted_state.state
            findings_by_host[host.name] = judge_host(lab, host, planned_state, kernel_state)
    return findings_by_host, interrupted_state_by_host


def _find_mac(evidence: Evidence, host: str, nic: str) -> str:
    kernel = evidence.kernel_by_host.get(host)
    interface = kernel.interfaces.get(nic) if kernel else None
    return interface.mac if interface and interface.mac else UNKNOWN_MAC


def _merge_host_findings(findings_by_host: Mapping[str, tuple[LinkFinding, ...]]) -> Iterator[LinkFinding]:
    """Yield the findings of all hosts. Hosts without configuration are one finding, hosts of another topology too."""
    for name, kind in _MERGED_KINDS.items():
        merged_findings = [
            finding for findings in findings_by_host.values() for finding in findings if finding.kind == name
        ]
        if merged_findings:
            subjects = tuple(finding.subject for finding in merged_findings)
            detail = "; ".join(finding.detail for finding in merged_findings[:2])
            detail += f"; the same on {len(merged_findings) - 2} more" if len(merged_findings) > 2 else ""
            yield kind.report(", ".join(subjects), detail, parts=subjects)
    for findings in findings_by_host.values():
        yield from (finding for finding in findings if finding.kind not in _MERGED_KINDS)
