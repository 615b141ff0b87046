"""Findings of the link probe: fibres that are dark, silent, swapped, or shared with another lab.

Probe frames are compared with the wiring that the switches hold, so that a wrong circuit is not reported as a faulty
fibre.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from testbed.design.model import Link, Nic, Wiring
from testbed.lab.hosts.probe import NicReport, ProbeReport
from testbed.lab.model import Lab
from testbed.operate.light import EXTRA_CIRCUIT
from testbed.operate.model import FindingKind, LinkFinding

NO_CARRIER = FindingKind(
    "no_carrier",
    "a NIC has no carrier, although the switch sends light to it or may do so",
    "check the receive fibre and the module of the NIC",
)
SWAPPED_CABLES = FindingKind(
    "swapped",
    "fibres or whole cables are swapped",
    (
        "swap the plugs that the detail names, or correct the lab file; `testbed verify --narrow` "
        "finds out which fibres are swapped"
    ),
)
NOT_HEARD = FindingKind(
    "not_heard",
    "the NIC has carrier, but receives no frames of its sender",
    "check the fibres that the detail names",
)
FOREIGN_FRAMES = FindingKind(
    "foreign",
    "frames of another lab or another run arrive",
    "find out who else uses these fibres",
    stops_packets=False,
)

_NO_REPORT = NicReport(has_carrier=False, sent_count=0, frames=())
FibreSide = Literal["transmit", "receive"]
LinkPair = tuple[Link, Link]
CablePair = tuple[LinkPair, LinkPair]


def count_received_links(lab: Lab, wiring: Wiring, probe_report: ProbeReport) -> int:
    """Return how many links carried a probe frame of this epoch from their source to their target."""
    return len(wiring.links) - len(find_silent_links(lab, wiring, probe_report))


def find_silent_links(lab: Lab, wiring: Wiring, probe_report: ProbeReport) -> frozenset[Link]:
    """Return the links that carried no probe frame of this epoch."""
    comparison = _Comparison(lab, wiring, probe_report)
    return frozenset(link for link in wiring.links if not comparison.is_received(link))


def judge_probe(
    lab: Lab, wiring: Wiring, probe_report: ProbeReport, ignored_links: Collection[Link] = ()
) -> tuple[LinkFinding, ...]:
    """Return findings for every difference between probe frames and wiring, except for the links in `ignored_links`.

    Two links that receive each other's frames are one `swapped` finding, which names both links and their fibres. It
    also covers links between the same two hosts, where every ping would still be answered. If the links from two NICs
    are such a pair, and the links to these NICs are another, all four are one finding: the two cables are swapped.
    """
    comparison = _Comparison(lab, wiring, probe_report)
    cables = _find_swapped_cables(comparison.swapped_pairs)
    explained_links = {link for cable_pair in cables for pair in cable_pair for link in pair}
    findings = [_report_swapped_cables(lab, cable_pair) for cable_pair in cables]
    for link in wiring.links:
        if link not in ignored_links and link not in explained_links and not comparison.is_received(link):
            findings += _judge_link(comparison, link, ignored_links)
    return (*findings, *_judge_foreign_frames(comparison))


@dataclass(frozen=True)
class _Comparison:
    """A probe and the wiring with which it is compared."""

    lab: Lab
    wiring: Wiring
    probe_report: ProbeReport

    @cached_property
    def nic_by_name(self) -> Mapping[tuple[str, str], Nic]:
        """Every NIC of the lab, by host and name."""
        return {
            (host.name, nic.name): Nic(node, index)
            for node, host in enumerate(self.lab.hosts)
            for index, nic in enumerate(host.nics)
        }

    @cached_property
    def link_by_transmitter(self) -> Mapping[Nic, Link]:
        """The link that leaves each transmitter."""
        return self.wiring.link_by_transmitter

    @cached_property
    def link_by_receiver(self) -> Mapping[Nic, Link]:
        """The link that ends in each receiver."""
        return self.wiring.link_by_receiver

    def get_report(self, nic: Nic) -> NicReport:
        """Return the report of a NIC. A NIC without a report has no carrier and received no frames."""
        return self.probe_report.nics.get(
            (self.lab.hosts[nic.node].name, self.lab.get_nic(nic).name), _NO_REPORT
        )

    def find_sources(self, nic: Nic) -> list[Nic]:
        """Return the NICs of the lab whose frames of this epoch arrive at a NIC."""
        frames = (frame for frame in self.get_report(nic).frames if frame.epoch == self.probe_report.epoch)
        return [self.nic_by_name[frame[:2]] for frame in frames if frame[:2] in self.nic_by_name]

    def is_received(self, link: Link) -> bool:
        """Return whether a link carried a frame of this epoch."""
        return link.source in self.find_sources(link.target)

    @cached_property
    def wrong_link_by_link(self) -> Mapping[Link, Link]:
        """For a link whose target receives no frames of it, but frames of another link: that other link."""
        wrong_link_by_link: dict[Link, Link] = {}
        for link in self.wiring.links:
            received_links = [
                self.link_by_transmitter[nic]
                for nic in self.find_sources(link.target)
                if nic in self.link_by_transmitter
            ]
            if received_links and link not in received_links:
                wrong_link_by_link[link] = received_links[0]
        return wrong_link_by_link

    @cached_property
    def swapped_pairs(self) -> tuple[LinkPair, ...]:
        """Pairs of links that receive each other's frames."""
        wrong_link_by_link = self.wrong_link_by_link
        return tuple(
            (link, other_link)
            for link, other_link in wrong_link_by_link.items()
            if wrong_link_by_link.get(other_link) == link and link < other_link
        )

    @cached_property
    def unplanned_pairs(self) -> tuple[tuple[Nic, Nic], ...]:
        """Pairs of source and receiver that no circuit explains, because the source or the receiver has no link."""
        return tuple(
            (source, nic)
            for nic in self.nic_by_name.values()
            for source in self.find_sources(nic)
            if nic not in self.link_by_receiver or source not in self.link_by_transmitter
        )


