"""Figure 1: switches and transceivers of networks with full bisection and of rail-only networks (table II)."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.design.reproductions.figure import (
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
from testbed.design.reproductions.rail_only.model import compute_saving, count_parts
from testbed.design.reproductions.rail_only.setup import Scale

DOMAIN_SIZE = 256
"""GPUs per domain in table II. Of all sizes from 8 to 512, only this size (DGX GH200) gives all 24 published counts."""

FULL, RAIL_ONLY = "full bisection", "rail-only"
COST, PORT_POWER = 3.7, 1.9
"""Price and power of a switch port, in transceivers: the middle of the range that gives all published percentages."""

PUBLISHED = {
    (32768, 64): ((2560, 196608), (1536, 131072), 38, 37),
    (32768, 128): ((1280, 196608), (256, 65536), 77, 75),
    (32768, 256): ((384, 131072), (128, 65536), 62, 60),
    (65536, 64): ((5120, 393216), (3072, 262144), 38, 37),
    (65536, 128): ((2560, 393216), (1536, 262144), 38, 37),
    (65536, 256): ((1280, 393216), (256, 131072), 77, 75),
}
"""By (GPUs, radix): (switches, transceivers) of both designs, and per cent of cost and power saved (slides)."""

_COLUMNS = ("gpus", "radix", "design", "switches", "transceivers", "cost_saved", "power_saved")


def _make_table(_scale: Scale, progress: Progress) -> Table:
    rows = []
    for gpus, radix in PUBLISHED:
        saved_fractions = (
            compute_saving(gpus, DOMAIN_SIZE, radix, COST),
            compute_saving(gpus, DOMAIN_SIZE, radix, PORT_POWER),
        )
        rows.append((gpus, radix, FULL, *count_parts(gpus, gpus, radix), 0.0, 0.0))
        rows.append(
            (gpus, radix, RAIL_ONLY, *count_parts(gpus, gpus // DOMAIN_SIZE, radix), *saved_fractions)
        )
    progress(len(rows), len(rows), "counts")
    return Table.from_rows(_COLUMNS, rows)


def _compare_with_paper(table: Table) -> tuple[Comparison, ...]:
    return tuple(line for row in table.records for line in _compare_row(row))


def _compare_row(row: Record) -> Iterator[Comparison]:
    full_counts, rail_counts, cost_saving, power_saving = PUBLISHED[int(row["gpus"]), int(row["radix"])]
    is_rail = row["design"] == RAIL_ONLY
    case = f"{row['gpus']:g} GPUs, radix {row['radix']:g}, {row['design']}"
    for name, published in zip(
        ("switches", "transceivers"), rail_counts if is_rail else full_counts, strict=True
    ):
        yield Comparison(f"{case}: {name}", PublishedValue(f"{published}", "S", published), float(row[name]))
    if is_rail:
        for name, published, ratio in (("cost", cost_saving, COST), ("power", power_saving, PORT_POWER)):
            note = f"a port counts as {ratio:g} transceivers, which no source states"
            ours = 100 * float(row[f"{name}_saved"])
            yield Comparison(
                f"{case}: {name} saved", PublishedValue(f"{published} %", "S", published), ours, note, " %"
            )


def _make_plot(table: Table) -> Plot:
    panels = tuple(
        Panel(
            f"{gpus:g} GPUs",
            "radix of a switch",
            name,
            make_series(table.select_rows(gpus=gpus), "design", "radix", name),
            "bars",
        )
        for gpus in table.list_values("gpus")
        for name in ("switches", "transceivers")
    )
    return Plot("Parts of a network (domains of 256 GPUs)", panels, max_columns=2)


FIGURE = Figure(1, "Switches and transceivers", _make_table, _compare_with_paper, _make_plot)
