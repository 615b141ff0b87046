"""Figure 14: number of links on the paths between servers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sim.models.network.fabrics import Fabric
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
from testbed.design.reproductions.topoopt.jobs import make_all_to_all_job, simulate_job
from testbed.design.reproductions.topoopt.setup import Scale

_FABRICS = ("TopoOpt", "expander")
_COLUMNS = ("fabric", "degree", "links", "share_up_to")


def compute_path_lengths(fabric: Fabric) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the number of links of every path between two servers, and the share of their traffic that takes the path.

    Both arrays have the shape (paths,). The pairs of servers are ordered.
    """
    sources, targets = np.nonzero(~np.eye(fabric.node_count, dtype=bool))
    route_set_count = 1 if fabric.weights is None else len(fabric.weights)
    lengths = [
        np.diff(fabric.find_routes(sources, targets, np.full_like(sources, number))[0])
        for number in range(route_set_count)
    ]
    traffic_shares = (
        np.ones((1, sources.size)) if fabric.weights is None else fabric.weights[:, sources, targets]
    )
    return np.concatenate(lengths), traffic_shares.ravel()


def _make_table(scale: Scale, progress: Progress) -> Table:
    cases = [(name, degree) for name in _FABRICS for degree in scale.degrees]
    rows: list[tuple[Cell, ...]] = []
    for step, (name, degree) in enumerate(cases, 1):
        job = make_all_to_all_job(scale.node_count, min(scale.batch_sizes))
        points = _compute_cumulative_shares(
            *compute_path_lengths(simulate_job(job, name, degree, RATE_GBPS).fabric)
        )
        rows += [(name, degree, *point) for point in points]
        progress(step, len(cases), f"{name}, d = {degree}")
    return Table.from_rows(_COLUMNS, rows)


def _compute_cumulative_shares(
    lengths: NDArray[np.int64], traffic_shares: NDArray[np.float64]
) -> Iterator[tuple[int, float]]:
    for max_length in range(int(lengths[traffic_shares > 0].max()) + 1):
        yield max_length, float(traffic_shares[lengths <= max_length].sum() / traffic_shares.sum())


def compute_mean_length(table: Table, fabric: str, degree: float) -> float:
    """Return the mean path length, from the cumulative shares in the table."""
    shares = table.select_rows(fabric=fabric, degree=degree).get_numbers("share_up_to")
    return sum(1 - share for share in shares)


def _compare_with_paper(table: Table) -> tuple[Comparison, ...]:
    return tuple(
        Comparison(
            f"mean links of a path, {name}, d = {degree:g}",
            UNPUBLISHED,
            compute_mean_length(table, str(name), degree),
            note,
        )
        for degree in sorted(set(table.get_numbers("degree")))
        for name, note in (
            ("TopoOpt", "duplex rings; one-way rings would be shorter at d = 4"),
            ("expander", "random regular graph"),
        )
    )


def _make_plot(table: Table) -> Plot:
    table_by_fabric = Table.from_rows(
        ("fabric", "links", "share"),
        [
            (f"{row['fabric']}, d = {row['degree']:g}", row["links"], row["share_up_to"])
            for row in table.records
        ],
    )
    panel = Panel(
        "",
        "path length (links)",
        "share of pairs",
        make_series(table_by_fabric, "fabric", "links", "share"),
        "steps",
    )
    return Plot("Path lengths between servers", (panel,))


FIGURE = Figure(14, "Path lengths", _make_table, _compare_with_paper, _make_plot)
