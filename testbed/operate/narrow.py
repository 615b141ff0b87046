"""Tell transmit from receive fibres, or one cable from the other, by taking circuits of findings down for a moment.

Two links that hear each other's sources look the same whether their transmit or their receive fibres are exchanged.
With the circuit of one link taken down the NIC that goes dark tells: that link's own target, if the exchanged ends are
at the sources; another NIC, if they are at the targets. Of a single link that is told as swapped it tells the same.

Which fibre of a dark link is out a monitor or a module tells where there is one, else a free circuit that is moved. A
NIC that is dark sends nothing, so its own light may be moved for a moment: led back into it, it tells whether both of
its fibres pass light. Light of a NIC that nobody uses does as well. Circuits of links that carry data stay.

The circuits are put back whatever happens.
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
from testbed.operate.engine.planned import goal_text
from testbed.operate.light import find_held_circuits, read_carriers
from testbed.operate.model import Circuit, LabPlan, LinkFinding, SwitchPlan, VerifyReport
from testbed.operate.probe_findings import Fibre, fibre_end
from testbed.operate.session import LabSession, Note

_ADVICE = "; `testbed verify --narrow`"
SETTLE_S = 2.0
"""Time in which a NIC notices that its light comes or goes."""
POLL_S = 0.05


def narrow(
    session: LabSession, design: Design, report: VerifyReport, note: Note = lambda _text: None
) -> VerifyReport:
    """Return the report with findings of swapped and of dark fibres narrowed to one end, where that can be told.

    Only circuits of the findings, and free ones, are touched, each with an intent in the journal; `note` is told
    which. Raises what `LabSession.apply` raises, and `HostError`.
    """
    if session.fleet is None:
        return report
    labels = {session.lab.link_label(link): link for link in design.wiring.links}
    dark = DarkFibres(session, design, note)
    findings = []
    for finding in report.findings:
        names = finding.subject.split(" and ")
        links = [labels[name] for name in names if name in labels]
        if finding.kind != "swapped":
            findings.append(dark.narrow(finding))
            continue
        found = finding
        if len(links) == len(names):
            found = _narrow_swapped(session, design, finding, links, note)
        findings.append(replace(found, hint=found.hint.partition(_ADVICE)[0]))
    return replace(report, findings=tuple(findings))


def _narrow_swapped(
    session: LabSession, design: Design, finding: LinkFinding, links: list[Link], note: Note
) -> LinkFinding:
    """Return the finding of one link, of two, or of four that two cables carry, with the end that is exchanged."""
    one = links[0]
    snapshots = {name: switch.read() for name, switch in session.switches.items()}
    circuit = next((c for c in find_held_circuits(session.lab, snapshots) if c.link == one), None)
    dark = _dark_without(session, design, circuit, links, note) if circuit else None
    if dark is None:
        return finding
    lab = session.lab
    at_source = dark == one.target
    side: Fibre = "transmit" if at_source else "receive"
    tried = f"without the circuit of {lab.link_label(one)}, {lab.nic_label(dark)} went dark"
    if len(links) == 1:
        nic = one.source if at_source else one.target
        place = f"the {side} fibre at {fibre_end(lab, nic, side)}"
        belongs = f"is not that of {lab.nic_label(nic)}" if at_source else f"leads to {lab.nic_label(dark)}"
        return replace(finding, detail=f"{place} {belongs}: {tried}")
    nics = [link.source if at_source else link.target for link in links[:2]]
    names = " and ".join(lab.nic_label(nic) for nic in nics)
    if len(links) == 4:
        return replace(finding, detail=f"the whole cables of {names} are exchanged: {tried}")
    places = " and ".join(fibre_end(lab, nic, side) for nic in nics)
    return replace(finding, detail=f"the {side} fibres at {places} ({names}) are swapped: {tried}")


def _dark_without(
    session: LabSession, design: Design, circuit: Circuit, links: list[Link], note: Note
) -> Nic | None:
    """Return the NIC that goes dark while a circuit is down; None when none or several do.

    Of two links or more it is one of their targets, of a single one any.
    """
    assert session.fleet is not None
    before = read_carriers(session.fleet, session.lab)
    targets = (
        [link.target for link in links[:2]] if len(links) > 1 else [nic for nic, lit in before.items() if lit]
    )
    if not all(before.get(nic, False) for nic in targets):
        return None
    wanted = {circuit.input_port: None}
    with change_circuits(session, design, circuit.switch, wanted, note):
        carriers = carriers_once(session, lambda found: not all(found[nic] for nic in targets))
    dark = [nic for nic in targets if not carriers[nic]]
    return dark[0] if len(dark) == 1 else None


@contextmanager
def change_circuits(
    session: LabSession, design: Design, switch: str, wanted: Mapping[int, int | None], note: Note
) -> Iterator[None]:
    """Hold inputs of one switch at other outputs, None for at none; whatever happens, all is put back.

    Circuits that end at these outputs are down meanwhile, and no others are touched. Both changes are one operation,
    whose goal is what was there: killed in between, it is named until it is resumed. Raises what `LabSession.apply`
    raises.
    """
    before = session.switches[switch].read().connections
    outputs = {output for output in wanted.values() if output is not None}
    scope = frozenset(wanted) | {before.inputs_of[output] for output in outputs if output in before.inputs_of}
    moved = ", ".join(f"{pair[0]} -> {pair[1]}" for pair in sorted(before.pairs) if pair[0] in scope)
    tried = ", ".join(f"{source} -> {output}" for source, output in wanted.items() if output is not None)
    down = f"circuit {moved} of {switch} is taken down for a moment" if moved else ""
    made = f"{tried} of {switch} is made for a moment" if tried else ""
    note("; ".join(part for part in (down, made) if part))
    back = _plan_inputs(session, switch, {i: before[i] for i in scope if i in before}, scope)
    goal = goal_text({switch: (session.switches[switch].address, back)})
    with session.operation("trial", "which fibre it is", goal=goal):
        try:
            tried_pairs = {i: o for i, o in wanted.items() if o is not None}
            _hold(session, design, _plan_inputs(session, switch, tried_pairs, scope))
            yield
        finally:
            _hold(session, design, _plan_inputs(session, switch, back.target, scope))
            note(f"circuit {moved} of {switch} is put back" if moved else f"{tried} of {switch} is removed")


def carriers_once(session: LabSession, is_seen: Callable[[Mapping[Nic, bool]], bool]) -> Mapping[Nic, bool]:
    """Return whether each NIC has light, when something is seen of that, and after `SETTLE_S` at the latest."""
    assert session.fleet is not None
    deadline = time.monotonic() + SETTLE_S
    while True:
        carriers = read_carriers(session.fleet, session.lab)
        if is_seen(carriers) or time.monotonic() > deadline:
            return carriers
        time.sleep(POLL_S)


def _plan_inputs(
    session: LabSession, name: str, pairs: Mapping[int, int], scope: frozenset[int]
) -> SwitchPlan:
    switch = session.switches[name]
    seen, target = switch.read(), CrossConnects(pairs)
    return SwitchPlan(name, target, scope, seen, switch.plan(target, seen, scope))


def _hold(session: LabSession, design: Design, part: SwitchPlan) -> None:
    session.apply(LabPlan(design.wiring, (), (part,)))


@dataclass(frozen=True)
class DarkFibres:
    """Findings of links without light, one after the other narrowed to a fibre."""

    session: LabSession
    design: Design
    note: Note

    def narrow(self, finding: LinkFinding) -> LinkFinding:
        """Return the finding with the fibre that is out, where that can be told. Raises what `apply` raises."""
        labels = {self._lab.link_label(link): link for link in self.design.wiring.links}
        link = labels.get(finding.subject)
        if finding.kind == "dark_cable":
            return self._cable(finding)
        if link is None or finding.kind not in ("no_light", "no_carrier"):
            return finding
        told = self._laser(link) if finding.kind == "no_light" else self._fibre(link)
        return replace(finding, detail=told) if told else finding

    @property
    def _lab(self) -> Lab:
        return self.session.lab

    @cached_property
    def _modules(self) -> dict[tuple[str, str], ReceiverReading]:
        return read_receivers(self.session.fleet, self._lab) if self.session.fleet else {}

    def _laser(self, link: Link) -> str:
        """Return whether it is the laser or the fibre, of a link whose light does not enter the switch."""
        entering = self._power(self._lab.nic(link.source).transmit)
        if entering is None or not entering.below_floor:
            return ""
        reading = self._modules.get((self._lab.hosts[link.source.node].name, self._lab.nic(link.source).name))
        sent_dbm = reading.laser_dbm if reading else None
        name, end = self._lab.nic_label(link.source), fibre_end(self._lab, link.source, "transmit")
        if sent_dbm is None:
            return ""
        if not math.isfinite(sent_dbm):
            return f"the laser of {name} is dark by its own module, and no light enters {end}"
        return (
            f"the transmit fibre at {end} ({name}) is out: its module sends {sent_dbm:.1f} dBm, none enters"
        )

    def _fibre(self, link: Link) -> str:
        """Return which fibre is out, of a link whose target is dark; empty where that cannot be told."""
        transmit, receive = self._lab.nic(link.source).transmit, self._lab.nic(link.target).receive
        if transmit.switch != receive.switch or transmit.switch not in self.session.switches:
            return ""
        held = self._read_held(receive.switch)
        if held.get(transmit.port) != receive.port:
            return ""
        leaving = self._power(receive)
        if leaving is not None:
            return (
                ""
                if leaving.below_floor
                else self._describe_tried(link, "receive", "light leaves the switch there")
            )
        for source, target, side in self._trials(link, held):
            if self._is_lit_by(target, source):
                light = "its own light" if source == link.source else self._lab.nic_label(source)
                return self._describe_tried(link, side, f"{self._lab.nic_label(target)} is lit by {light}")
        return ""

    def _trials(self, link: Link, held: CrossConnects) -> Iterator[tuple[Nic, Nic, Fibre]]:
        """Yield light and a NIC that it may be led into, with the side of a link that is out if that is lit.

        First each end by itself, which tells of one fault; NICs that nobody uses are many.
        """
        if self._may_be_led_back(link.target, link, held):
            yield link.target, link.target, "transmit"
        if self._may_be_led_back(link.source, link, held):
            yield link.source, link.source, "receive"
        for nic in self._free_nics(link, held):
            yield nic, link.target, "transmit"

    def _describe_tried(self, link: Link, side: Fibre, tried: str) -> str:
        if side == "receive":
            end, name = fibre_end(self._lab, link.target, "receive"), self._lab.nic_label(link.target)
            return f"the receive fibre at {end} ({name}) is out: {tried}"
        end, name = fibre_end(self._lab, link.source, "transmit"), self._lab.nic_label(link.source)
        return f"the transmit fibre at {end} ({name}), or its laser, is out: {tried}"

    def _cable(self, finding: LinkFinding) -> LinkFinding:
        """Return the finding of two cables, one of which is out, with the one that it is."""
        nics = {self._lab.nic_label(nic): nic for link in self.design.wiring.links for nic in link}
        ends = [nics[name] for name in finding.subject.split(" and ") if name in nics]
        if len(ends) != 2:
            return finding
        link = Link(ends[0], ends[1])
        for nic, other in (ends, reversed(ends)):
            switch = self._lab.nic(nic).receive.switch
            if switch not in self.session.switches:
                continue
            if self._may_be_led_back(nic, link, self._read_held(switch)) and self._is_lit_by(nic, nic):
                name, right = self._lab.nic_label(other), self._lab.nic_label(nic)
                detail = f"the cable of {name} is out, or has no power: {right} is lit by its own light"
                return replace(finding, detail=detail)
        return finding

    def _free_nics(self, link: Link, held: CrossConnects) -> Iterator[Nic]:
        """Yield NICs that nobody uses, whose light may be led into a dark target."""
        switch = self._lab.nic(link.target).receive.switch
        for node, host in enumerate(self._lab.hosts):
            for index, nic in enumerate(host.nics):
                is_free = host.name not in self.session.off and held.get(nic.transmit.port) is None
                if nic.transmit.switch == switch and is_free and Nic(node, index) != link.target:
                    yield Nic(node, index)

    def _may_be_led_back(self, nic: Nic, link: Link, held: CrossConnects) -> bool:
        """Return whether no NIC but the two of a dark link loses light when one of these is lit by itself."""
        transmit, receive = self._lab.nic(nic).transmit, self._lab.nic(nic).receive
        if transmit.switch != receive.switch:
            return False
        own = {self._lab.nic(end).receive for end in link}
        lit_by_it, lights_it = held.get(transmit.port), held.inputs_of.get(receive.port)
        ports = {end.port for end in own if end.switch == transmit.switch}
        senders = {self._lab.nic(end).transmit.port for end in link}
        return (lit_by_it is None or lit_by_it in ports) and (lights_it is None or lights_it in senders)

    def _is_lit_by(self, target: Nic, source: Nic) -> bool:
        receive, port = self._lab.nic(target).receive, self._lab.nic(source).transmit.port
        with change_circuits(self.session, self.design, receive.switch, {port: receive.port}, self.note):
            return carriers_once(self.session, lambda found: found.get(target, False)).get(target, False)

    def _read_held(self, switch: str) -> CrossConnects:
        return self.session.switches[switch].read().connections

    def _power(self, end: FibreEnd) -> Power | None:
        switch = self.session.switches.get(end.switch)
        if switch is None or not switch.capabilities.power_monitor:
            return None
        return switch.power([end.port]).get(end.port)
