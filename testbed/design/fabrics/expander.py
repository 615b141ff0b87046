"""Expander: direct links to random hosts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sim.models.network.allreduce import Algorithm, Chain, ring
from sim.models.network.fabrics import expander
from testbed.design.fabrics.kind import ChosenFabric, FabricKind, FabricRequest, make_single_host_fabric


def build(request: FabricRequest) -> ChosenFabric:
    """Return an expander with `degree` links per host."""
    if request.nodes == 1:
        return make_single_host_fabric(request)
    fabric = expander(request.nodes, request.degree, request.rate_gbps, seed=request.options.seed)
    return ChosenFabric(request.name, fabric, request.host_gbps, spread_rings(request.degree))


def spread_rings(count: int) -> Algorithm:
    """Return an AllReduce algorithm that splits over up to `count` rings of different strides."""

    def run(members: Sequence[int], size_bytes: int) -> tuple[Chain, ...]:
        size = len(members)
        strides = [stride for stride in range(1, size) if math.gcd(stride, size) == 1][:count]
        return ring(sorted(members), size_bytes, strides=strides or (1,))

    return run


EXPANDER = FabricKind("links to random others; D links of R, hosts forward", build, options=("seed",))
