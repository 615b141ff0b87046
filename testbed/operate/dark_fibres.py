"""Tell which fibre of a dark link is out: by a monitor or a module where one says so, else by moving a free circuit.

A NIC that is dark sends nothing, so its own light may be moved for a moment: led back into it, it tells whether both of
its fibres pass light. Light of a NIC that nobody uses does as well. Circuits of links that carry data stay.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from ocs_drivers.model import CrossConnects, Power
from testbed.design.model import Link, Nic
from testbed.lab.hosts.receivers import ReceiverReading, read_receivers
from testbed.lab.model import FibreEnd, Lab
from testbed.operate.model import LinkFinding
from testbed.operate.probe_findings import Fibre, fibre_end
from testbed.operate.session import Design, LabSession, Note
from testbed.operate.trial import carriers_once, changed_circuits


@dataclass(frozen=True)
class DarkFibres:
    """Findings of links without light, one after the other narrowed to a fibre."""

    session: LabSession
    design: Design
    note: Note

    def narrowed(self, finding: LinkFinding) -> LinkFinding:
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
        if not _is_dark(self._power(self._lab.nic(link.source).transmit)):
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
        held = self._held(receive.switch)
        if held.get(transmit.port) != receive.port:
            return ""
        leaving = self._power(receive)
        if leaving is not None:
            return "" if leaving.below_floor else self._told(link, "receive", "light leaves the switch there")
        for source, target, side in self._trials(link, held):
            if self._is_lit_by(target, source):
                light = "its own light" if source == link.source else self._lab.nic_label(source)
                return self._told(link, side, f"{self._lab.nic_label(target)} is lit by {light}")
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

    def _told(self, link: Link, side: Fibre, tried: str) -> str:
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
            if self._may_be_led_back(nic, link, self._held(switch)) and self._is_lit_by(nic, nic):
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
        with changed_circuits(self.session, self.design, receive.switch, {port: receive.port}, self.note):
            return carriers_once(self.session, lambda found: found.get(target, False)).get(target, False)

    def _held(self, switch: str) -> CrossConnects:
        return self.session.switches[switch].read().connections

    def _power(self, end: FibreEnd) -> Power | None:
        switch = self.session.switches.get(end.switch)
        if switch is None or not switch.capabilities.power_monitor:
            return None
        return switch.power([end.port]).get(end.port)


def _is_dark(power: Power | None) -> bool:
    return power is not None and power.below_floor
