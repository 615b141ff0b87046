"""Expander: direct links to random hosts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sim.models.network.allreduce import Algorithm, Chain, plan_rings
from sim.models.network.fabrics import make_expander
from testbed.design.fabrics.kind import ChosenFabric, FabricKind, FabricRequest, make_single_host_fabric


def build(request: FabricRequest) -> ChosenFabric:
    """Return an expander with `degree` links per host."""
    if request.nodes == 1:
        return make_single_host_fabric(request)
    fabric = make_expander(request.nodes, request.degree, request.rate_gbps, seed=request.options.seed)
    return ChosenFabric(request.name, fabric, request.host_gbps, make_rings_allreduce(request.degree))


def make_rings_allreduce(ring_count: int) -> Algorithm:
    """Return an AllReduce algorithm that splits over up to `ring_count` rings of different strides."""

    def reduce_over_rings(members: Sequence[int], size_bytes: int) -> tuple[Chain, ...]:
        member_count = len(members)
        strides = [stride for stride in range(1, member_count) if math.gcd(stride, member_count) == 1][
            :ring_count
        ]
        return plan_rings(sorted(members), size_bytes, strides=strides or (1,))

    return reduce_over_rings


EXPANDER = FabricKind("links to random others; D links of R, hosts forward", build, option_names=("seed",))