def _find_swapped_cables(pairs: Collection[LinkPair]) -> tuple[CablePair, ...]:
    """Return two pairs of swapped links for each swap of two whole cables. Each pair is used once."""
    cables: list[CablePair] = []
    unmatched_pairs = set(pairs)
    for pair in pairs:
        endpoints = {link.source for link in pair}, {link.target for link in pair}
        for candidate in unmatched_pairs - {pair} if pair in unmatched_pairs else ():
            candidate_ends = {link.target for link in candidate}, {link.source for link in candidate}
            if endpoints[0] == candidate_ends[0] or endpoints[1] == candidate_ends[1]:
                cables.append((pair, candidate))
                unmatched_pairs -= {pair, candidate}
                break
    return tuple(cables)


def _report_swapped_cables(lab: Lab, cable_pair: CablePair) -> LinkFinding:
    """Return the finding of two swapped cables. It names both candidates if the links run both ways."""
    first_pair, second_pair = cable_pair
    descriptions = []
    for nics, other_nics in (
        ({link.source for link in first_pair}, {link.target for link in second_pair}),
        ({link.target for link in first_pair}, {link.source for link in second_pair}),
    ):
        if nics == other_nics:
            descriptions.append(" and ".join(lab.nic_label(nic) for nic in sorted(nics)))
    subject = " and ".join(lab.link_label(link) for link in (*first_pair, *second_pair))
    return SWAPPED_CABLES.report(
        subject, f"the whole cables of {', or those of '.join(descriptions)} are swapped"
    )


def _judge_link(
    comparison: _Comparison, link: Link, ignored_links: Collection[Link]
) -> Iterator[LinkFinding]:
    """Yield the finding of a link whose frame did not arrive, unless another finding explains it."""
    lab = comparison.lab
    subject, target_label = lab.link_label(link), lab.nic_label(link.target)
    other_link = comparison.wrong_link_by_link.get(link)
    if detail := _explain_by_unplanned_pair(comparison, link):
        yield SWAPPED_CABLES.report(subject, detail)
    elif not comparison.get_report(link.target).has_carrier:
        consequence = _describe_silenced_link(comparison, link.target)
        yield NO_CARRIER.report(subject, f"{target_label} receives no light{consequence}")
    elif other_link is not None and comparison.wrong_link_by_link.get(other_link) == link:
        if link < other_link or other_link in ignored_links:  # the pair is one finding
            yield _report_swapped_links(lab, link, other_link)
    elif other_link is not None:
        problem = (
            f"{target_label} hears {lab.nic_label(other_link.source)} instead of {lab.nic_label(link.source)}"
        )
        yield SWAPPED_CABLES.report(subject, f"{problem}; {_advise_on_fibres(lab, link)}")
    elif not _is_consequence(comparison, link):
        yield NOT_HEARD.report(subject, _explain_silence(comparison, link))


def _explain_by_unplanned_pair(comparison: _Comparison, link: Link) -> str:
    """Return the detail of a link that is swapped with a fibre without a link, or "" if no stray frame shows this."""
    lab = comparison.lab
    for source, nic in comparison.unplanned_pairs:
        if source == link.source:
            locations = (
                f"{locate_fibre_end(lab, nic, 'receive')} and {locate_fibre_end(lab, link.target, 'receive')}"
            )
            return (
                f"{lab.nic_label(nic)} hears {lab.nic_label(source)} instead of {lab.nic_label(link.target)}: "
                f"the receive fibres at {locations} are swapped"
            )
        if nic == link.target:
            other_location = locate_fibre_end(lab, link.source, "transmit")
            locations = f"{locate_fibre_end(lab, source, 'transmit')} and {other_location}"
            return (
                f"{lab.nic_label(nic)} hears {lab.nic_label(source)} instead of {lab.nic_label(link.source)}: "
                f"the transmit fibres at {locations} are swapped"
            )
    return ""


