"""Fat-trees of packet switches: full bisection at the rate or the cost of direct connect, and oversubscribed."""

from __future__ import annotations

from typing import Literal

from sim.models.network.allreduce import plan_rings
from sim.models.network.fabrics import find_equal_cost_rate_gbps, make_fat_tree
from sim.models.network.fabrics.cost import (
    DEFAULT_ASSUMPTIONS,
    CostAssumptions,
    compute_fat_tree_cost,
    compute_patch_panel_cost,
)
from testbed.design.fabrics.kind import BALANCED, HASH, ChosenFabric, FabricKind, FabricRequest


def compute_equal_cost_gbps(
    node_count: int, degree: int, rate_gbps: float, assumptions: CostAssumptions = DEFAULT_ASSUMPTIONS
) -> float:
    """Return the rate of a host's link at which a full-bisection Fat-tree costs as much as direct connect."""
    budget = compute_patch_panel_cost(node_count, degree, rate_gbps, assumptions).total_usd
    return find_equal_cost_rate_gbps(
        budget, lambda rate: compute_fat_tree_cost(node_count, rate, assumptions=assumptions)
    )


def build(request: FabricRequest) -> ChosenFabric:
    """Return a full-bisection Fat-tree at the rate of direct connect, or with `equal_cost` at its cost."""
    host_gbps = request.host_gbps
    if request.equal_cost:
        host_gbps = compute_equal_cost_gbps(request.nodes, request.degree, request.rate_gbps)
    return _make_fat_tree(request, host_gbps, 1.0)


def build_oversubscribed(request: FabricRequest) -> ChosenFabric:
    """Return a Fat-tree with fewer links above the edge than below."""
    return _make_fat_tree(request, request.host_gbps, request.options.oversubscription)


def _make_fat_tree(request: FabricRequest, host_gbps: float, oversubscription: float) -> ChosenFabric:
    balance: Literal["spread", "hash", "ideal"] = "spread"
    if request.options.routing == HASH:
        balance = "hash"
    elif request.options.routing == BALANCED:
        balance = "ideal"
    fabric = make_fat_tree(request.nodes, host_gbps, oversubscription=oversubscription, balance=balance)
    return ChosenFabric(request.name, fabric, host_gbps, plan_rings)


FATTREE = FabricKind(
    "a Fat-tree with full bisection; one link of D times R, or of the rate that costs as much as `direct`",
    build,
    option_names=("routing",),
    is_switched=True,
    has_equal_cost=True,
)
OVERSUB = FabricKind(
    "a Fat-tree with half the links above the edge, or fewer; one link of D times R",
    build_oversubscribed,
    option_names=("oversubscription", "routing"),
    is_switched=True,
)
