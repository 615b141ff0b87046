"""Search for the number of pieces per operator that gives the fastest iteration on a fabric."""

from __future__ import annotations

from testbed.design.reproductions.sip_ml.model import (
    MAX_ARC_LENGTH,
    SWITCH_COUNT,
    Iteration,
    Placement,
    Rates,
    compute_iteration,
    make_fat_tree_rates,
    make_ocs_rates,
    make_ring_rates,
    place_operators,
)
from testbed.design.reproductions.sip_ml.setup import Model
from testbed.design.workloads.model import Workload

CAPS_GBPS = {"fat-tree": float("inf"), "fat-tree-400": 400.0, "fat-tree-200": 200.0}
"""Electrical fabrics, with the highest rate that gradients may use."""
OPTICAL = {"sip-ocs": SWITCH_COUNT, "sip-ring": MAX_ARC_LENGTH}
"""Optical fabrics, with the largest distance between the GPUs of consecutive operators."""
FABRICS = (*OPTICAL, *CAPS_GBPS)


def find_fastest(
    model: Model,
    workload: Workload,
    gpus_per_copy: int,
    copy_count: int,
    fabric: str,
    wavelengths_or_gbps: float,
    reconfiguration_s: float | None = None,
) -> tuple[Iteration, int]:
    """Return the shortest iteration with `copy_count` copies of a model, and its pieces per operator.

    `wavelengths_or_gbps` is the number of wavelengths of an optical fabric, or the rate of a GPU in Gbit/s of an
    electrical fabric. With `reconfiguration_s`, the switches of SiP-OCS change twice per iteration. Other fabrics
    ignore it.
    """
    trials = []
    piece_count = 1
    while piece_count <= gpus_per_copy:
        placement = place_operators(
            workload, model.batch / copy_count, gpus_per_copy, piece_count, _get_reach(fabric)
        )
        trials.append(
            (
                compute_iteration(
                    placement,
                    copy_count,
                    _find_rates(fabric, placement, copy_count, wavelengths_or_gbps, reconfiguration_s),
                ),
                piece_count,
            )
        )
        piece_count *= 2
    return min(trials, key=lambda trial: trial[0].total_s)


def _get_reach(fabric: str) -> int:
    return OPTICAL.get(fabric, SWITCH_COUNT)


def _find_rates(
    fabric: str,
    placement: Placement,
    copy_count: int,
    wavelengths_or_gbps: float,
    reconfiguration_s: float | None,
) -> Rates:
    if fabric == "sip-ocs":
        return make_ocs_rates(placement, copy_count, int(wavelengths_or_gbps), reconfiguration_s)
    if fabric == "sip-ring":
        return make_ring_rates(placement, copy_count, int(wavelengths_or_gbps))
    return make_fat_tree_rates(wavelengths_or_gbps, CAPS_GBPS[fabric])
