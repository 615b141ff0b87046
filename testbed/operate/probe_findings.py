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
    "a NIC has no carrier, although light leaves the switch towards it or may do so",
    "check the receive fibre and the module of the NIC",
)
SWAPPED = FindingKind(
    "swapped",
    "fibres or whole cables are swapped",
    (
        "swap the plugs that the detail names, or correct the lab file; `testbed verify --narrow` "
        "finds out which"
    ),
)
NOT_HEARD = FindingKind(
    "not_heard",
    "the NIC has carrier, but receives no frames of its sender",
    "check the fibres that the detail names",
)
FOREIGN = FindingKind(
    "foreign",
    "frames of another lab or another run arrive",
    "find out who else uses these fibres",
    stops_packets=False,
)

_NO_REPORT = NicReport(carrier=False, sent=0, frames=())
Fibre = Literal["transmit", "receive"]
Pair = tuple[Link, Link]
Cables = tuple[Pair, Pair]


def links_received(lab: Lab, wiring: Wiring, heard: ProbeReport) -> int:
    """Return how many links carried a probe frame of this epoch from their source to their target."""
    return len(wiring.links) - len(find_silent_links(lab, wiring, heard))


def find_silent_links(lab: Lab, wiring: Wiring, heard: ProbeReport) -> frozenset[Link]:
    """Return the links that carried no probe frame of this epoch."""
    comparison = _Comparison(lab, wiring, heard)
    return frozenset(link for link in wiring.links if not comparison.is_received(link))


def compare(
    lab: Lab, wiring: Wiring, heard: ProbeReport, ignore: Collection[Link] = ()
) -> tuple[LinkFinding, ...]:
    """Return findings for every difference between probe frames and wiring, except for the links in `ignore`.

    Two links that receive each other's frames are one `swapped` finding, which names both links and their fibres. It
    also covers links between the same two hosts, where every ping would still be answered. If the links from two NICs
    are such a pair, and the links to these NICs too, all four are one finding: the two cables are swapped.
    """
    comparison = _Comparison(lab, wiring, heard)
    cables = _find_swapped_cables(comparison.swapped_pairs)
    explained = {link for both in cables for pair in both for link in pair}
    findings = [_report_swapped_cables(lab, both) for both in cables]
    for link in wiring.links:
        if link not in ignore and link not in explained and not comparison.is_received(link):
            findings += _judge_link(comparison, link, ignore)
    return (*findings, *_judge_foreign_frames(comparison))


@dataclass(frozen=True)
class _Comparison:
    """A probe and the wiring with which it is compared."""

    lab: Lab
    wiring: Wiring
    heard: ProbeReport

    @cached_property
    def nics(self) -> Mapping[tuple[str, str], Nic]:
        """Every NIC of the lab, by host and name."""
        return {
            (host.name, nic.name): Nic(node, index)
            for node, host in enumerate(self.lab.hosts)
            for index, nic in enumerate(host.nics)
        }

    @cached_property
    def link_from(self) -> Mapping[Nic, Link]:
        """The link that leaves each transmitter."""
        return self.wiring.link_from

    @cached_property
    def link_into(self) -> Mapping[Nic, Link]:
        """The link that ends in each receiver."""
        return self.wiring.link_into

    def report(self, nic: Nic) -> NicReport:
        """Return the report of a NIC. A NIC without a report has no carrier and received no frames."""
        return self.heard.nics.get((self.lab.hosts[nic.node].name, self.lab.nic(nic).name), _NO_REPORT)

    def sources(self, nic: Nic) -> list[Nic]:
        """Return the NICs of the lab whose frames of this epoch arrive at a NIC."""
        frames = (frame for frame in self.report(nic).frames if frame.epoch == self.heard.epoch)
        return [self.nics[frame[:2]] for frame in frames if frame[:2] in self.nics]

    def is_received(self, link: Link) -> bool:
        """Return whether a link carried a frame of this epoch."""
        return link.source in self.sources(link.target)

    @cached_property
    def received_instead(self) -> Mapping[Link, Link]:
        """Links whose target receives frames from the source of another link, and none from its own source."""
        instead: dict[Link, Link] = {}
        for link in self.wiring.links:
            others = [self.link_from[nic] for nic in self.sources(link.target) if nic in self.link_from]
            if others and link not in others:
                instead[link] = others[0]
        return instead

    @cached_property
    def swapped_pairs(self) -> tuple[Pair, ...]:
        """Pairs of links that receive each other's frames."""
        instead = self.received_instead
        return tuple(
            (link, other) for link, other in instead.items() if instead.get(other) == link and link < other
        )

    @cached_property
    def strays(self) -> tuple[tuple[Nic, Nic], ...]:
        """Pairs of source and receiver that no circuit explains, because the source or the receiver has no link."""
        return tuple(
            (source, nic)
            for nic in self.nics.values()
            for source in self.sources(nic)
            if nic not in self.link_into or source not in self.link_from
        )


