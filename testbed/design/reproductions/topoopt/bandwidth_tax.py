"""Figure 13: bandwidth tax, the bytes on links divided by the bytes sent. It exceeds 1 because servers forward."""

from __future__ import annotations

import numpy as np

from sim.models.network.execution import Execution
from testbed.design.reproductions.figure import (
    UNPUBLISHED,
    Cell,
    Comparison,
    Figure,
    Panel,
    Plot,
    Progress,
    PublishedValue,
    Table,
    make_series,
)
from testbed.design.reproductions.topoopt.all_to_all import RATE_GBPS
from testbed.design.reproductions.topoopt.jobs import simulate_all_to_all
from testbed.design.reproductions.topoopt.setup import Scale

_COLUMNS = ("degree", "batch", "tax", "tax_tensors_once")
_PUBLISHED = {4.0: PublishedValue("1.11", "S", 1.11), 8.0: PublishedValue("1.05", "S", 1.05)}


def compute_tax_with_tensors_once(execution: Execution) -> float:
    """Return the tax with the bytes of AllReduces halved: a ring sends about twice the bytes of its tensor.

    Only this count gives the published ratio: at batch 2048, the all-to-all has 80 % of the bytes of the AllReduce.
    """
    lowered = execution.lowered
    messages = lowered.messages
    is_sent = messages.source != messages.target
    sent_bytes = (lowered.program.message_bytes * messages.round_count)[is_sent].astype(np.float64)
    hops = lowered.routes.hops[is_sent]
    is_reduced = execution.graph.group[messages.task[is_sent]] >= 0
    byte_weights = np.where(is_reduced, 0.5, 1.0)
    return float((sent_bytes * hops * byte_weights).sum() / (sent_bytes * byte_weights).sum())


def _make_table(scale: Scale, progress: Progress) -> Table:
    cases = [(degree, batch) for degree in scale.degrees for batch in scale.batch_sizes]
    rows: list[tuple[Cell, ...]] = []
    for case_number, (degree, batch) in enumerate(cases, 1):
        execution = simulate_all_to_all(scale.node_count, batch, degree, RATE_GBPS).fastest_execution
        rows.append((degree, batch, execution.bandwidth_tax, compute_tax_with_tensors_once(execution)))
        progress(case_number, len(cases), f"d = {degree}, batch {batch}")
    return Table.from_rows(_COLUMNS, rows)


def _compare_with_paper(table: Table) -> tuple[Comparison, ...]:
    batch = min(table.get_numbers("batch"))
    lines = []
    for degree in sorted(set(table.get_numbers("degree"))):
        row = table.select_rows(degree=degree, batch=batch)
        published = _PUBLISHED.get(degree, UNPUBLISHED)
        lines += [
            Comparison(
                f"batch {batch:g}, d = {degree:g}",
                published,
                row.get_number("tax"),
                "counts all bytes on the links",
            ),
            Comparison(
                f"batch {batch:g}, d = {degree:g}, AllReduce counted once",
                published,
                row.get_number("tax_tensors_once"),
                "the paper counts its share of the all-to-all in this way",
            ),
        ]
    return tuple(lines)


def _make_plot(table: Table) -> Plot:
    labelled_table = Table.from_rows(
        ("degree", "batch", "tax"),
        [(f"degree {row['degree']:g}", f"{row['batch']:g}", row["tax"]) for row in table.records],
    )
    panel = Panel(
        "",
        "batch per device",
        "bytes on links / bytes sent",
        make_series(labelled_table, "degree", "batch", "tax"),
        "bars",
    )
    return Plot("Bandwidth tax of DLRM's all-to-all", (panel,))


FIGURE = Figure(13, "Bandwidth tax", _make_table, _compare_with_paper, _make_plot)
