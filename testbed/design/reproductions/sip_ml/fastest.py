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
OPTICAL = {"sip-ocs": (sip_ocs, SWITCHES), "sip-ring": (sip_ring, REACH)}
"""Optical fabrics: their rates, and how far apart GPUs of consecutive pieces may be."""
FABRICS = (*OPTICAL, *CAPS_GBPS)


def find_fastest(
    model: Model, workload: Workload, width: int, copies: int, fabric: str, amount: float
) -> tuple[Iteration, int]:
    """Return the shortest iteration with `copies` of a model on `width` GPUs each, and the pieces of its operators.

    `amount` is the number of wavelengths of an optical fabric, and the rate of a GPU in Gbit/s of an electrical one.
    """
    tries = []
    pieces = 1
    while pieces <= width:
        placement = place(workload, model.batch / copies, width, pieces, _reach(fabric))
        tries.append((iterate(placement, copies, _rates(fabric, placement, copies, amount)), pieces))
        pieces *= 2
    return min(tries, key=lambda one: one[0].total_s)


def _reach(fabric: str) -> int:
    return OPTICAL[fabric][1] if fabric in OPTICAL else SWITCHES


def _rates(fabric: str, placement: Placement, copies: int, amount: float) -> Rates:
    if fabric in OPTICAL:
        return OPTICAL[fabric][0](placement, copies, int(amount))
    return fat_tree(amount, CAPS_GBPS[fabric])
