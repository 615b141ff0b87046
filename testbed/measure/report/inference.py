"""Report section on a board's trial: circuits, requests and answers, latency, and the picture of a request."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

from testbed.measure.report.markup import Markup, join, tag
from testbed.measure.report.tables import make_table
from testbed.measure.results.records import Inference, StoredRun
from testbed.measure.units import format_number, format_seconds


def make_inference_section(stored_run: StoredRun, inference: Inference) -> Markup:
    """Return a table of the requests and answers, and the picture of a request if the run has one."""
    simulated_note = (
        "The board is simulated: its RTL runs on this machine. Latencies are those of the simulator, cycles those of "
        "the hardware."
    )
    rows = (
        tag("tr", tag("th", name, scope="row"), tag("td", value)) for name, value in _list_facts(inference)
    )
    return join(
        tag(
            "p",
            f"Host {inference.host} sent inference requests for {Path(inference.model).name} to {inference.board}, "
            "one after the other, "
            f"and compared class and scores of every answer with the exact ones. "
            f"{simulated_note if stored_run.summary.simulated else ''}",
        ),
        make_table(
            "A latency lasts from the first datagram of a request to its answer.", ("Quantity", "Value"), rows
        ),
        _draw_picture(stored_run, inference),
    )


def _list_facts(inference: Inference) -> Iterator[tuple[str, str]]:
    yield from zip(("Circuit to the board", "Circuit back"), inference.circuits, strict=True)
    yield "Requests", format_number(inference.requests)
    yield "Answers", format_number(inference.answered)
    yield "Wrong answers", format_number(inference.wrong)
    yield (
        "Requests without a reply",
        f"{format_number(inference.lost)}{f' ({inference.error})' if inference.error else ''}",
    )
    yield "Requests sent again", format_number(inference.repeated)
    for name, count in inference.refused.items():
        yield f"Refused as {name}", format_number(count)
    if inference.latency_us:
        latency = inference.latency_us
        latencies_us = (latency.min, latency.median, latency.p99, latency.max)
        names = ("Shortest latency", "Median latency", "99th percentile", "Longest latency")
        yield from zip(names, (format_seconds(latency_us / 1e6) for latency_us in latencies_us), strict=True)
    if inference.cycles is not None:
        yield "Cycles of the board’s datapath (median)", format_number(inference.cycles)


def _draw_picture(stored_run: StoredRun, inference: Inference) -> Markup:
    """Return the picture as an embedded PNG, because an SVG with the lines of every cycle would be huge."""
    picture_file = stored_run.summary.directory / inference.picture
    if not inference.picture or not picture_file.is_file():
        return Markup()
    picture = b64encode(picture_file.read_bytes()).decode()
    text = f"Signals and counts of the smartNIC during one request for {Path(inference.model).name}, cycle by cycle"
    return tag(
        "figure",
        tag("img", src=f"data:image/png;base64,{picture}", alt=text),
        tag(
            "figcaption", f"{text}, SIMULATED: from the first byte of the request to the last of the answer."
        ),
    )
