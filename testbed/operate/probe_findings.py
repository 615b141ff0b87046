"""Findings of the link probe against the wiring: which fibre is dark, silent, swapped or somebody else's."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.design.model import Link, Nic, Wiring
from testbed.lab.hosts.probe import Frame, NicReport, ProbeReport
from testbed.lab.model import Lab
from testbed.operate.model import LinkFinding

_DEAF = NicReport(carrier=False, sent=0, frames=())


def links_received(lab: Lab, wiring: Wiring, heard: ProbeReport) -> int:
    """Return how many links carried a probe frame of this epoch from their source to their target."""
    return sum(
        _frame(lab, link.source, heard.epoch) in _nic_report(lab, heard, link.target).frames
        for link in wiring.links
    )


def compare(lab: Lab, wiring: Wiring, heard: ProbeReport) -> tuple[LinkFinding, ...]:
    """Return everything heard that is not as planned. Pure.

    Two links that hear each other's sources are one finding, `swapped`, that names both and their fibres: also
    when both run between the same two hosts, where every ping would still be answered.
    """
    received_instead = _received_instead(lab, wiring, heard)
    findings: list[LinkFinding] = []
    for link in wiring.links:
        if _frame(lab, link.source, heard.epoch) not in _nic_report(lab, heard, link.target).frames:
            findings += _judge_link(lab, wiring, heard, link, received_instead)
    return (*findings, *_foreign_frames(lab, wiring, heard))


def _nic_report(lab: Lab, heard: ProbeReport, nic: Nic) -> NicReport:
    return heard.nics.get((lab.hosts[nic.node].name, lab.nic(nic).name), _DEAF)


def _frame(lab: Lab, nic: Nic, epoch: int) -> Frame:
    return Frame(lab.hosts[nic.node].name, lab.nic(nic).name, epoch)


def _received_instead(lab: Lab, wiring: Wiring, heard: ProbeReport) -> dict[Link, Link]:
    """Return links whose target hears the source of another planned link instead of its own."""
    by_frame = {_frame(lab, link.source, heard.epoch): link for link in wiring.links}
    instead: dict[Link, Link] = {}
    for link in wiring.links:
        frames = _nic_report(lab, heard, link.target).frames
        others = [by_frame[frame] for frame in frames if frame in by_frame]
        if others and link not in others:
            instead[link] = others[0]
    return instead


def _judge_link(
    lab: Lab, wiring: Wiring, heard: ProbeReport, link: Link, received_instead: dict[Link, Link]
) -> Iterator[LinkFinding]:
    """Yield why a link's own frame did not arrive."""
    subject, target = lab.link_label(link), lab.nic_label(link.target)
    other = received_instead.get(link)
    if not _nic_report(lab, heard, link.target).carrier:
        yield LinkFinding(
            "no_carrier", subject, f"{target} receives no light{_silenced(lab, wiring, link.target)}"
        )
    elif other is not None and received_instead.get(other) == link:
        if link < other:  # the pair is one finding
            yield _swapped(lab, link, other)
    elif other is not None:
        what = f"{target} hears {lab.nic_label(other.source)} instead of {lab.nic_label(link.source)}"
        yield LinkFinding("swapped", subject, f"{what}; {_fibres(lab, link)}")
    elif not _is_consequence(lab, wiring, heard, link):
        yield LinkFinding("not_heard", subject, _why_not_received(lab, heard, link))


def _silenced(lab: Lab, wiring: Wiring, nic: Nic) -> str:
    """Return a NIC without carrier does not send either: say which link could not be tried for that reason."""
    outgoing = wiring.link_from.get(nic)
    return f" and so cannot send on {lab.link_label(outgoing)}" if outgoing else ""


def _is_consequence(lab: Lab, wiring: Wiring, heard: ProbeReport, link: Link) -> bool:
    """Return whether the source could not send because its own receiver is dark, which has its own finding."""
    return not _nic_report(lab, heard, link.source).carrier and link.source in wiring.link_into


def _swapped(lab: Lab, one: Link, other: Link) -> LinkFinding:
    first, second = lab.link_label(one), lab.link_label(other)
    detail = (
        f"{lab.nic_label(one.target)} hears {lab.nic_label(other.source)} and {lab.nic_label(other.target)} hears "
        f"{lab.nic_label(one.source)}: two fibres are swapped, either the transmit fibres at "
        f"{_end(lab, one.source, 'transmit')} and {_end(lab, other.source, 'transmit')} or the receive fibres at "
        f"{_end(lab, one.target, 'receive')} and {_end(lab, other.target, 'receive')}"
    )
    return LinkFinding("swapped", f"{first} and {second}", detail)


def _fibres(lab: Lab, link: Link) -> str:
    source, target = _end(lab, link.source, "transmit"), _end(lab, link.target, "receive")
    return f"look at the transmit fibre at {source} and the receive fibre at {target}"


def _end(lab: Lab, nic: Nic, direction: str) -> str:
    end = lab.nic(nic).transmit if direction == "transmit" else lab.nic(nic).receive
    return f"{end.switch}:{end.port}"


def _why_not_received(lab: Lab, heard: ProbeReport, link: Link) -> str:
    source, target = lab.nic_label(link.source), lab.nic_label(link.target)
    if not _nic_report(lab, heard, link.source).carrier:
        return f"{source} has no carrier itself and so cannot send"
    return f"{target} has light but hears nothing from {source}; {_fibres(lab, link)}"


def _foreign_frames(lab: Lab, wiring: Wiring, heard: ProbeReport) -> Iterator[LinkFinding]:
    """Yield frames that no planned link explains: of another epoch or lab, or on a NIC that should be dark."""
    sources = {_frame(lab, link.source, heard.epoch): link for link in wiring.links}
    planned = {_frame(lab, link.target, heard.epoch)[:2]: link for link in wiring.links}
    for (host, nic), report in heard.nics.items():
        for frame in report.frames:
            subject = f"{frame.host}/{frame.nic} -> {host}/{nic}"
            if frame.epoch != heard.epoch or not _is_ours(lab, frame):
                detail = f"a frame of epoch {frame.epoch}, not {heard.epoch}: another lab or run shares these fibres"
                yield LinkFinding("foreign", subject, detail)
            elif (host, nic) not in planned or frame not in sources:
                detail = f"{host}/{nic} hears {frame.host}/{frame.nic}, and no link is planned there"
                yield LinkFinding("extra_circuit", subject, detail)


def _is_ours(lab: Lab, frame: Frame) -> bool:
    return any(
        host.name == frame.host and any(nic.name == frame.nic for nic in host.nics) for host in lab.hosts
    )