def _describe_silenced_link(comparison: _Comparison, nic: Nic) -> str:
    """Return the part of a detail that names the link on which a NIC without carrier cannot send, or ""."""
    outgoing_link = comparison.link_by_transmitter.get(nic)
    return f" and so cannot send on {comparison.lab.link_label(outgoing_link)}" if outgoing_link else ""


def _is_consequence(comparison: _Comparison, link: Link) -> bool:
    """Return whether the source could not send because its receiver is dark, which has its own finding."""
    return not comparison.get_report(link.source).has_carrier and link.source in comparison.link_by_receiver


def _report_swapped_links(lab: Lab, link_a: Link, link_b: Link) -> LinkFinding:
    label, other_label = lab.link_label(link_a), lab.link_label(link_b)
    sources_text = " and ".join(locate_fibre_end(lab, link.source, "transmit") for link in (link_a, link_b))
    targets_text = " and ".join(locate_fibre_end(lab, link.target, "receive") for link in (link_a, link_b))
    detail = (
        f"{lab.nic_label(link_a.target)} hears {lab.nic_label(link_b.source)} and {lab.nic_label(link_b.target)} hears "
        f"{lab.nic_label(link_a.source)}: two fibres are swapped, either the transmit fibres at {sources_text} or the "
        f"receive fibres at {targets_text}"
    )
    return SWAPPED_CABLES.report(f"{label} and {other_label}", detail)


def _advise_on_fibres(lab: Lab, link: Link) -> str:
    transmit_location, receive_location = (
        locate_fibre_end(lab, link.source, "transmit"),
        locate_fibre_end(lab, link.target, "receive"),
    )
    return f"check the transmit fibre at {transmit_location} and the receive fibre at {receive_location}"


def locate_fibre_end(lab: Lab, nic: Nic, side: FibreSide) -> str:
    """Return the switch port at which a fibre of a NIC ends, as `switch:port`."""
    fibre_end = lab.get_nic(nic).transmit if side == "transmit" else lab.get_nic(nic).receive
    return f"{fibre_end.switch}:{fibre_end.port}"


def _explain_silence(comparison: _Comparison, link: Link) -> str:
    """Return why no frame arrived on a link with light. Counters at both ends blame its fibres or a host."""
    lab = comparison.lab
    source_label, target_label = lab.nic_label(link.source), lab.nic_label(link.target)
    sender_report, receiver_report = comparison.get_report(link.source), comparison.get_report(link.target)
    if not sender_report.has_carrier:
        return f"{source_label} has no carrier itself and so cannot send"
    problem = f"{target_label} has light but hears nothing from {source_label}"
    if errors := receiver_report.counters.get("rx_errors"):
        return f"{problem}: it counts {errors} packets with errors; {_advise_on_fibres(lab, link)}"
    if sender_report.sent_count and not sender_report.counters.get("tx_packets", sender_report.sent_count):
        return (
            f"{problem}: {source_label} counts no packet sent; check queues and filters on "
            f"{_get_host_name(lab, link.source)}"
        )
    if packet_count := receiver_report.counters.get("rx_packets"):
        host_name = _get_host_name(lab, link.target)
        return (
            f"{problem}: it counts {packet_count} packets received, so check what drops them on {host_name}"
        )
    count_note = "; it counts no packet received" if "rx_packets" in receiver_report.counters else ""
    return f"{problem}{count_note}; {_advise_on_fibres(lab, link)}"


def _get_host_name(lab: Lab, nic: Nic) -> str:
    return lab.hosts[nic.node].name


def _judge_foreign_frames(comparison: _Comparison) -> Iterator[LinkFinding]:
    """Yield findings about frames that no link explains: of another epoch or lab, or between NICs without a link."""
    probe_report = comparison.probe_report
    unexplained_pairs = [
        stray for stray in comparison.unplanned_pairs if not _has_silent_link(comparison, *stray)
    ]
    for (host, nic), report in probe_report.nics.items():
        for frame in report.frames:
            subject = f"{frame.host}/{frame.nic} -> {host}/{nic}"
            if frame.epoch != probe_report.epoch or frame[:2] not in comparison.nic_by_name:
                detail = (
                    f"a frame of epoch {frame.epoch}, not {probe_report.epoch}: another lab or run "
                    "shares these fibres"
                )
                yield FOREIGN_FRAMES.report(subject, detail)
            elif (
                comparison.nic_by_name[frame[:2]],
                comparison.nic_by_name.get((host, nic)),
            ) in unexplained_pairs:
                detail = f"{host}/{nic} hears {frame.host}/{frame.nic}, and no link is planned there"
                yield EXTRA_CIRCUIT.report(subject, detail)


def _has_silent_link(comparison: _Comparison, source: Nic, nic: Nic) -> bool:
    """Return whether the source or the receiver of a stray has a silent link, whose finding explains the stray."""
    links = (comparison.link_by_transmitter.get(source), comparison.link_by_receiver.get(nic))
    return any(link is not None and not comparison.is_received(link) for link in links)
