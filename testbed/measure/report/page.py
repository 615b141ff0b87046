"""One run as one HTML file, without network, scripts or external fonts; for light, dark and paper.

All its content comes from the store (`StoredRun`), so it can be written again at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from lightbed.output_file import write_output
from lightbed.wording import count_noun
from testbed.measure.gain import RingGain, largest_of_each, ring_gain
from testbed.measure.report.chart import Series, cpu_limited_sizes, draw_bandwidth
from testbed.measure.report.markup import Markup, join, tag
from testbed.measure.report.style import STYLE
from testbed.measure.report.tables import (
    bytes_table,
    circuit_tables,
    environment_table,
    repeat_section,
    table,
    timing_table,
)
from testbed.measure.report.topology import draw_topology
from testbed.measure.results.records import LINK_RATE, Repatch, StoredRun, StoredTopology
from testbed.measure.units import number_text, seconds_text, size_text

CPU_NOTE = " (limited by the hosts’ CPU)"


def write_report(stored: StoredRun, path: Path | str) -> None:
    """Write the report of a run. Raises `OSError`."""
    write_output(path, render_report(stored))


def render_report(stored: StoredRun) -> str:
    """Return the report of a run as HTML text."""
    summary = stored.summary
    title = f"{summary.lab}, run {summary.run_id}{' (SIMULATED)' if summary.simulated else ''}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup(STYLE)),
    )
    simulated = "Every figure is SIMULATED. " if summary.simulated else ""
    footer = tag("footer", f"{simulated}Written by lightbed from {summary.directory}.")
    sections = [
        _section("Bus bandwidth", _bandwidth_section(stored)) if stored.timings else "",
        _section("Topologies", _topology_section(stored)) if stored.topologies else "",
        *(_section(f"Re-patch to {one.target}", _repatch_section(stored, one)) for one in stored.repatches),
        _section("Timings", timing_table(stored)) if stored.timings else "",
        _section("Bytes on the interfaces", bytes_table(stored.nic_bytes)) if stored.nic_bytes else "",
        _section("Circuits", circuit_tables(stored)) if stored.circuits else "",
        _section("Versions, seeds, machine", environment_table(stored)),
        _section("How to repeat", repeat_section(stored)),
    ]
    body = tag("body", tag("header", header(stored)), tag("main", join(*sections)), footer)
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _section(heading: str, content: Markup) -> Markup:
    return tag("section", tag("h2", heading), content)


def _series_of(stored: StoredRun, topology: str) -> list[Series]:
    """Return the configurations measured on a topology, in the order measured."""
    timings = [timing for timing in stored.timings if timing.topology == topology]
    names = dict.fromkeys(timing.configuration for timing in timings)
    return [Series.of(name, (one for one in timings if one.configuration == name)) for name in names]


def _bandwidth_section(stored: StoredRun) -> Markup:
    names = dict.fromkeys(timing.topology for timing in stored.timings)
    return join(
        _chart(stored, _series_of(stored, name), f"bandwidth-{place}", f"On topology {name}")
        for place, name in enumerate(names)
    )


def _chart(stored: StoredRun, series: Sequence[Series], key: str, heading: str) -> Markup:
    summary = stored.summary
    drawing = draw_bandwidth(
        series,
        key,
        title=f"Bus bandwidth against message size: {heading}",
        scale=stored.lab.scale if summary.simulated else 1.0,
        simulated=summary.simulated,
    )
    caption = tag("figcaption", join(Markup(" ").join(_caption(stored, series))))
    return join(tag("h3", heading), tag("figure", drawing, caption))


def _caption(stored: StoredRun, series: Sequence[Series]) -> Iterable[str]:
    yield "Broken lines: link limits; grey where configurations share one."
    limited = cpu_limited_sizes(series)
    if limited:
        yield f"Shaded: limited by the hosts’ CPU, not the links (hollow points): {'; '.join(limited)}."
    if stored.summary.hosts == "model":
        yield "hosts: model: computed, not measured."


def _topology_section(stored: StoredRun) -> Markup:
    return tag(
        "div",
        (
            _topology_figure(topology, stored.lab.host_names, f"topology-{place}")
            for place, topology in enumerate(stored.topologies)
        ),
        class_="pair",
    )


def _topology_figure(topology: StoredTopology, names: Sequence[str], key: str) -> Markup:
    kind = "one-way" if topology.simplex else "two-way"
    facts = (
        f"{topology.nodes} nodes, degree {topology.degree}, {count_noun(len(topology.links), f'{kind} link')}; "
        f"diameter {topology.diameter}, mean hops {topology.mean_hops:.3f}. {topology.reason}"
    )
    return tag(
        "figure",
        tag("h3", topology.name),
        draw_topology(topology, names, key),
        tag("figcaption", facts),
    )


def _repatch_section(stored: StoredRun, repatch: Repatch) -> Markup:
    costs = [
        ("Circuits moved", str(repatch.circuits_moved)),
        ("Dark time, the switch’s own", seconds_text(repatch.outage_s)),
        ("Whole change, until routes stood again", seconds_text(repatch.total_s)),
        ("Longest gap of a TCP stream across it", seconds_text(repatch.stall_s)),
        ("Usual gap of that stream", seconds_text(repatch.usual_gap_s)),
    ]
    cost_rows = (tag("tr", tag("th", name, scope="row"), tag("td", value)) for name, value in costs)
    return join(
        tag("p", f"From {repatch.source} to {repatch.target}. {repatch.reason}"),
        tag("h3", "What it gave"),
        _comparison_table(repatch) if repatch.comparisons else tag("p", "No figure was compared."),
        *_comparison_charts(stored, repatch),
        tag("h3", "What it cost"),
        table("From the first byte to the switch until traffic was back.", ("Cost", "Figure"), cost_rows),
    )


def _comparison_table(repatch: Repatch) -> Markup:
    rows = (
        tag(
            "tr",
            tag("th", one.label, scope="row"),
            tag("td", f"{number_text(one.before)} {one.unit}"),
            tag("td", f"{number_text(one.after)} {one.unit}"),
            tag("td", f"{one.gain:.2f}×{CPU_NOTE if one.cpu_limited else ''}", class_="gain"),
        )
        for one in repatch.comparisons
    )
    columns = ("Figure", f"Before: {repatch.source}", f"After: {repatch.target}", "Gain")
    return table("A gain above 1 is an improvement, whichever way the figure runs.", columns, rows)


def _comparison_charts(stored: StoredRun, repatch: Repatch) -> Iterable[Markup]:
    """Yield a chart for each configuration measured before and after the change."""
    before = {one.label: one for one in _series_of(stored, repatch.source)}
    after = {one.label: one for one in _series_of(stored, repatch.target)}
    for place, name in enumerate(name for name in before if name in after):
        series = (
            Series(f"before: {repatch.source}", before[name].timings),
            Series(f"after: {repatch.target}", after[name].timings),
        )
        yield _chart(
            stored, series, f"change-{repatch.target}-{place}".replace(" ", "-"), f"{name}, before and after"
        )


def header(stored: StoredRun) -> Markup:
    """Return the content of the page's header."""
    summary = stored.summary
    sizes = {(topology.nodes, topology.degree) for topology in stored.topologies}
    shape = " and ".join(f"{nodes} nodes, degree {degree}" for nodes, degree in sorted(sizes))
    ended = f"to {summary.finished:%H:%M:%S}" if summary.finished else "no end recorded"
    tiles = [*_bandwidth_tiles(stored), *(tile for one in stored.repatches[:1] for tile in _cost_tiles(one))]
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
        tag("dl", tiles, class_="tiles") if tiles else Markup(),
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
    lab = stored.lab
    rates = [str(phase.data["text"]) for phase in stored.phases if phase.name == LINK_RATE]
    return tag(
        "div",
        tag("p", tag("strong", "SIMULATED. "), what),
        tag(
            "p",
            f"Each link runs at {number_text(lab.rate_mbps)} Mbit/s, which stands for "
            f"{number_text(lab.represents_gbps)} Gb/s: scale {number_text(lab.scale)}×. "
            f"All figures are as {'computed' if stored.summary.hosts == 'model' else 'measured'}, not scaled."
            + (f" The rate was chosen for this machine: {rates[0]}." if rates else ""),
        ),
        class_="notice",
    )


