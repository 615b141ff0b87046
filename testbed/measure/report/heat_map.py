"""Heat map of the share of each iteration that each rank lost. Inline SVG, styled by the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from testbed.measure.diagnosis import Explanation, RankLag, RowKey, explain_run, find_lags
from testbed.measure.report.markup import Markup, join, tag
from testbed.measure.report.tables import make_table
from testbed.measure.results.records import StoredRun
from testbed.measure.units import format_size

_CELL_PIXELS, _GAP_PIXELS, _LEFT, _TOP, _BOTTOM, _WIDTH = 18.0, 2.0, 90, 30, 40, 930
_MAX_TICKS = 10


def make_slow_rank_section(stored_run: StoredRun) -> Markup:
    """Return a table of what held up the run, and a heat map of each configuration at its largest size."""
    explanation = explain_run(stored_run)
    lags = find_lags(stored_run.ranks)
    row_key_by_configuration: dict[tuple[str, str], RowKey] = {}
    for row_key in lags:
        row_key_by_configuration[row_key[:2]] = max(
            row_key, row_key_by_configuration.get(row_key[:2], row_key), key=lambda candidate: candidate[2]
        )
    return join(
        _list_findings(explanation),
        *(
            _make_figure(stored_run, row_key, lags[row_key], f"ranks-{index}")
            for index, row_key in enumerate(row_key_by_configuration.values())
        ),
    )


def _list_findings(explanation: Explanation) -> Markup:
    if not explanation.findings:
        return tag("p", "No rank and no link held up the others.")
    rows = (
        tag(
            "tr",
            tag("th", finding.cause, scope="row"),
            tag("td", finding.link or f"rank {finding.rank} ({finding.host})", class_="text"),
            tag("td", finding.evidence, class_="text wrap"),
            tag("td", f"{finding.slower:.2f}×"),
        )
        for finding in explanation.findings
    )
    columns = ("Cause", "Rank or link", "Evidence", "Iterations longer by")
    return make_table("What held up this run.", columns, rows, text_columns=3)


def _make_figure(
    stored_run: StoredRun, row_key: RowKey, lags: Sequence[Sequence[RankLag]], id_prefix: str
) -> Markup:
    topology, configuration, size = row_key
    heading = f"{configuration}, {format_size(size)}" if size else configuration
    hosts = stored_run.lab.host_names
    caption = (
        f"{f'On topology {topology}. ' if topology else ''}A cell is a rank in an iteration; the darker it is, the "
        "larger the part of the iteration that this rank computed, queued for a processor, wrote or stood still "
        "longer than the others (the median)."
    )
    drawing = draw_heat_map(
        lags, hosts, id_prefix, title=f"Time that each rank lost in each iteration: {heading}"
    )
    return join(tag("h3", heading), tag("figure", drawing, tag("figcaption", caption)))


def draw_heat_map(
    lags: Sequence[Sequence[RankLag]], hosts: Sequence[str], id_prefix: str, *, title: str
) -> Markup:
    """Draw the heat map of `lags`, indexed by rank and iteration. `id_prefix` makes element ids unique on the page."""
    iteration_count = max(map(len, lags), default=0)
    cell_width = min(_CELL_PIXELS * 2, (_WIDTH - _LEFT) / max(1, iteration_count))
    bottom_y = _TOP + _CELL_PIXELS * len(lags)
    tick_step = -(-iteration_count // _MAX_TICKS)
    largest_share = max((lag.share for rank_lags in lags for lag in rank_lags), default=0.0)
    return tag(
        "svg",
        tag("title", title, id=f"{id_prefix}-title"),
        tag(
            "desc",
            f"The largest part that a rank lost is {largest_share:.0%} of an iteration.",
            id=f"{id_prefix}-desc",
        ),
        *(
            tag(
                "text",
                f"{rank} {hosts[rank]}",
                x=_LEFT - 8,
                y=_TOP + _CELL_PIXELS * (rank + 0.7),
                class_="tick end",
            )
            for rank in range(len(lags))
        ),
        *_draw_cells(lags, hosts, cell_width),
        *(
            tag(
                "text",
                str(iteration + 1),
                x=_LEFT + cell_width * (iteration + 0.5),
                y=bottom_y + 18,
                class_="tick middle",
            )
            for iteration in range(0, iteration_count, max(1, tick_step))
        ),
        tag("text", "rank", x=_LEFT - 8, y=_TOP - 10, class_="axis-title end"),
        tag("text", "iteration", x=_LEFT, y=bottom_y + 34, class_="axis-title"),
        viewBox=f"0 0 {_WIDTH} {bottom_y + _BOTTOM:.0f}",
        role="img",
        aria_labelledby=f"{id_prefix}-title {id_prefix}-desc",
        class_="chart",
    )


def _draw_cells(
    lags: Sequence[Sequence[RankLag]], hosts: Sequence[str], cell_width: float
) -> Iterator[Markup]:
    for rank, rank_lags in enumerate(lags):
        for iteration, lag in enumerate(rank_lags):
            tooltip = f"rank {rank} ({hosts[rank]}), iteration {iteration + 1}: {lag.share:.0%} lost"
            yield tag(
                "rect",
                tag("title", f"{tooltip} ({lag.cause})" if lag.cause else tooltip),
                x=_LEFT + cell_width * iteration,
                y=_TOP + _CELL_PIXELS * rank,
                width=max(1.0, cell_width - _GAP_PIXELS),
                height=_CELL_PIXELS - _GAP_PIXELS,
                fill_opacity=0.06 + 0.94 * min(1.0, lag.share),
                class_="heat",
            )