def _find_swapped_cables(pairs: Collection[Pair]) -> tuple[Cables, ...]:
    """Return two pairs of swapped links for each swap of two whole cables. Each pair is used once."""
    cables: list[Cables] = []
    unmatched = set(pairs)
    for pair in pairs:
        ends = {link.source for link in pair}, {link.target for link in pair}
        for other in unmatched - {pair} if pair in unmatched else ():
            others = {link.target for link in other}, {link.source for link in other}
            if ends[0] == others[0] or ends[1] == others[1]:
                cables.append((pair, other))
                unmatched -= {pair, other}
                break
    return tuple(cables)


def _report_swapped_cables(lab: Lab, cables: Cables) -> LinkFinding:
    """Return the finding of two swapped cables. It names both candidates if the links run both ways."""
    one, other = cables
    choices = []
    for ends, others in (
        ({link.source for link in one}, {link.target for link in other}),
        ({link.target for link in one}, {link.source for link in other}),
    ):
        if ends == others:
            choices.append(" and ".join(lab.nic_label(nic) for nic in sorted(ends)))
    subject = " and ".join(lab.link_label(link) for link in (*one, *other))
    return SWAPPED.report(subject, f"the whole cables of {', or those of '.join(choices)} are swapped")


def _judge_link(comparison: _Comparison, link: Link, ignore: Collection[Link]) -> Iterator[LinkFinding]:
    """Yield the finding of a link whose frame did not arrive, unless another finding explains it."""
    lab = comparison.lab
    subject, target = lab.link_label(link), lab.nic_label(link.target)
    other = comparison.received_instead.get(link)
    if detail := _explain_by_stray(comparison, link):
        yield SWAPPED.report(subject, detail)
    elif not comparison.report(link.target).carrier:
        silenced = _describe_silenced(comparison, link.target)
        yield NO_CARRIER.report(subject, f"{target} receives no light{silenced}")
    elif other is not None and comparison.received_instead.get(other) == link:
        if link < other or other in ignore:  # the pair is one finding
            yield _report_swapped(lab, link, other)
    elif other is not None:
        what = f"{target} hears {lab.nic_label(other.source)} instead of {lab.nic_label(link.source)}"
        yield SWAPPED.report(subject, f"{what}; {_advise_on_fibres(lab, link)}")
    elif not _is_consequence(comparison, link):
        yield NOT_HEARD.report(subject, _explain_silence(comparison, link))


def _explain_by_stray(comparison: _Comparison, link: Link) -> str:
    """Return the detail of a link swapped with a fibre that has no link, or "" if no stray frame shows that."""
    lab = comparison.lab
    for source, nic in comparison.strays:
        if source == link.source:
            place = f"{fibre_end(lab, nic, 'receive')} and {fibre_end(lab, link.target, 'receive')}"
            return (
                f"{lab.nic_label(nic)} hears {lab.nic_label(source)} instead of {lab.nic_label(link.target)}: "
                f"the receive fibres at {place} are swapped"
            )
        if nic == link.target:
            place = f"{fibre_end(lab, source, 'transmit')} and {fibre_end(lab, link.source, 'transmit')}"
            return (
                f"{lab.nic_label(nic)} hears {lab.nic_label(source)} instead of {lab.nic_label(link.source)}: "
                f"the transmit fibres at {place} are swapped"
            )
    return ""


