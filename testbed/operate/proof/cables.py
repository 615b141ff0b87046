"""Findings of single fibres joined where one cable explains them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from testbed.design.model import Link, Nic
from testbed.lab.model import Lab
from testbed.operate.light import SwitchReading
from testbed.operate.model import Circuit, LinkFinding


def whole_cables(
    lab: Lab,
    circuits: Iterable[Circuit],
    readings: Mapping[str, SwitchReading],
    findings: Iterable[LinkFinding],
) -> tuple[LinkFinding, ...]:
    """Return the findings, those of both fibres of one NIC as one: its cable; all cables of a host as one too."""
    found = tuple(findings)
    planned = {circuit.link: circuit for circuit in circuits}
    told = {(finding.kind, finding.subject) for finding in found}
    no_carrier = {link for link in planned if ("no_carrier", lab.link_label(link)) in told}
    cables = _monitored(planned, readings, no_carrier) | _unmonitored(planned, readings, no_carrier)
    explained = {
        (kind, lab.link_label(link))
        for pair in cables.values()
        for kind, link in zip(("no_light", "no_carrier"), pair, strict=True)
    }
    explained |= {("no_carrier", lab.link_label(pair[0])) for pair in cables.values()}
    kept = tuple(finding for finding in found if (finding.kind, finding.subject) not in explained)
    return (*kept, *_cable_findings(lab, cables, planned))


Ends = tuple[Nic, ...]
"""One NIC, or both ends of a link where nothing tells which cable it is."""


def _monitored(
    planned: Mapping[Link, Circuit], readings: Mapping[str, SwitchReading], no_carrier: set[Link]
) -> dict[Ends, tuple[Link, Link]]:
    """Return NICs whose light does not enter the switch, while light that leaves it does not arrive."""
    into = {link.target: link for link in no_carrier}
    dark = {link.source: link for link, circuit in planned.items() if _enters_dark(circuit, readings)}
    return {(nic,): (dark[nic], into[nic]) for nic in sorted(dark.keys() & into.keys())}


def _unmonitored(
    planned: Mapping[Link, Circuit], readings: Mapping[str, SwitchReading], no_carrier: set[Link]
) -> dict[Ends, tuple[Link, Link]]:
    """Return both ends of links that carry nothing either way, where no monitor tells at which end."""
    ends: dict[Ends, tuple[Link, Link]] = {}
    for link in sorted(no_carrier):
        back = Link(link.target, link.source)
        if link < back and back in no_carrier and not _has_monitor(planned[link], readings):
            ends[link.source, link.target] = (link, back)
    return ends


def _has_monitor(circuit: Circuit, readings: Mapping[str, SwitchReading]) -> bool:
    reading = readings.get(circuit.switch)
    return reading is not None and any(
        reading.power.get(port) is not None for port in (circuit.input_port, circuit.output_port)
    )


def _enters_dark(circuit: Circuit, readings: Mapping[str, SwitchReading]) -> bool:
    reading = readings.get(circuit.switch)
    entering = reading.power.get(circuit.input_port) if reading else None
    return entering is not None and entering.below_floor


def _cable_findings(
    lab: Lab, cables: Mapping[Ends, object], planned: Iterable[Link]
) -> Iterator[LinkFinding]:
    """Yield one finding a cable; hosts all of whose NICs are dark are one finding each."""
    used = {nic for link in planned for nic in link}
    alone = {ends[0] for ends in cables if len(ends) == 1}
    for node in sorted({nic.node for nic in alone}):
        nics = sorted(nic for nic in used if nic.node == node)
        if len(nics) > 1 and alone.issuperset(nics):
            host = lab.hosts[node].name
            detail = f"no light comes from any of the {len(nics)} NICs of {host}, and none arrives there"
            yield LinkFinding("dark_cable", host, detail)
            alone -= set(nics)
    for ends in cables:
        labels = " and ".join(lab.nic_label(nic) for nic in ends)
        if len(ends) == 2:
            detail = f"no light arrives either way between {labels}: one of the two cables is out"
            yield LinkFinding("dark_cable", labels, detail)
        elif ends[0] in alone:
            detail = (
                f"no light comes from {labels}, and none arrives there: its cable is out, or it has no power"
            )
            yield LinkFinding("dark_cable", labels, detail)
