"""Figure 1: iteration times of four models at four rates on four designs, normalised as published."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from testbed.design.reproductions.figure import (
    UNPUBLISHED,
    Comparison,
    Figure,
    Panel,
    Plot,
    Progress,
    PublishedValue,
    Record,
    Table,
    make_series,
)
from testbed.design.reproductions.mixnet.model import DESIGNS, FAT_TREE, TOPOOPT, compute_iteration_s
from testbed.design.reproductions.mixnet.models import JOBS, SETTING, MoeJob, Setting
from testbed.design.reproductions.mixnet.published import PUBLISHED_TIMES
from testbed.design.reproductions.mixnet.setup import Scale

_COLUMNS = (
    *("model", "gbps", "design", "published", "ours", "difference"),
    *("published_ratio", "our_ratio", "ratio_difference", "iteration_s"),
)


def compute_times(jobs: Sequence[MoeJob], setting: Setting, rates_gbps: Sequence[int]) -> Table:
    """Return a table with a row per job, rate and design.

    `published` and `ours` are normalised: the shortest time of a model is 1. A ratio divides by the fat-tree's
    time at the same rate. A difference is ours / published - 1.
    """
    rows = []
    for job in jobs:
        modelled_s = {
            (gbps, design): compute_iteration_s(job, setting, gbps, design)
            for gbps in rates_gbps
            for design in DESIGNS
        }
        shortest_s = min(modelled_s.values())
        for (gbps, design), time_s in modelled_s.items():
            published = PUBLISHED_TIMES[job.name, gbps, design]
            published_ratio = published / PUBLISHED_TIMES[job.name, gbps, FAT_TREE]
            ratio = time_s / modelled_s[gbps, FAT_TREE]
            normalised_s = time_s / shortest_s
            rows.append(
                (
                    *(job.name, gbps, design, published, normalised_s, normalised_s / published - 1),
                    *(published_ratio, ratio, ratio / published_ratio - 1, time_s),
                )
            )
    return Table.from_rows(_COLUMNS, rows)


def list_ratio_records(table: Table) -> list[Record]:
    """Return the rows of all designs but the fat-tree: 48 rows at the scale of the paper."""
    return [row for row in table.records if row["design"] != FAT_TREE]


def compute_median_difference(table: Table, design: str | None = None) -> float:
    """Return the median absolute difference of the ratios, for one design or for all designs."""
    rows = [row for row in list_ratio_records(table) if design in (None, row["design"])]
    return float(np.median([abs(float(row["ratio_difference"])) for row in rows]))


def find_worst_record(table: Table) -> Record:
    """Return the row whose ratio differs most from the published ratio."""
    return max(list_ratio_records(table), key=lambda row: abs(float(row["ratio_difference"])))


def count_topoopt_slowest(table: Table, column: str = "ours") -> tuple[int, int]:
    """Return the number of (model, rate) pairs in which TopoOpt alone is slowest, and the number of all pairs."""
    pair_tables = [
        table.select_rows(model=model, gbps=gbps)
        for model in table.list_values("model")
        for gbps in table.list_values("gbps")
    ]
    slowest_count = sum(
        max(pair_table.records, key=lambda row: float(row[column]))["design"] == TOPOOPT
        and pair_table.get_numbers(column).count(max(pair_table.get_numbers(column))) == 1
        for pair_table in pair_tables
    )
    return slowest_count, len(pair_tables)


def _make_table(scale: Scale, progress: Progress) -> Table:
    table = compute_times(JOBS, SETTING, scale.rates_gbps)
    progress(len(table.rows), len(table.rows), "iteration times")
    return table


def _compare_with_paper(table: Table) -> tuple[Comparison, ...]:
    return tuple(_yield_comparisons(table))


def _yield_comparisons(table: Table) -> Iterator[Comparison]:
    published_bound = PublishedValue("at most 15 %: our bar")
    yield Comparison(
        "median difference of ratios to the fat-tree",
        published_bound,
        100 * compute_median_difference(table),
        unit=" %",
    )
    all_ones_difference = 100 * float(
        np.median([abs(1 / float(row["published_ratio"]) - 1) for row in list_ratio_records(table)])
    )
    note = "for scale: what a model without any network would score"
    yield Comparison(
        "median difference of ratios that are all 1", UNPUBLISHED, all_ones_difference, note, " %"
    )
    for design in DESIGNS[1:]:
        ours = 100 * compute_median_difference(table, design)
        yield Comparison(f"median difference of {design}", UNPUBLISHED, ours, unit=" %")
    worst_case_record = find_worst_record(table)
    worst_case = (
        f"{worst_case_record['model']}, {worst_case_record['gbps']:g} Gbit/s, {worst_case_record['design']}"
    )
    yield Comparison(
        "worst difference of a ratio",
        UNPUBLISHED,
        100 * float(worst_case_record["ratio_difference"]),
        worst_case,
        " %",
    )
    slowest_count, pair_count = count_topoopt_slowest(table)
    published_slowest_count, _ = count_topoopt_slowest(table, "published")
    yield Comparison(
        "TopoOpt takes longest",
        PublishedValue(f"{published_slowest_count}", "C", published_slowest_count),
        slowest_count,
        f"of {pair_count}",
    )
    for row in list_ratio_records(table):
        ratio = float(row["published_ratio"])
        yield Comparison(
            f"{row['model']}, {row['gbps']:g} Gbit/s: {row['design']} / fat-tree",
            PublishedValue(f"{ratio:.3f}", "C", ratio),
            float(row["our_ratio"]),
        )


def _make_plot(table: Table) -> Plot:
    panels = []
    for column, title in (("published", "published"), ("ours", "ours")):
        for model in table.list_values("model"):
            model_table = table.select_rows(model=model)
            table_by_design = Table.from_rows(
                ("design", "gbps", "time"),
                [(row["design"], f"{row['gbps']:g}", row[column]) for row in model_table.records],
            )
            panels.append(
                Panel(
                    f"{model}, {title}",
                    "Gbit/s of a NIC",
                    "normalised time",
                    make_series(table_by_design, "design", "gbps", "time"),
                    "bars",
                )
            )
    return Plot("Iteration times of mixtures of experts on 1,024 GPUs", tuple(panels), max_columns=4)


FIGURE = Figure(1, "Iteration times", _make_table, _compare_with_paper, _make_plot)
