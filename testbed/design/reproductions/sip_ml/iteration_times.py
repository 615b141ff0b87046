"""Figure 1: iteration times of three models, over wavelengths and over the rate of electrical fabrics."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

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
from testbed.design.reproductions.sip_ml.fastest import FABRICS, OPTICAL, find_fastest
from testbed.design.reproductions.sip_ml.model import WAVELENGTH_GBPS
from testbed.design.reproductions.sip_ml.setup import MODELS, Scale

_COLUMNS = ("model", "fabric", "wavelengths", "gbps", "pieces", "model_ms", "data_ms", "iteration_ms")
NICS_GBPS = (400.0, 200.0)
"""Rates of the electrical NICs of the paper's baselines."""
SEVERAL_TBPS_WAVELENGTHS = 80
"""Wavelengths for 2 Tbit/s per GPU. The abstract claims its speed-ups for several Tbit/s."""
_SPEED_UP = PublishedValue("1.3 to 9.1 x over all models and sizes", "A")


def _make_table(scale: Scale, progress: Progress) -> Table:
    rows = []
    copy_count = scale.gpu_count // scale.gpus_per_copy
    for step, model in enumerate(MODELS):
        workload = model.build()
        for fabric in FABRICS:
            for wavelengths_or_gbps in scale.wavelength_counts if fabric in OPTICAL else scale.rates_gbps:
                iteration, piece_count = find_fastest(
                    model, workload, scale.gpus_per_copy, copy_count, fabric, wavelengths_or_gbps
                )
                if fabric in OPTICAL:
                    wavelengths, gbps = wavelengths_or_gbps, wavelengths_or_gbps * WAVELENGTH_GBPS
                else:
                    wavelengths, gbps = 0, wavelengths_or_gbps
                times_ms = [
                    1e3 * seconds
                    for seconds in (iteration.passes_s, iteration.gradient_sum_s, iteration.total_s)
                ]
                rows.append((model.name, fabric, wavelengths, gbps, piece_count, *times_ms))
        progress(step + 1, len(MODELS), model.name)
    return Table.from_rows(_COLUMNS, rows)


def compute_speed_ups(
    table: Table, *, uses_released_weights: bool = False
) -> Iterator[tuple[str, str, float, float, float]]:
    """Yield (model, optical fabric, wavelengths, NIC rate, speed-up over a fat-tree of GPUs with that NIC rate).

    With `uses_released_weights`, gradients count as in the authors' released scripts: the scripts' own sizes of the
    weights, sent at the rate of a GPU.
    """
    weight_bytes_by_model = {model.name: model.released_weight_bytes for model in MODELS}

    def compute_iteration_ms(row: dict[str, str | float], gbps: float) -> float:
        data_ms = (
            2 * weight_bytes_by_model[str(row["model"])] * 8e-6 / gbps
            if uses_released_weights
            else float(row["data_ms"])
        )
        return float(row["model_ms"]) + data_ms

    for nic_gbps in NICS_GBPS:
        for row in table.records:
            if row["fabric"] in OPTICAL:
                (fat_tree_row,) = table.select_rows(
                    model=row["model"], fabric="fat-tree", gbps=nic_gbps
                ).records
                ratio = compute_iteration_ms(dict(fat_tree_row), nic_gbps) / compute_iteration_ms(
                    dict(row), float(row["gbps"])
                )
                yield str(row["model"]), str(row["fabric"]), float(row["wavelengths"]), nic_gbps, ratio


def count_slowdowns(table: Table) -> int:
    """Count how often the next number of wavelengths, or the next rate, makes an iteration longer by over 0.1 %."""
    return sum(
        next_ms > 1.001 * previous_ms
        for model in table.list_values("model")
        for fabric in FABRICS
        for previous_ms, next_ms in pairwise(
            table.select_rows(model=model, fabric=fabric).get_numbers("iteration_ms")
        )
    )


def _compare_with_paper(table: Table) -> tuple[Comparison, ...]:
    fewest_wavelengths, *_, most_wavelengths = sorted(
        number for number in map(float, table.list_values("wavelengths")) if number
    )
    note = f"trend, with {SEVERAL_TBPS_WAVELENGTHS} wavelengths or more: our computing times differ from the paper's"
    comparisons = []
    for uses_released_weights in (False, True):
        weight_source = (
            "weights as the released scripts count them" if uses_released_weights else "our weights"
        )
        for nic_gbps in NICS_GBPS:
            ratios = [
                ratio
                for *_, wavelengths, nic, ratio in compute_speed_ups(
                    table, uses_released_weights=uses_released_weights
                )
                if nic == nic_gbps and wavelengths >= SEVERAL_TBPS_WAVELENGTHS
            ]
            for name, ratio in (("least", min(ratios)), ("greatest", max(ratios))):
                quantity = f"{name} speed-up over a fat-tree of {nic_gbps:g} Gbit/s a GPU, {weight_source}"
                comparisons.append(Comparison(quantity, _SPEED_UP, ratio, note, " x"))
    for model, fabric, wavelengths, nic_gbps, ratio in compute_speed_ups(table):
        if wavelengths == most_wavelengths and nic_gbps == NICS_GBPS[0]:
            quantity = f"{model}, {fabric}, {most_wavelengths:g} wavelengths: speed-up over {nic_gbps:g} Gbit/s a GPU"
            comparisons.append(Comparison(quantity, UNPUBLISHED, ratio, "", " x"))
    for model_name in table.list_values("model"):
        for wavelengths in (fewest_wavelengths, most_wavelengths):
            case_table = table.select_rows(model=model_name, wavelengths=wavelengths)
            ring_ms, ocs_ms = (
                case_table.get_number("iteration_ms", fabric=fabric) for fabric in ("sip-ring", "sip-ocs")
            )
            quantity = (
                f"{model_name}, {wavelengths:g} wavelengths: iteration on SiP-Ring over that on SiP-OCS"
            )
            comparisons.append(Comparison(quantity, UNPUBLISHED, ring_ms / ocs_ms, "", " x"))
    quantity = "number of cases in which more wavelengths, or a higher rate, makes an iteration longer"
    comparisons.append(Comparison(quantity, UNPUBLISHED, count_slowdowns(table), "expected: 0"))
    return tuple(comparisons)


def _make_plot(table: Table) -> Plot:
    return make_plot_by_model(
        table, "Iteration of hybrid strategies, by fabric", "rate of a GPU (Gbit/s)", "fabric", "gbps"
    )


FIGURE = Figure(1, "Iterations by fabric and wavelengths", _make_table, _compare_with_paper, _make_plot)
