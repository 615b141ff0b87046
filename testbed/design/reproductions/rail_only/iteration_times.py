"""Figure 3: iteration times of four GPT jobs, published and modelled. The model's efficiency is fitted to one job."""

from __future__ import annotations

from testbed.design.reproductions.figure import (
    Comparison,
    Figure,
    Panel,
    Plot,
    Progress,
    PublishedValue,
    Record,
    Series,
    Table,
)
from testbed.design.reproductions.rail_only.model import (
    DGX_A100,
    GPT_310B,
    JOBS,
    Accounting,
    Megatron,
    compute_iteration_s,
    fit_efficiency,
)
from testbed.design.reproductions.rail_only.setup import Scale

SUMS, CHUNKS_PER_STAGE = 6, 2
"""Accounting of the main fit: six AllReduces per layer (four, of which recomputation repeats two), two chunks per
stage."""

MEGASCALE = Megatron("MegaScale 175B", 96, 12288, 8, 48, 12288, 6144, vocabulary=64000)
MEGASCALE_S, MEGASCALE_MFU = 6.34, 55.2
"""Iteration time, and utilisation in per cent of the peak, on 12,288 A100-class GPUs (Jiang et al., NSDI 2024).

The time is quoted from memory.
"""

_COLUMNS = ("fit", "sums", "chunks", "efficiency", "model", "published_s", "ours_s")


def _make_table(_scale: Scale, progress: Progress) -> Table:
    rows = []
    for allreduces_per_layer in (4, 6):
        for chunks_per_stage in (1, 2, 4):
            for fitted_job in JOBS:
                efficiency = fit_efficiency(fitted_job, DGX_A100, allreduces_per_layer, chunks_per_stage)
                assumptions = Accounting(efficiency, allreduces_per_layer, chunks_per_stage)
                for job in JOBS:
                    ours_s = compute_iteration_s(job, DGX_A100, assumptions)
                    rows.append(
                        (
                            fitted_job.name,
                            allreduces_per_layer,
                            chunks_per_stage,
                            efficiency,
                            job.name,
                            job.published_s or 0.0,
                            ours_s,
                        )
                    )
    progress(len(rows), len(rows), "fits")
    return Table.from_rows(_COLUMNS, rows)


def _compute_megascale_mfu() -> float:
    """Return the fraction of the peak that follows from MegaScale's published time, without recomputation."""
    operations = MEGASCALE.operations * 3 / 4
    return operations / (MEGASCALE_S * MEGASCALE.gpus * DGX_A100.peak_tflops * 1e12)


def select_main_fit(table: Table) -> Table:
    """Return the rows of the main fit: recomputation, two chunks per stage, efficiency fitted to the 310.1B job."""
    return table.select_rows(fit=GPT_310B.name, sums=SUMS, chunks=CHUNKS_PER_STAGE)


def _compare_with_paper(table: Table) -> tuple[Comparison, ...]:
    main_fit = select_main_fit(table)
    other_fits = [
        row
        for row in table.select_rows(sums=SUMS, chunks=CHUNKS_PER_STAGE).records
        if row["fit"] not in (GPT_310B.name, row["model"])
    ]
    lines = [_compare_row(row, "main fit") for row in main_fit.records]
    lines += [_compare_row(row, "another fit") for row in other_fits]
    published = PublishedValue(f"{MEGASCALE_MFU} %", "mem", MEGASCALE_MFU)
    note = "from its published time by our count of operations, without recomputation"
    lines.append(
        Comparison(
            "MegaScale 175B on 12,288 GPUs: MFU", published, 100 * _compute_megascale_mfu(), note, " %"
        )
    )
    return tuple(lines)


def _compare_row(row: Record, kind: str) -> Comparison:
    published_s = float(row["published_s"])
    note = f"{kind}: efficiency {row['efficiency']:.3f} from {row['fit']}"
    if row["model"] == "GPT 529.6B":
        note += "; the slides call it 539.6B"
    quantity = f"iteration of {row['model']}"
    return Comparison(
        quantity, PublishedValue(f"{published_s:.1f} s", "mem", published_s), float(row["ours_s"]), note, " s"
    )


def _make_plot(table: Table) -> Plot:
    main_fit = select_main_fit(table)
    names = tuple(str(name).removeprefix("GPT ") for name in main_fit.list_values("model"))
    series = (
        Series("published", names, main_fit.get_numbers("published_s")),
        Series("ours", names, main_fit.get_numbers("ours_s")),
    )
    panel = Panel("fit on 310.1B", "parameters", "iteration (s)", series, "bars")
    return Plot("Iteration times of GPT jobs on DGX A100", (panel,))


FIGURE = Figure(3, "Iteration times", _make_table, _compare_with_paper, _make_plot)
