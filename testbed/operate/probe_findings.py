"""Findings of the link probe against the circuits that stand: which fibre is dark, silent, swapped or somebody else's.

The wiring to compare with is the one that the switches hold: what another circuit explains is no fault of a fibre.
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
    "find out who shares these fibres",
    stops_packets=False,
)

_DEAF = NicReport(carrier=False, sent=0, frames=())
Fibre = Literal["transmit", "receive"]
Pair = tuple[Link, Link]
Cables = tuple[Pair, Pair]


def links_received(lab: Lab, wiring: Wiring, heard: ProbeReport) -> int:
    """Return how many links carried a probe frame of this epoch from their source to their target."""
    return len(wiring.links) - len(silent_links(lab, wiring, heard))


def silent_links(lab: Lab, wiring: Wiring, heard: ProbeReport) -> frozenset[Link]:
    """Return the links that carried no probe frame of this epoch."""
    probed = _Probed(lab, wiring, heard)
    return frozenset(link for link in wiring.links if not probed.is_received(link))


def compare(
    lab: Lab, wiring: Wiring, heard: ProbeReport, ignore: Collection[Link] = ()
) -> tuple[LinkFinding, ...]:
    """Return everything heard that is not as planned, but nothing of links to `ignore`. Pure.

    Two links that hear each other's sources are one finding, `swapped`, that names both and their fibres: also
    when both run between the same two hosts, where every ping would still be answered. Two such pairs, of the
    links from two NICs and of those to them, are one finding as well: their cables are exchanged.
    """
    probed = _Probed(lab, wiring, heard)
    cables = _find_swapped_cables(probed.swapped_pairs)
    explained = {link for both in cables for pair in both for link in pair}
    findings = [_cables(lab, both) for both in cables]
    for link in wiring.links:
        if link not in ignore and link not in explained and not probed.is_received(link):
            findings += _judge_link(probed, link, ignore)
    return (*findings, *_foreign_frames(probed))


@dataclass(frozen=True)
class _Probed:
    """One probe beside the wiring it is compared with."""

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
        """Return the report of a NIC; one that has none hears nothing."""
        return self.heard.nics.get((self.lab.hosts[nic.node].name, self.lab.nic(nic).name), _DEAF)

    def sources(self, nic: Nic) -> list[Nic]:
        """Return the NICs of the lab whose frames of this epoch arrive at a NIC."""
        frames = (frame for frame in self.report(nic).frames if frame.epoch == self.heard.epoch)
        return [self.nics[frame[:2]] for frame in frames if frame[:2] in self.nics]

    def is_received(self, link: Link) -> bool:
        """Return whether a link carried a frame of this epoch."""
        return link.source in self.sources(link.target)

    @cached_property
    def received_instead(self) -> Mapping[Link, Link]:
        """Links whose target hears the source of another link instead of its own."""
        instead: dict[Link, Link] = {}
        for link in self.wiring.links:
            others = [self.link_from[nic] for nic in self.sources(link.target) if nic in self.link_from]
            if others and link not in others:
                instead[link] = others[0]
        return instead

    @cached_property
    def swapped_pairs(self) -> tuple[Pair, ...]:
        """Pairs of links that hear each other's sources."""
        instead = self.received_instead
        return tuple(
            (link, other) for link, other in instead.items() if instead.get(other) == link and link < other
        )

    @cached_property
    def strays(self) -> tuple[tuple[Nic, Nic], ...]:
        """Sources that a NIC hears and no circuit explains: of its own NIC, and one end without a link."""
        return tuple(
            (source, nic)
            for nic in self.nics.values()
            for source in self.sources(nic)
            if nic not in self.link_into or source not in self.link_from
        )


def _find_swapped_cables(pairs: Collection[Pair]) -> tuple[Cables, ...]:
    """Return pairs of pairs that one exchange of two whole cables explains, each pair once."""
    cables: list[Cables] = []
    left = set(pairs)
    for pair in pairs:
        ends = {link.source for link in pair}, {link.target for link in pair}
        for other in left - {pair} if pair in left else ():
            others = {link.target for link in other}, {link.source for link in other}
            if ends[0] == others[0] or ends[1] == others[1]:
                cables.append((pair, other))
                left -= {pair, other}
                break
    return tuple(cables)


def _cables(lab: Lab, cables: Cables) -> LinkFinding:
    """Return the finding of two exchanged cables; which two is open where the links run both ways."""
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


