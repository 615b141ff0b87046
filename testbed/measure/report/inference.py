"""Report section on a board's trial: circuits, requests and answers, latency, and the picture of a request."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

from testbed.measure.report.markup import Markup, join, tag
from testbed.measure.report.tables import table
from testbed.measure.results.records import Inference, StoredRun
from testbed.measure.units import number_text, seconds_text


def make_inference_section(stored: StoredRun, one: Inference) -> Markup:
    """Return a table of the requests and answers, and the picture of a request if the run has one."""
    simulated = (
        "The board is simulated: its RTL runs on this machine. Latencies are those of the simulator, cycles those of "
        "the hardware."
    )
    rows = (tag("tr", tag("th", name, scope="row"), tag("td", value)) for name, value in _list_facts(one))
    return join(
        tag(
            "p",
            f"Host {one.host} sent inference requests for {Path(one.model).name} to {one.board}, one after the other, "
            f"and compared class and scores of every answer with the exact ones. "
            f"{simulated if stored.summary.simulated else ''}",
        ),
        table(
            "A latency lasts from the first datagram of a request to its answer.", ("Quantity", "Value"), rows
        ),
        _draw_picture(stored, one),
    )


def _list_facts(one: Inference) -> Iterator[tuple[str, str]]:
    yield from zip(("Circuit to the board", "Circuit back"), one.circuits, strict=True)
    yield "Requests", number_text(one.requests)
    yield "Answers", number_text(one.answered)
    yield "Wrong answers", number_text(one.wrong)
    yield "Requests without a reply", f"{number_text(one.lost)}{f' ({one.error})' if one.error else ''}"
    yield "Requests sent again", number_text(one.repeated)
    for name, count in one.refused.items():
        yield f"Refused as {name}", number_text(count)
    if one.latency_us:
        latency = one.latency_us
        quantiles = (latency.min, latency.median, latency.p99, latency.max)
        names = ("Shortest latency", "Median latency", "99th percentile", "Longest latency")
        yield from zip(names, (seconds_text(each / 1e6) for each in quantiles), strict=True)
    if one.cycles is not None:
        yield "Cycles of the board’s datapath (median)", number_text(one.cycles)


def _draw_picture(stored: StoredRun, one: Inference) -> Markup:
    """Return the picture as an embedded PNG: an SVG with the lines of every cycle would be huge."""
    file = stored.summary.directory / one.picture
    if not one.picture or not file.is_file():
        return Markup()
    picture = b64encode(file.read_bytes()).decode()
    text = f"Signals and counts of the smartNIC during one request for {Path(one.model).name}, cycle by cycle"
    return tag(
        "figure",
        tag("img", src=f"data:image/png;base64,{picture}", alt=text),
        tag(
            "figcaption", f"{text}, SIMULATED: from the first byte of the request to the last of the answer."
        ),
    )
