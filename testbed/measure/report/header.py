"""The head of a report: what ran, notices that must be read first, and the main figures as tiles."""

from __future__ import annotations

from lightbed.wording import counted
from testbed.measure.gain import RingGain, largest_of_each, ring_gain
from testbed.measure.report.markup import Markup, join, tag
from testbed.measure.results.records import LINK_RATE, Repatch, StoredRun
from testbed.measure.units import number_text, seconds_text, size_text


def header(stored: StoredRun) -> Markup:
    """Return the content of the page's header."""
    summary = stored.summary
    sizes = {(topology.nodes, topology.degree) for topology in stored.topologies}
    shape = " and ".join(f"{nodes} nodes, degree {degree}" for nodes, degree in sorted(sizes))
    ended = f"to {summary.finished:%H:%M:%S}" if summary.finished else "no end recorded"
    return join(
        tag("p", f"lightbed · run {summary.run_id}", class_="eyebrow"),
        tag("h1", f"{summary.lab}{f': {shape}' if shape else ''}"),
        tag(
            "p",
            tag("span", "SIMULATED", class_="badge") if summary.simulated else "",
            f" {summary.started:%d %B %Y, %H:%M:%S} {ended} UTC · hosts: {summary.hosts} · "
            f"switches: {', '.join(stored.lab.switches)} · {summary.status}",
            class_="muted wide",
        ),
        _simulation_notice(stored) if summary.simulated else "",
        _error_notice(stored),
        _tiles(stored),
    )


def _simulation_notice(stored: StoredRun) -> Markup:
    if stored.summary.hosts == "model":
        what = (
            "hosts: model. No packet was sent: the timings are computed by a flow model of the links, "
            "and say nothing about processors or protocols."
        )
    else:
        what = (
            "The switch is a simulated device on real sockets; the hosts are real Linux network stacks "
            "on one machine, joined by kernel redirects where the switch has circuits."
        )
    return tag("div", tag("p", tag("strong", "SIMULATED. "), what), _scale_note(stored), class_="notice")


def _scale_note(stored: StoredRun) -> Markup:
    lab = stored.lab
    return tag(
        "p",
        f"Each link runs at {number_text(lab.rate_mbps)} Mbit/s, which stands for "
        f"{number_text(lab.represents_gbps)} Gb/s: scale {number_text(lab.scale)}×. "
        f"All figures are as {'computed' if stored.summary.hosts == 'model' else 'measured'}, not scaled."
        f"{_rate_note(stored)}",
    )


def _rate_note(stored: StoredRun) -> str:
    """Return in words how the lab chose the rate of its links, where it did."""
    texts = [str(phase.data["text"]) for phase in stored.phases if phase.name == LINK_RATE]
    return f" The rate was chosen for this machine: {texts[0]}." if texts else ""


def _error_notice(stored: StoredRun) -> Markup:
    """Return what the reader must know before believing the rest; empty when all is well."""
    summary = stored.summary
    errors = []
    if summary.status != "done":
        errors.append(f"This run is {summary.status}{f' ({summary.error})' if summary.error else ''}.")
    wrong = [timing for timing in stored.timings if timing.wrong]
    if wrong:
        cases = ", ".join(
            f"{one.topology}, {one.configuration}, {size_text(one.size_bytes)}" for one in wrong
        )
        errors.append(f"Wrong sums were found: {cases}.")
    off_plan = sum(
        int(str(phase.data["counters_off_plan"]))
        for phase in stored.phases
        if "counters_off_plan" in phase.data
    )
    if off_plan:
        errors.append(f"{off_plan} byte counters of NICs contradict the planned rings.")
    if not stored.timings:
        errors.append("No timing was recorded.")
    if not errors:
        return Markup()
    return tag("div", (tag("p", error) for error in errors), class_="notice bad", role="alert")


def _tiles(stored: StoredRun) -> Markup:
    tiles = [*_bandwidth_tiles(stored), *(tile for one in stored.repatches[:1] for tile in _cost_tiles(one))]
    return tag("dl", tiles, class_="tiles") if tiles else Markup()


def _tile(name: str, figure: str, unit: str, beside: str, *, limited: bool = False) -> Markup:
    value = tag("span", f"{figure} ", tag("span", unit, class_="unit"), class_="figure")
    return tag(
        "div",
        tag("dt", name),
        tag("dd", join(value, tag("span", beside, class_="beside"))),
        class_="tile limited" if limited else "tile",
    )


def _bandwidth_tiles(stored: StoredRun) -> list[Markup]:
    """Return the largest size of each configuration of the first topology, and the gain of the most rings."""
    at_largest = largest_of_each(stored.timings) if stored.timings else ()
    tiles = [
        _tile(
            f"{timing.configuration}, {size_text(timing.size_bytes)}",
            number_text(timing.busbw_mbps),
            "Mbit/s",
            f"{'limited by the hosts’ CPU: ' if timing.cpu_limited else ''}"
            f"bus bandwidth, {timing.busbw_mbps / timing.limit_mbps:.0%} of the link limit",
            limited=timing.cpu_limited,
        )
        for timing in at_largest[:3]
    ]
    gain = ring_gain(at_largest)
    return [*tiles, _gain_tile(gain)] if gain else tiles


def _gain_tile(gain: RingGain) -> Markup:
    """Return the headline: a ratio that the links made, never one that this machine made."""
    name = f"{gain.most.configuration} over {gain.one.configuration}"
    if gain.cpu_limited:
        beside = f"says nothing of the links: measured {gain.ratio:.2f}×, limit {gain.most.rings}×"
        return _tile(name, "limited", "by the hosts’ CPU", beside, limited=True)
    low, high = gain.spread
    spread = f", {low:.2f} to {high:.2f} by quartiles" if low else ""
    return _tile(name, f"{gain.ratio:.2f}", "×", f"limit {gain.most.rings}×{spread}")


def _cost_tiles(repatch: Repatch) -> list[Markup]:
    dark, dark_unit = seconds_text(repatch.outage_s).split(" ", 1)
    tiles = [
        _tile(
            "Dark time of the re-patch",
            dark,
            dark_unit,
            f"{counted(repatch.circuits_moved, 'circuit')} moved",
        )
    ]
    if repatch.stall_s is not None:
        stall, stall_unit = seconds_text(repatch.stall_s).split(" ", 1)
        tiles.append(_tile("TCP stall it cost", stall, stall_unit, "longest gap of a stream across it"))
    return tiles