def _judge_link(probed: _Probed, link: Link, ignore: Collection[Link]) -> Iterator[LinkFinding]:
    """Yield why a link's own frame did not arrive."""
    lab = probed.lab
    subject, target = lab.link_label(link), lab.nic_label(link.target)
    other = probed.received_instead.get(link)
    if stray := _stray_of(probed, link):
        yield SWAPPED.report(subject, stray)
    elif not probed.report(link.target).carrier:
        silenced = _describe_silenced(probed, link.target)
        yield NO_CARRIER.report(subject, f"{target} receives no light{silenced}")
    elif other is not None and probed.received_instead.get(other) == link:
        if link < other or other in ignore:  # the pair is one finding
            yield _report_swapped(lab, link, other)
    elif other is not None:
        what = f"{target} hears {lab.nic_label(other.source)} instead of {lab.nic_label(link.source)}"
        yield SWAPPED.report(subject, f"{what}; {_fibres(lab, link)}")
    elif not _is_consequence(probed, link):
        yield NOT_HEARD.report(subject, _why_not_received(probed, link))


def _stray_of(probed: _Probed, link: Link) -> str:
    """Return how the frames of a link went astray to a NIC without one, or came from one; empty otherwise."""
    lab = probed.lab
    for source, nic in probed.strays:
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


def _describe_silenced(probed: _Probed, nic: Nic) -> str:
    """Return a NIC without carrier does not send either: say which link could not be tried for that reason."""
    outgoing = probed.link_from.get(nic)
    return f" and so cannot send on {probed.lab.link_label(outgoing)}" if outgoing else ""


def _is_consequence(probed: _Probed, link: Link) -> bool:
    """Return whether the source could not send because its own receiver is dark, which has its own finding."""
    return not probed.report(link.source).carrier and link.source in probed.link_into


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


def _fibres(lab: Lab, link: Link) -> str:
    source, target = fibre_end(lab, link.source, "transmit"), fibre_end(lab, link.target, "receive")
    return f"look at the transmit fibre at {source} and the receive fibre at {target}"


def fibre_end(lab: Lab, nic: Nic, side: Fibre) -> str:
    """Return the switch port at which a fibre of a NIC ends, as `switch:port`."""
    end = lab.nic(nic).transmit if side == "transmit" else lab.nic(nic).receive
    return f"{end.switch}:{end.port}"


def _why_not_received(probed: _Probed, link: Link) -> str:
    """Return what the counters at both ends say of a link with light: a fibre loses packets, a host takes them."""
    lab = probed.lab
    source, target = lab.nic_label(link.source), lab.nic_label(link.target)
    sender, receiver = probed.report(link.source), probed.report(link.target)
    if not sender.carrier:
        return f"{source} has no carrier itself and so cannot send"
    what = f"{target} has light but hears nothing from {source}"
    if errors := receiver.counters.get("rx_errors"):
        return f"{what}: it counts {errors} packets with errors; {_fibres(lab, link)}"
    if sender.sent and not sender.counters.get("tx_packets", sender.sent):
        return f"{what}: {source} counts no packet that left; look for queues and filters on {_host(lab, link.source)}"
    if arrived := receiver.counters.get("rx_packets"):
        where = _host(lab, link.target)
        return f"{what}: it counts {arrived} packets that arrived, so look for what takes them on {where}"
    counts = "; it counts no packet that arrived" if "rx_packets" in receiver.counters else ""
    return f"{what}{counts}; {_fibres(lab, link)}"


def _host(lab: Lab, nic: Nic) -> str:
    return lab.hosts[nic.node].name


def _foreign_frames(probed: _Probed) -> Iterator[LinkFinding]:
    """Yield frames that no link explains: of another epoch or lab, or between NICs that should be dark."""
    heard = probed.heard
    unexplained = [stray for stray in probed.strays if not _has_silent_link(probed, *stray)]
    for (host, nic), report in heard.nics.items():
        for frame in report.frames:
            subject = f"{frame.host}/{frame.nic} -> {host}/{nic}"
            if frame.epoch != heard.epoch or frame[:2] not in probed.nics:
                detail = f"a frame of epoch {frame.epoch}, not {heard.epoch}: another lab or run shares these fibres"
                yield FOREIGN.report(subject, detail)
            elif (probed.nics[frame[:2]], probed.nics.get((host, nic))) in unexplained:
                detail = f"{host}/{nic} hears {frame.host}/{frame.nic}, and no link is planned there"
                yield EXTRA_CIRCUIT.report(subject, detail)


def _has_silent_link(probed: _Probed, source: Nic, nic: Nic) -> bool:
    """Return whether a stray is told with the link that it was taken from."""
    links = (probed.link_from.get(source), probed.link_into.get(nic))
    return any(link is not None and not probed.is_received(link) for link in links)