def _error_notice(stored: StoredRun) -> Markup:
    """Return the errors that cast doubt on the run; empty if there are none."""
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


def _tile(name: str, figure: str, unit: str, beside: str, *, limited: bool = False) -> Markup:
    value = tag("span", f"{figure} ", tag("span", unit, class_="unit"), class_="figure")
    return tag(
        "div",
        tag("dt", name),
        tag("dd", join(value, tag("span", beside, class_="beside"))),
        class_="tile limited" if limited else "tile",
    )


def _bandwidth_tiles(stored: StoredRun) -> list[Markup]:
    """Return tiles of up to three configurations at their largest size, and of the gain of the most rings."""
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
    """Return the tile of the ring gain, without its number as the headline if the hosts' CPU limited it."""
    name = f"{gain.most.configuration} over {gain.one.configuration}"
    if gain.cpu_limited:
        beside = f"not a property of the links: measured {gain.ratio:.2f}×, limit {gain.most.rings}×"
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
            f"{count_noun(repatch.circuits_moved, 'circuit')} moved",
        )
    ]
    if repatch.stall_s is not None:
        stall, stall_unit = seconds_text(repatch.stall_s).split(" ", 1)
        tiles.append(_tile("TCP stall it cost", stall, stall_unit, "longest gap of a stream across it"))
    return tiles
