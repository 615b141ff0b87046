"""The tables of a report: timings, bytes on the NICs, circuits, environment, and commands to repeat the run."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import cast

from lightbed.wording import format_count
from testbed.measure.model import NicBytes, Timing
from testbed.measure.report.markup import Markup, join, tag
from testbed.measure.results.records import Json, StoredRun
from testbed.measure.units import format_number, format_size

_TIMING_COLUMNS = (
    "Size",
    "Iterations",
    "Median time, ms",
    "Quartiles, ms",
    "Minimum, ms",
    "Maximum, ms",
    "Algorithm bandwidth, Mbit/s",
    "Bus bandwidth, Mbit/s",
    "Share of link limit",
    "Wrong elements",
    "Limited by the hosts’ CPU",
)


def make_table(
    caption: str, columns: Sequence[str], rows: Iterable[Markup], *, text_columns: int = 1
) -> Markup:
    """Return a table with a caption and column headers. The first `text_columns` columns hold text, others numbers."""
    header_cells = (
        tag("th", name, scope="col", class_="text" if index < text_columns else None)
        for index, name in enumerate(columns)
    )
    body = tag("table", tag("caption", caption), tag("thead", tag("tr", header_cells)), tag("tbody", rows))
    return tag("div", body, class_="scroll", tabindex="0")


def make_timing_table(stored_run: StoredRun) -> Markup:
    """Return a table of all timings, grouped by topology and configuration in the order measured."""
    groups = groupby(stored_run.timings, key=lambda timing: (timing.topology, timing.configuration))
    rows = [row for key, timings in groups for row in _make_timing_group(key, list(timings))]
    caption = (
        "Each iteration counts with the time of its slowest rank; bandwidths follow from the median. "
        "Bus bandwidth is defined as in nccl-tests: for AllReduce, algorithm bandwidth times 2(n−1)/n."
    )
    return make_table(caption, _TIMING_COLUMNS, rows)


def _make_timing_group(key: tuple[str, str], timings: Sequence[Timing]) -> list[Markup]:
    first_timing = timings[0]
    heading = (
        f"{key[0]}, {key[1]}: {first_timing.collective}, {first_timing.ranks} ranks, "
        f"{format_count(first_timing.rings, 'ring')}, "
        f"link limit {format_number(first_timing.limit_mbps)} Mbit/s"
    )
    head = tag(
        "tr",
        tag("th", heading, colspan=len(_TIMING_COLUMNS), scope="colgroup", class_="text"),
        class_="group",
    )
    return [head, *map(_make_timing_row, timings)]


def _make_timing_row(timing: Timing) -> Markup:
    limit_share = timing.busbw_mbps / timing.limit_mbps if timing.limit_mbps else 0.0
    cells = (
        str(timing.iterations),
        f"{timing.time_us / 1000:.2f}",
        f"{timing.low_us / 1000:.2f} to {timing.high_us / 1000:.2f}" if timing.low_us else "",
        *(f"{time_us / 1000:.2f}" for time_us in (timing.min_us, timing.max_us)),
        f"{timing.algbw_mbps:.1f}",
        f"{timing.busbw_mbps:.1f}",
        f"{limit_share:.0%}",
        str(timing.wrong),
        "yes" if timing.cpu_limited else "",
    )
    return tag(
        "tr",
        tag("th", format_size(timing.size_bytes), scope="row"),
        (tag("td", cell) for cell in cells),
        class_="limited" if timing.cpu_limited else None,
    )


def make_bytes_table(rows: Sequence[NicBytes]) -> Markup:
    """Return a table that compares byte counters with the plan, with one row per configuration and size."""
    rows_by_case: dict[tuple[str, str, int], list[NicBytes]] = {}
    for row in rows:
        rows_by_case.setdefault((row.topology, row.configuration, row.size_bytes), []).append(row)
    columns = (
        "Topology",
        "Configuration",
        "Size",
        "NICs on the rings",
        "Bytes sent",
        "Largest deviation",
        "Retransmitted by TCP",
        "Largest share on any other NIC",
    )
    return make_table(
        "Bytes that the NICs counted during the timed iterations, compared with the ring arithmetic: "
        "each link of a ring carries 2(n−1)/n of the ring’s share, every other link nothing. "
        "Retransmitted bytes count once for each link on their path.",
        columns,
        [_make_bytes_row(key, case_rows) for key, case_rows in rows_by_case.items()],
        text_columns=2,
    )


def _make_bytes_row(key: tuple[str, str, int], rows: Sequence[NicBytes]) -> Markup:
    ring_rows = [row for row in rows if row.expected_bytes > 0]
    idle_rows = [row for row in rows if row.expected_bytes <= 0]
    expected_bytes = max((row.expected_bytes for row in ring_rows), default=0.0)
    deviations = [(row.sent_bytes - row.expected_bytes) / row.expected_bytes for row in ring_rows]
    largest_deviation = max(deviations, key=abs, default=0.0)
    idle_share = (
        f"{max(row.sent_bytes for row in idle_rows) / expected_bytes:.1%}"
        if idle_rows and expected_bytes
        else "no other NIC"
    )
    return tag(
        "tr",
        tag("th", key[0], scope="row"),
        tag("td", key[1], class_="text"),
        tag("td", format_size(key[2])),
        tag("td", str(len(ring_rows))),
        tag("td", format_size(sum(row.sent_bytes for row in ring_rows))),
        tag("td", f"{largest_deviation:+.1%}"),
        tag("td", format_size(sum(row.retransmitted_bytes for row in rows))),
        tag("td", idle_share),
    )


def make_circuit_tables(stored_run: StoredRun) -> Markup:
    """Return one collapsed table of circuits per topology."""
    return join(_make_circuit_details(stored_run, name) for name in stored_run.circuits)


def _make_circuit_details(stored_run: StoredRun, topology_name: str) -> Markup:
    circuits = stored_run.circuits[topology_name]
    rows = (
        tag(
            "tr",
            tag("th", circuit.source, scope="row"),
            tag("td", circuit.target, class_="text"),
            tag("td", circuit.switch, class_="text"),
            tag("td", str(circuit.input_port)),
            tag("td", str(circuit.output_port)),
        )
        for circuit in circuits
    )
    body = make_table(
        f"Cross-connects of {topology_name}, one for each direction of each link.",
        ("From", "To", "Switch", "Input port", "Output port"),
        rows,
        text_columns=3,
    )
    return tag("details", tag("summary", f"{topology_name}: {format_count(len(circuits), 'circuit')}"), body)


def make_environment_table(stored_run: StoredRun) -> Markup:
    """Return a table of versions, seeds and all other recorded facts."""
    facts = [
        (f"{name}: {key}" if key else name, value)
        for name, facts_document in stored_run.environment.items()
        if name != "arguments"
        for key, value in _flatten(facts_document)
    ]
    if not stored_run.environment.get("seeds"):
        facts.append(("seeds", "none: neither planning nor measurement draws random numbers"))
    rows = (tag("tr", tag("th", name, scope="row"), tag("td", value, class_="wrap")) for name, value in facts)
    return make_table("Versions, seeds and machine of this run.", ("Fact", "Value"), rows, text_columns=2)


def _flatten(value: Json) -> list[tuple[str, str]]:
    if isinstance(value, Mapping):
        return [(str(key), _format_value(entry)) for key, entry in value.items()]
    return [("", _format_value(value))]


def _format_value(value: Json) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(_format_value, value))
    return str(value)


def make_repeat_section(stored_run: StoredRun) -> Markup:
    """Return the commands that repeat the run, show it again and read its rows."""
    arguments = [
        str(argument) for argument in cast("Sequence[Json]", stored_run.environment.get("arguments", ()))
    ]
    command = shlex.join([Path(arguments[0]).name, *arguments[1:]]) if arguments else "testbed demo LAB"
    run_id = stored_run.summary.run_id
    timings_file = stored_run.summary.directory / "timings.parquet"
    commands_text = (
        f"{command}\n"
        f"testbed report {run_id}\n"
        f"python -c \"import pyarrow.parquet as pq; print(pq.read_table('{timings_file}'))\""
    )
    return join(
        tag("p", "These commands repeat the run, show this report and print its timings:"),
        tag("pre", tag("code", commands_text)),
    )
