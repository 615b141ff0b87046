"""Findings about light at the hosts: power at receivers, and dark cables that explain several dark fibres.

Power is read from the receivers' modules, and judged against the budget of the lab file and the window of the module.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from lightbed.wording import list_some
from ocs_drivers.model import Power
from testbed.design.model import Link, Nic
from testbed.lab.hosts.receivers import ReceiverReading, describe_bad_lane
from testbed.lab.model import Lab
from testbed.operate.light import EXCESS_LOSS, TOLERANCE_DB, PowerBudget, SwitchReading, compute_budget
from testbed.operate.model import Circuit, FindingKind, LinkFinding

POWER_OUT_OF_WINDOW = FindingKind(
    "power_out_of_window",
    "the power at a receiver is outside the range that its module allows",
    "too weak: clean the receive fibre; too strong: insert an attenuator",
    stops_packets=False,
)
NO_MODULE_READINGS = FindingKind(
    "no_module_readings",
    "modules do not report the power that they receive; the lab may still be as planned",
    "nothing to do; for these receivers, only the power at the switch is judged",
    stops_packets=False,
    is_informational=True,
)
DARK_CABLE = FindingKind(
    "dark_cable",
    "both fibres of a NIC are dark",
    "check the cable and the module: the module may be unplugged, or the NIC may have no power",
)

RESOLUTION_DB = 0.05
"""Tolerance for modules, which report power in steps of 0.1 uW: a loss of 1 dB may read a little less."""
ReadingByReceiver = Mapping[tuple[str, str], ReceiverReading]
"""Readings by host and NIC; NICs that were not read are missing."""


def judge_receivers(
    lab: Lab,
    circuits: Iterable[Circuit],
    readings: Mapping[str, SwitchReading],
    receiver_readings: ReadingByReceiver,
    dark_links: Collection[Link] = (),
) -> Iterator[LinkFinding]:
    """Yield findings about receive fibres that lose too much and receivers outside their window.

    `dark_links` are skipped. All modules that do not report their power are one finding, which only informs.
    """
    silent_receivers: list[tuple[str, str]] = []
    for circuit in circuits:
        nic = circuit.link.target
        receiver_reading = receiver_readings.get((lab.hosts[nic.node].name, lab.get_nic(nic).name))
        if receiver_reading is None or circuit.link in dark_links or circuit.switch not in readings:
            continue
        if receiver_reading.power_dbm is None:
            silent_receivers.append((lab.nic_label(nic), receiver_reading.reason))
        else:
            yield from _judge_receiver(
                lab, circuit, readings[circuit.switch], receiver_reading, receiver_reading.power_dbm
            )
    if silent_receivers:
        names = tuple(name for name, _ in silent_receivers)
        reasons = "; ".join(sorted({reason for _, reason in silent_receivers}))
        yield NO_MODULE_READINGS.report(list_some(names), reasons, parts=names)


def _judge_receiver(
    lab: Lab, circuit: Circuit, reading: SwitchReading, receiver_reading: ReceiverReading, power_dbm: float
) -> Iterator[LinkFinding]:
    subject, nic_label = lab.link_label(circuit.link), lab.nic_label(circuit.link.target)
    budget = compute_budget(lab, circuit)
    known_loss_db, section_label = _find_known_loss(circuit, reading, budget)
    expected_dbm = budget.receiver_dbm - known_loss_db
    bad_lane = describe_bad_lane(receiver_reading)
    if expected_dbm - power_dbm >= TOLERANCE_DB - RESOLUTION_DB and not (
        bad_lane and receiver_reading.has_dark_lane
    ):
        detail = (
            f"{section_label} to {nic_label} loses {expected_dbm - power_dbm:.1f} dB more than planned "
            f"({power_dbm:.1f} dBm at the receiver, not {expected_dbm:.1f}){f'; {bad_lane}' if bad_lane else ''}"
        )
        yield EXCESS_LOSS.report(subject, detail)
    elif bad_lane:
        yield POWER_OUT_OF_WINDOW.report(subject, f"{nic_label}: {bad_lane}")


def _find_known_loss(circuit: Circuit, reading: SwitchReading, budget: PowerBudget) -> tuple[float, str]:
    """Return the excess loss in dB at the last monitor with light, and the name of the section after that monitor."""
    output_power, input_power = (
        _select_lit_power(reading.power_by_port.get(port))
        for port in (circuit.output_port, circuit.input_port)
    )
    if output_power is not None:
        section_label = f"the receive fibre from output {circuit.output_port} of {circuit.switch}"
        return budget.output_dbm - output_power.dbm, section_label
    if input_power is not None:
        pair_label = f"{circuit.input_port} -> {circuit.output_port} of {circuit.switch}"
        return budget.input_dbm - input_power.dbm, f"the cross-connect {pair_label} or the receive fibre"
    return 0.0, f"the path through {circuit.switch}"


def _select_lit_power(power: Power | None) -> Power | None:
    return power if power is not None and not power.below_floor else None


def merge_cable_findings(
    lab: Lab,
    circuits: Iterable[Circuit],
    readings: Mapping[str, SwitchReading],
    findings: Iterable[LinkFinding],
) -> tuple[LinkFinding, ...]:
    """Return the findings, with one finding about a cable instead of two about both fibres of its NIC.

    If all NICs of a host are dark, they are one finding.
    """
    all_findings = tuple(findings)
    circuits_by_link = {circuit.link: circuit for circuit in circuits}
    reported_subjects = {(finding.kind, finding.subject) for finding in all_findings}
    links_without_carrier = {
        link for link in circuits_by_link if ("no_carrier", lab.link_label(link)) in reported_subjects
    }
    cables = _find_dark_nics(circuits_by_link, readings, links_without_carrier) | _find_dark_ends(
        circuits_by_link, readings, links_without_carrier
    )
    explained_subjects = {
        (kind, lab.link_label(link))
        for pair in cables.values()
        for kind, link in zip(("no_light", "no_carrier"), pair, strict=True)
    }
    explained_subjects |= {("no_carrier", lab.link_label(pair[0])) for pair in cables.values()}
    other_findings = tuple(
        finding for finding in all_findings if (finding.kind, finding.subject) not in explained_subjects
    )
    return (*other_findings, *_report_cables(lab, cables, circuits_by_link))


NicGroup = tuple[Nic, ...]
"""One NIC, or both ends of a link if it is unknown at which end the cable is dark."""


def _find_dark_nics(
    circuits_by_link: Mapping[Link, Circuit],
    readings: Mapping[str, SwitchReading],
    links_without_carrier: set[Link],
) -> dict[NicGroup, tuple[Link, Link]]:
    """Return NICs whose light does not enter the switch, and at which no light from the switch arrives."""
    incoming_link_by_nic = {link.target: link for link in links_without_carrier}
    dark_link_by_nic = {
        link.source: link for link, circuit in circuits_by_link.items() if _is_input_dark(circuit, readings)
    }
    return {
        (nic,): (dark_link_by_nic[nic], incoming_link_by_nic[nic])
        for nic in sorted(dark_link_by_nic.keys() & incoming_link_by_nic.keys())
    }


def _find_dark_ends(
    circuits_by_link: Mapping[Link, Circuit],
    readings: Mapping[str, SwitchReading],
    links_without_carrier: set[Link],
) -> dict[NicGroup, tuple[Link, Link]]:
    """Return both ends of links that carry nothing in either direction, if no monitor shows which cable is dark."""
    links_by_end: dict[NicGroup, tuple[Link, Link]] = {}
    for link in sorted(links_without_carrier):
        reverse_link = Link(link.target, link.source)
        if (
            link < reverse_link
            and reverse_link in links_without_carrier
            and not _has_monitor(circuits_by_link[link], readings)
        ):
            links_by_end[link.source, link.target] = (link, reverse_link)
    return links_by_end


def _has_monitor(circuit: Circuit, readings: Mapping[str, SwitchReading]) -> bool:
    reading = readings.get(circuit.switch)
    return reading is not None and any(
        reading.power_by_port.get(port) is not None for port in (circuit.input_port, circuit.output_port)
    )


def _is_input_dark(circuit: Circuit, readings: Mapping[str, SwitchReading]) -> bool:
    reading = readings.get(circuit.switch)
    input_power = reading.power_by_port.get(circuit.input_port) if reading else None
    return input_power is not None and input_power.below_floor


def _report_cables(
    lab: Lab, cables: Mapping[NicGroup, object], planned_links: Iterable[Link]
) -> Iterator[LinkFinding]:
    """Yield one finding for each cable. A host whose NICs are all dark is one finding."""
    used_nics = {nic for link in planned_links for nic in link}
    dark_nics = {cable_ends[0] for cable_ends in cables if len(cable_ends) == 1}
    for node in sorted({nic.node for nic in dark_nics}):
        nics_of_host = sorted(nic for nic in used_nics if nic.node == node)
        if len(nics_of_host) > 1 and dark_nics.issuperset(nics_of_host):
            host = lab.hosts[node].name
            detail = (
                f"no light comes from any of the {len(nics_of_host)} NICs of {host}, and none arrives there"
            )
            yield DARK_CABLE.report(host, detail)
            dark_nics -= set(nics_of_host)
    for cable_ends in cables:
        labels = " and ".join(lab.nic_label(nic) for nic in cable_ends)
        if len(cable_ends) == 2:
            detail = f"no light arrives in either direction between {labels}: one of the two cables is out"
            yield DARK_CABLE.report(labels, detail)
        elif cable_ends[0] in dark_nics:
            detail = (
                f"no light comes from {labels}, and none arrives there: its cable is out, or it has no power"
            )
            yield DARK_CABLE.report(labels, detail)
