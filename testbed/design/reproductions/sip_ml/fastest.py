"""Fastest iteration of a model on a fabric, over the number of pieces of its operators."""

from __future__ import annotations

from testbed.design.reproductions.sip_ml.model import (
    REACH,
    SWITCHES,
    Iteration,
    Placement,
    Rates,
    fat_tree,
    iterate,
    place,
    sip_ocs,
    sip_ring,
)
from testbed.design.reproductions.sip_ml.setup import Model
from testbed.design.workloads.model import Workload

CAPS_GBPS = {"fat-tree": float("inf"), "fat-tree-400": 400.0, "fat-tree-200": 200.0}
"""Electrical fabrics: what gradients get of the rate of a GPU, at most."""
OPTICAL = {"sip-ocs": SWITCHES, "sip-ring": REACH}
"""Optical fabrics: how far apart GPUs of consecutive pieces may be."""
FABRICS = (*OPTICAL, *CAPS_GBPS)


def find_fastest(
    model: Model,
    workload: Workload,
    width: int,
    copies: int,
    fabric: str,
    amount: float,
    reconfiguration_s: float | None = None,
) -> tuple[Iteration, int]:
    """Return the shortest iteration with `copies` of a model on `width` GPUs each, and the pieces of its operators.

    `amount` is the number of wavelengths of an optical fabric, and the rate of a GPU in Gbit/s of an electrical one.
    With `reconfiguration_s`, the switches of SiP-OCS change twice an iteration; other fabrics ignore it.
    """
    tries = []
    pieces = 1
    while pieces <= width:
        placement = place(workload, model.batch / copies, width, pieces, _reach(fabric))
        tries.append(
            (iterate(placement, copies, _rates(fabric, placement, copies, amount, reconfiguration_s)), pieces)
        )
        pieces *= 2
    return min(tries, key=lambda one: one[0].total_s)


def _reach(fabric: str) -> int:
    return OPTICAL.get(fabric, SWITCHES)


def _rates(
    fabric: str, placement: Placement, copies: int, amount: float, reconfiguration_s: float | None
) -> Rates:
    if fabric == "sip-ocs":
        return sip_ocs(placement, copies, int(amount), reconfiguration_s)
    if fabric == "sip-ring":
        return sip_ring(placement, copies, int(amount))
    return fat_tree(amount, CAPS_GBPS[fabric])
