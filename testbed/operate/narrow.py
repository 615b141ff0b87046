"""Narrowing of findings to one fibre, or one cable, by removing or moving circuits for a moment.

If two links receive each other's frames, either their transmit fibres or their receive fibres are swapped. To find out,
the circuit of one link is removed. If that link's own target goes dark, the transmit fibres are swapped. If another NIC
goes dark, the receive fibres are swapped. A single link that is reported as swapped is tested in the same way.

For a dark link, the monitor of the switch or the readings of a module show which fibre is out, if the lab has them.
Otherwise the light of a dark NIC, which sends no data, is looped back to it. That shows whether both of its fibres pass
light. The light of an idle NIC serves too. Circuits of links that carry data are not touched.

The circuits are always restored.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

from ocs_drivers.model import CrossConnects, Power
from testbed.design.model import Link, Nic
from testbed.lab.hosts.receivers import ReceiverReading, read_receivers
from testbed.lab.model import FibreEnd, Lab
from testbed.operate.design import Design
from testbed.operate.engine.planned import render_goal
from testbed.operate.light import find_held_circuits, read_carriers
from testbed.operate.model import Circuit, LabPlan, LinkFinding, SwitchPlan, VerifyReport
from testbed.operate.probe_findings import FibreSide, locate_fibre_end
from testbed.operate.session import AddNote, LabSession

_NARROW_HINT = "; `testbed verify --narrow`"
SETTLE_S = 2.0
"""Time limit for a NIC to notice that its light comes or goes."""
POLL_S = 0.05


def narrow(
    session: LabSession, design: Design, report: VerifyReport, add_note: AddNote = lambda _text: None
) -> VerifyReport:
    """Return the report with findings of swapped and of dark fibres narrowed to one end, where possible.

    Only circuits of the findings and free circuits are changed, each with an intent in the journal. `add_note` is
    called for each change. With modelled hosts, the report is returned unchanged. Raises the errors of
    `LabSession.apply`, and `HostError`.
    """
    if session.fleet is None:
        return report
    link_by_label = {session.lab.link_label(link): link for link in design.wiring.links}
    dark_fibres = DarkFibres(session, design, add_note)
    findings = []
    for finding in report.findings:
        labels = finding.subject.split(" and ")
        links = [link_by_label[label] for label in labels if label in link_by_label]
        if finding.kind != "swapped":
            findings.append(dark_fibres.narrow(finding))
            continue
        narrowed_finding = finding
        if len(links) == len(labels):
            narrowed_finding = _narrow_swapped(session, design, finding, links, add_note)
        findings.append(replace(narrowed_finding, hint=narrowed_finding.hint.partition(_NARROW_HINT)[0]))
    return replace(report, findings=tuple(findings))


def _narrow_swapped(
    session: LabSession, design: Design, finding: LinkFinding, links: list[Link], add_note: AddNote
) -> LinkFinding:
    """Return the finding with the swapped end. It is about one link, two links, or the four links of two cables."""
    first_link = links[0]
    snapshots = {name: switch.read() for name, switch in session.switches.items()}
    circuit = next(
        (
            held_circuit
            for held_circuit in find_held_circuits(session.lab, snapshots)
            if held_circuit.link == first_link
        ),
        None,
    )
    dark_nic = _find_dark_nic(session, design, circuit, links, add_note) if circuit else None
    if dark_nic is None:
        return finding
    lab = session.lab
    is_target_dark = dark_nic == first_link.target
    side: FibreSide = "transmit" if is_target_dark else "receive"
    evidence = f"without the circuit of {lab.link_label(first_link)}, {lab.nic_label(dark_nic)} went dark"
    if len(links) == 1:
        nic = first_link.source if is_target_dark else first_link.target
        location = f"the {side} fibre at {locate_fibre_end(lab, nic, side)}"
        conclusion = (
            f"is not that of {lab.nic_label(nic)}"
            if is_target_dark
            else f"leads to {lab.nic_label(dark_nic)}"
        )
        return replace(finding, detail=f"{location} {conclusion}: {evidence}")
    nics = [link.source if is_target_dark else link.target for link in links[:2]]
    labels_text = " and ".join(lab.nic_label(nic) for nic in nics)
    if len(links) == 4:
        return replace(finding, detail=f"the whole cables of {labels_text} are exchanged: {evidence}")
    locations_text = " and ".join(locate_fibre_end(lab, nic, side) for nic in nics)
    return replace(
        finding, detail=f"the {side} fibres at {locations_text} ({labels_text}) are swapped: {evidence}"
    )


def _find_dark_nic(
    session: LabSession, design: Design, circuit: Circuit, links: list[Link], add_note: AddNote
) -> Nic | None:
    """Return the only NIC that goes dark while a circuit is removed, or None.

    For two or more links, only their targets are watched. For a single link, every NIC with light is watched.
    """
    assert session.fleet is not None
    earlier_carriers = read_carriers(session.fleet, session.lab)
    watched_nics = (
        [link.target for link in links[:2]]
        if len(links) > 1
        else [nic for nic, has_carrier in earlier_carriers.items() if has_carrier]
    )
    # A NIC that is already dark cannot go dark, so this trial would show nothing.
    if not all(earlier_carriers.get(nic, False) for nic in watched_nics):
        return None
    new_outputs = {circuit.input_port: None}
    with change_circuits(session, design, circuit.switch, new_outputs, add_note):
        carriers = wait_for_carriers(
            session, lambda current_carriers: not all(current_carriers[nic] for nic in watched_nics)
        )
    dark_nics = [nic for nic in watched_nics if not carriers[nic]]
    return dark_nics[0] if len(dark_nics) == 1 else None


@contextmanager
def change_circuits(
    session: LabSession, design: Design, switch: str, new_outputs: Mapping[int, int | None], add_note: AddNote
) -> Iterator[None]:
    """Connect inputs of one switch to `new_outputs` (None for no output) within the block, then restore them.

    Circuits that end at these outputs are removed during the block; other circuits are not touched. Both changes are
    one operation, whose goal is the earlier state. If it is killed, commands report it until `testbed resume` restores
    the circuits. Raises the errors of `LabSession.apply`.
    """
    earlier_circuits = session.switches[switch].read().connections
    outputs = {output for output in new_outputs.values() if output is not None}
    scope = frozenset(new_outputs) | {
        earlier_circuits.inputs_by_output[output]
        for output in outputs
        if output in earlier_circuits.inputs_by_output
    }
    old_pairs = ", ".join(
        f"{pair[0]} -> {pair[1]}" for pair in sorted(earlier_circuits.pairs) if pair[0] in scope
    )
    new_pairs = ", ".join(
        f"{source} -> {output}" for source, output in new_outputs.items() if output is not None
    )
    removal = f"circuit {old_pairs} of {switch} is removed for a moment" if old_pairs else ""
    addition = f"circuit {new_pairs} of {switch} is made for a moment" if new_pairs else ""
    add_note("; ".join(note for note in (removal, addition) if note))
    restore_plan = _plan_inputs(
        session,
        switch,
        {source: earlier_circuits[source] for source in scope if source in earlier_circuits},
        scope,
    )
    goal = render_goal({switch: (session.switches[switch].address, restore_plan)})
    with session.operation("trial", "which fibre it is", goal=goal):
        try:
            trial_pairs = {source: output for source, output in new_outputs.items() if output is not None}
            _apply_switch_plan(session, design, _plan_inputs(session, switch, trial_pairs, scope))
            yield
        finally:
            _apply_switch_plan(session, design, _plan_inputs(session, switch, restore_plan.target, scope))
            add_note(
                f"circuit {old_pairs} of {switch} is restored"
                if old_pairs
                else f"circuit {new_pairs} of {switch} is removed"
            )


def wait_for_carriers(
    session: LabSession, has_settled: Callable[[Mapping[Nic, bool]], bool]
) -> Mapping[Nic, bool]:
    """Poll the carrier of every NIC until `has_settled` is true or `SETTLE_S` has passed; return the last reading."""
    assert session.fleet is not None
    deadline_s = time.monotonic() + SETTLE_S
    while True:
        carriers = read_carriers(session.fleet, session.lab)
        if has_settled(carriers) or time.monotonic() > deadline_s:
            return carriers
        time.sleep(POLL_S)


def _plan_inputs(
    session: LabSession, name: str, pairs: Mapping[int, int], scope: frozenset[int]
) -> SwitchPlan:
    switch = session.switches[name]
    snapshot, target = switch.read(), CrossConnects(pairs)
    return SwitchPlan(name, target, scope, snapshot, switch.plan(target, snapshot, scope))


def _apply_switch_plan(session: LabSession, design: Design, switch_plan: SwitchPlan) -> None:
    session.apply(LabPlan(design.wiring, (), (switch_plan,)))


@dataclass(frozen=True)
class DarkFibres:
    """Narrowing of findings about links without light, one finding at a time."""

    session: LabSession
    design: Design
    add_note: AddNote

    def narrow(self, finding: LinkFinding) -> LinkFinding:
        """Return the finding with the fibre that is out, if known. Raises the errors of `LabSession.apply`."""
        link_by_label = {self._lab.link_label(link): link for link in self.design.wiring.links}
        link = link_by_label.get(finding.subject)
        if finding.kind == "dark_cable":
            return self._narrow_dark_cable(finding)
        if link is None or finding.kind not in ("no_light", "no_carrier"):
            return finding
        detail = self._blame_sender(link) if finding.kind == "no_light" else self._blame_fibre(link)
        return replace(finding, detail=detail) if detail else finding

    @property
    def _lab(self) -> Lab:
        return self.session.lab

    @cached_property
    def _reading_by_receiver(self) -> dict[tuple[str, str], ReceiverReading]:
        return read_receivers(self.session.fleet, self._lab) if self.session.fleet else {}

    def _blame_sender(self, link: Link) -> str:
        """Return a detail that blames the laser or the transmit fibre of a link whose light does not enter the switch.

        Return an empty string if the switch has no monitor, light enters it, or the module reports no laser power.
        """
        input_power = self._read_power(self._lab.get_nic(link.source).transmit)
        if input_power is None or not input_power.below_floor:
            return ""
        reading = self._reading_by_receiver.get(
            (self._lab.hosts[link.source.node].name, self._lab.get_nic(link.source).name)
        )
        laser_dbm = reading.sent_power_dbm if reading else None
        label, location = (
            self._lab.nic_label(link.source),
            locate_fibre_end(self._lab, link.source, "transmit"),
        )
        if laser_dbm is None:
            return ""
        if not math.isfinite(laser_dbm):
            return f"the module of {label} reports that its laser is dark, and no light enters {location}"
        return f"the transmit fibre at {location} ({label}) is out: its module sends {laser_dbm:.1f} dBm, none enters"

    def _blame_fibre(self, link: Link) -> str:
        """Return a detail that names the fibre that is out, for a link whose target is dark, or "" if unknown."""
        transmit_end, receive_end = (
            self._lab.get_nic(link.source).transmit,
            self._lab.get_nic(link.target).receive,
        )
        if transmit_end.switch != receive_end.switch or transmit_end.switch not in self.session.switches:
            return ""
        held_circuits = self._read_held(receive_end.switch)
        if held_circuits.get(transmit_end.port) != receive_end.port:
            return ""
        output_power = self._read_power(receive_end)
        if output_power is not None:
            return (
                ""
                if output_power.below_floor
                else self._describe_outage(link, "receive", "light leaves the switch there")
            )
        for source, target, side in self._list_trials(link, held_circuits):
            if self._is_lit_by(target, source):
                light = "its own light" if source == link.source else self._lab.nic_label(source)
                return self._describe_outage(link, side, f"{self._lab.nic_label(target)} is lit by {light}")
        return ""

    def _list_trials(self, link: Link, held_circuits: CrossConnects) -> Iterator[tuple[Nic, Nic, FibreSide]]:
        """Yield source and target NIC of each trial, with the side of the link that is out if the target is lit.

        The loops of the two ends come first, because they find a single fault with one trial. Idle NICs may be many.
        """
        if self._can_loop_back(link.target, link, held_circuits):
            yield link.target, link.target, "transmit"
        if self._can_loop_back(link.source, link, held_circuits):
            yield link.source, link.source, "receive"
        for nic in self._find_free_nics(link, held_circuits):
            yield nic, link.target, "transmit"

    def _describe_outage(self, link: Link, side: FibreSide, evidence: str) -> str:
        if side == "receive":
            location, label = (
                locate_fibre_end(self._lab, link.target, "receive"),
                self._lab.nic_label(link.target),
            )
            return f"the receive fibre at {location} ({label}) is out: {evidence}"
        location, label = (
            locate_fibre_end(self._lab, link.source, "transmit"),
            self._lab.nic_label(link.source),
        )
        return f"the transmit fibre at {location} ({label}), or its laser, is out: {evidence}"

    def _narrow_dark_cable(self, finding: LinkFinding) -> LinkFinding:
        """Return a finding about two cables, of which one is out. If one passes light, the detail blames the other."""
        nic_by_label = {self._lab.nic_label(nic): nic for link in self.design.wiring.links for nic in link}
        cable_ends = [
            nic_by_label[dark_label]
            for dark_label in finding.subject.split(" and ")
            if dark_label in nic_by_label
        ]
        if len(cable_ends) != 2:
            return finding
        link = Link(cable_ends[0], cable_ends[1])
        for nic, other_nic in (cable_ends, reversed(cable_ends)):
            switch = self._lab.get_nic(nic).receive.switch
            if switch not in self.session.switches:
                continue
            if self._can_loop_back(nic, link, self._read_held(switch)) and self._is_lit_by(nic, nic):
                dark_label, lit_label = self._lab.nic_label(other_nic), self._lab.nic_label(nic)
                detail = (
                    f"the cable of {dark_label} is out, or has no power: {lit_label} is lit by its own light"
                )
                return replace(finding, detail=detail)
        return finding

    def _find_free_nics(self, link: Link, held_circuits: CrossConnects) -> Iterator[Nic]:
        """Yield idle NICs whose light may go to the dark target of a link."""
        switch = self._lab.get_nic(link.target).receive.switch
        for node, host in enumerate(self._lab.hosts):
            for index, nic in enumerate(host.nics):
                is_free = (
                    host.name not in self.session.unreachable and held_circuits.get(nic.transmit.port) is None
                )
                if nic.transmit.switch == switch and is_free and Nic(node, index) != link.target:
                    yield Nic(node, index)

    def _can_loop_back(self, nic: Nic, link: Link, held_circuits: CrossConnects) -> bool:
        """Return whether looping a NIC of a dark link back to itself takes light from no other NIC."""
        transmit_end, receive_end = self._lab.get_nic(nic).transmit, self._lab.get_nic(nic).receive
        if transmit_end.switch != receive_end.switch:
            return False
        link_receive_ends = {self._lab.get_nic(nic_of_link).receive for nic_of_link in link}
        held_output, held_input = (
            held_circuits.get(transmit_end.port),
            held_circuits.inputs_by_output.get(receive_end.port),
        )
        link_outputs = {
            nic_of_link.port for nic_of_link in link_receive_ends if nic_of_link.switch == transmit_end.switch
        }
        link_inputs = {self._lab.get_nic(nic_of_link).transmit.port for nic_of_link in link}
        return (held_output is None or held_output in link_outputs) and (
            held_input is None or held_input in link_inputs
        )

    def _is_lit_by(self, target: Nic, source: Nic) -> bool:
        receive_end, source_port = self._lab.get_nic(target).receive, self._lab.get_nic(source).transmit.port
        with change_circuits(
            self.session, self.design, receive_end.switch, {source_port: receive_end.port}, self.add_note
        ):
            return wait_for_carriers(self.session, lambda carriers: carriers.get(target, False)).get(
                target, False
            )

    def _read_held(self, switch: str) -> CrossConnects:
        return self.session.switches[switch].read().connections

    def _read_power(self, fibre_end: FibreEnd) -> Power | None:
        switch = self.session.switches.get(fibre_end.switch)
        if switch is None or not switch.capabilities.power_monitor:
            return None
        return switch.power([fibre_end.port]).get(fibre_end.port)