def _describe_silenced(comparison: _Comparison, nic: Nic) -> str:
    """Return the part of a detail that names the link on which a NIC without carrier cannot send, or ""."""
    outgoing = comparison.link_from.get(nic)
    return f" and so cannot send on {comparison.lab.link_label(outgoing)}" if outgoing else ""


def _is_consequence(comparison: _Comparison, link: Link) -> bool:
    """Return whether the source could not send because its receiver is dark, which has its own finding."""
    return not comparison.report(link.source).carrier and link.source in comparison.link_into


def _report_swapped(lab: Lab, one: Link, other: Link) -> LinkFinding:
    first, second = lab.link_label(one), lab.link_label(other)
    sources = " and ".join(fibre_end(lab, link.source, "transmit") for link in (one, other))
    targets = " and ".join(fibre_end(lab, link.target, "receive") for link in (one, other))
    detail = (
        f"{lab.nic_label(one.target)} hears {lab.nic_label(other.source)} and {lab.nic_label(other.target)} hears "
        f"{lab.nic_label(one.source)}: two fibres are swapped, either the transmit fibres at {sources} or the "
        f"receive fibres at {targets}"
    )
    return SWAPPED.report(f"{first} and {second}", detail)


def _advise_on_fibres(lab: Lab, link: Link) -> str:
    source, target = fibre_end(lab, link.source, "transmit"), fibre_end(lab, link.target, "receive")
    return f"check the transmit fibre at {source} and the receive fibre at {target}"


def fibre_end(lab: Lab, nic: Nic, side: Fibre) -> str:
    """Return the switch port at which a fibre of a NIC ends, as `switch:port`."""
    end = lab.nic(nic).transmit if side == "transmit" else lab.nic(nic).receive
    return f"{end.switch}:{end.port}"


def _explain_silence(comparison: _Comparison, link: Link) -> str:
    """Return why no frame arrived on a link with light. Counters at both ends blame its fibres or a host."""
    lab = comparison.lab
    source, target = lab.nic_label(link.source), lab.nic_label(link.target)
    sender, receiver = comparison.report(link.source), comparison.report(link.target)
    if not sender.carrier:
        return f"{source} has no carrier itself and so cannot send"
    what = f"{target} has light but hears nothing from {source}"
    if errors := receiver.counters.get("rx_errors"):
        return f"{what}: it counts {errors} packets with errors; {_advise_on_fibres(lab, link)}"
    if sender.sent and not sender.counters.get("tx_packets", sender.sent):
        return f"{what}: {source} counts no packet sent; check queues and filters on {_get_host_name(lab, link.source)}"
    if arrived := receiver.counters.get("rx_packets"):
        where = _get_host_name(lab, link.target)
        return f"{what}: it counts {arrived} packets received, so check what drops them on {where}"
    counts = "; it counts no packet received" if "rx_packets" in receiver.counters else ""
    return f"{what}{counts}; {_advise_on_fibres(lab, link)}"


def _get_host_name(lab: Lab, nic: Nic) -> str:
    return lab.hosts[nic.node].name


def _judge_foreign_frames(comparison: _Comparison) -> Iterator[LinkFinding]:
    """Yield findings about frames that no link explains: of another epoch or lab, or between NICs without a link."""
    heard = comparison.heard
    unexplained = [stray for stray in comparison.strays if not _has_silent_link(comparison, *stray)]
    for (host, nic), report in heard.nics.items():
        for frame in report.frames:
            subject = f"{frame.host}/{frame.nic} -> {host}/{nic}"
            if frame.epoch != heard.epoch or frame[:2] not in comparison.nics:
                detail = f"a frame of epoch {frame.epoch}, not {heard.epoch}: another lab or run shares these fibres"
                yield FOREIGN.report(subject, detail)
            elif (comparison.nics[frame[:2]], comparison.nics.get((host, nic))) in unexplained:
                detail = f"{host}/{nic} hears {frame.host}/{frame.nic}, and no link is planned there"
                yield EXTRA_CIRCUIT.report(subject, detail)


def _has_silent_link(comparison: _Comparison, source: Nic, nic: Nic) -> bool:
    """Return whether the source or the receiver of a stray has a silent link, whose finding explains the stray."""
    links = (comparison.link_from.get(source), comparison.link_into.get(nic))
    return any(link is not None and not comparison.is_received(link) for link in links)
