"""Figure 2: iteration time over the number of GPUs per copy of the model, at a constant global batch."""

from __future__ import annotations

from testbed.design.reproductions.figure import (
    UNPUBLISHED,
    Comparison,
    Figure,
    Plot,
    Progress,
    PublishedValue,
    Table,
    make_plot_by_model,
)
from testbed.design.reproductions.sip_ml.fastest import OPTICAL, find_fastest
from testbed.design.reproductions.sip_ml.model import WAVELENGTH_GBPS
from testbed.design.reproductions.sip_ml.setup import MODELS, Scale

_COLUMNS = ("model", "fabric", "gbps", "width", "copies", "pieces", "iteration_ms")
WAVELENGTHS = 80
"""Wavelengths of the optical fabrics: 2 Tbit/s per GPU, like an optical interface at the time of the paper."""
_FIXED = PublishedValue("8 in all runs", "C")


def _make_table(scale: Scale, progress: Progress) -> Table:
    rows = []
    electrical_fabrics = [(rate, "fat-tree") for rate in (400, WAVELENGTHS * WAVELENGTH_GBPS)]
    for step, model in enumerate(MODELS):
        workload = model.build()
        for gpus_per_copy in scale.gpus_per_copy_choices:
            copy_count = scale.gpu_count // gpus_per_copy
            for wavelengths_or_gbps, fabric in [
                *((WAVELENGTHS, name) for name in OPTICAL),
                *electrical_fabrics,
            ]:
                iteration, piece_count = find_fastest(
                    model, workload, gpus_per_copy, copy_count, fabric, wavelengths_or_gbps
                )
                gbps = wavelengths_or_gbps * WAVELENGTH_GBPS if fabric in OPTICAL else wavelengths_or_gbps
                name = fabric if fabric in OPTICAL else f"{fabric} at {gbps:g} Gbit/s"
                rows.append(
                    (model.name, name, gbps, gpus_per_copy, copy_count, piece_count, 1e3 * iteration.total_s)
                )
        progress(step + 1, len(MODELS), model.name)
    return Table.from_rows(_COLUMNS, rows)


def find_best_width(table: Table, model: str, fabric: str) -> int:
    """Return the number of GPUs per copy that gives the shortest iteration."""
    part = table.select_rows(model=model, fabric=fabric)
    return int(min(part.records, key=lambda row: float(row["iteration_ms"]))["width"])


def _compare_with_paper(table: Table) -> tuple[Comparison, ...]:
    return tuple(
        Comparison(
            f"{model}, {fabric}: GPUs of a copy with the shortest iteration",
            _FIXED if fabric in OPTICAL else UNPUBLISHED,
            find_best_width(table, str(model), str(fabric)),
            "the released scripts fix it" if fabric in OPTICAL else "",
        )
        for model in table.list_values("model")
        for fabric in table.list_values("fabric")
    )


def _make_plot(table: Table) -> Plot:
    return make_plot_by_model(
        table, f"Iteration by strategy, {WAVELENGTHS} wavelengths", "GPUs of a copy", "fabric", "width"
    )


FIGURE = Figure(2, "Strategies: GPUs of a copy of the model", _make_table, _compare_with_paper, _make_plot)
