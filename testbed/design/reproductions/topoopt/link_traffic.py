"""Figure 15: distribution of the load over TopoOpt's links."""

from __future__ import annotations

import numpy as np

from testbed.design.reproductions.figure import (
    UNPUBLISHED,
    Cell,
    Comparison,
    Figure,
    Panel,
    Plot,
    Progress,
    Table,
    make_series,
)
from testbed.design.reproductions.topoopt.all_to_all import RATE_GBPS
from testbed.design.reproductions.topoopt.jobs import simulate_all_to_all
from testbed.design.reproductions.topoopt.setup import Scale

_COLUMNS = ("degree", "batch", "share_of_links", "gb", "of_fullest")
_POINT_COUNT = 51


def _make_table(scale: Scale, progress: Progress) -> Table:
    cases = [
        (degree, batch)
        for degree in scale.degrees
        for batch in sorted({min(scale.batch_sizes), max(scale.batch_sizes)})
    ]
    quantiles = np.linspace(0.0, 1.0, _POINT_COUNT)
    rows: list[tuple[Cell, ...]] = []
    for number, (degree, batch) in enumerate(cases, 1):
        execution = simulate_all_to_all(scale.node_count, batch, degree, RATE_GBPS).fastest_execution
        lane_counts = execution.fabric.capacity_bps / execution.fabric.lane_bps
        loads = np.quantile(
            np.repeat(execution.link_bytes / lane_counts, np.rint(lane_counts).astype(int)), quantiles
        )
        rows += [
            (degree, batch, share, load / 1e9, load / loads[-1])
            for share, load in zip(quantiles.tolist(), loads.tolist(), strict=True)
        ]
        progress(number, len(cases), f"d = {degree}, batch {batch}")
    return Table.from_rows(_COLUMNS, rows)


def _compare_with_paper(table: Table) -> tuple[Comparison, ...]:
    return tuple(
        Comparison(
            f"least over most loaded link, d = {degree:g}, batch {batch:g}",
            UNPUBLISHED,
            table.get_number("of_fullest", degree=degree, batch=batch, share_of_links=0.0),
        )
        for degree in sorted(set(table.get_numbers("degree")))
        for batch in sorted(set(table.get_numbers("batch")))
    )


def _make_plot(table: Table) -> Plot:
    def make_panel(batch: float) -> Panel:
        table_by_degree = Table.from_rows(
            ("degree", "gb", "share"),
            [
                (f"degree {row['degree']:g}", row["gb"], row["share_of_links"])
                for row in table.select_rows(batch=batch).records
            ],
        )
        series = make_series(table_by_degree, "degree", "gb", "share")
        return Panel(f"batch {batch:g}", "bytes on a link (GB)", "share of links", series, "steps")

    batches = sorted(set(table.get_numbers("batch")))
    return Plot("Traffic of links, DLRM with all-to-all", tuple(make_panel(batch) for batch in batches))


FIGURE = Figure(15, "Traffic of links", _make_table, _compare_with_paper, _make_plot)
