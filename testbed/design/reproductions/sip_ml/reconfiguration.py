"""Figure 3: SiP-OCS with reconfiguration between both kinds of traffic, over the time of a reconfiguration."""

from __future__ import annotations

from testbed.design.reproductions.figure import (
    UNPUBLISHED,
    Comparison,
    Figure,
    Plot,
    Progress,
    Table,
    make_plot_by_model,
)
from testbed.design.reproductions.sip_ml.fastest import find_fastest
from testbed.design.reproductions.sip_ml.setup import MODELS, Scale

_COLUMNS = ("model", "circuits", "delay_us", "iteration_ms")
WAVELENGTHS = 80
DELAYS_US = (20.0, 100.0, 1_000.0, 10_000.0, 30_000.0)
"""Times of a reconfiguration: 20 us in the released runs, 30 ms as the scripts' default and for commercial switches."""


def _make_table(scale: Scale, progress: Progress) -> Table:
    rows = []
    copy_count = scale.gpu_count // scale.gpus_per_copy
    for step, model in enumerate(MODELS):
        workload = model.build()
        one_shot_iteration, _ = find_fastest(
            model, workload, scale.gpus_per_copy, copy_count, "sip-ocs", WAVELENGTHS
        )
        for delay_us in DELAYS_US:
            reconfigured_iteration, _ = find_fastest(
                model, workload, scale.gpus_per_copy, copy_count, "sip-ocs", WAVELENGTHS, delay_us * 1e-6
            )
            rows.append((model.name, "once", delay_us, 1e3 * one_shot_iteration.total_s))
            rows.append(
                (model.name, "for each kind of traffic", delay_us, 1e3 * reconfigured_iteration.total_s)
            )
        progress(step + 1, len(MODELS), model.name)
    return Table.from_rows(_COLUMNS, rows)


def _compare_with_paper(table: Table) -> tuple[Comparison, ...]:
    lines = []
    for model in table.list_values("model"):
        for delay_us in (DELAYS_US[0], DELAYS_US[-1]):
            case_table = table.select_rows(model=model, delay_us=delay_us)
            one_shot_ms, reconfigured_ms = case_table.get_numbers("iteration_ms")
            delay = f"{delay_us:g} us" if delay_us < 1_000 else f"{delay_us / 1_000:g} ms"
            quantity = f"{model}: iteration with two changes of {delay} over that with circuits chosen once"
            lines.append(Comparison(quantity, UNPUBLISHED, reconfigured_ms / one_shot_ms, "", " x"))
    return tuple(lines)


def _make_plot(table: Table) -> Plot:
    return make_plot_by_model(
        table,
        f"SiP-OCS whose circuits change, {WAVELENGTHS} wavelengths",
        "time of a change (us)",
        "circuits",
        "delay_us",
    )


FIGURE = Figure(3, "Reconfiguration of SiP-OCS", _make_table, _compare_with_paper, _make_plot)
