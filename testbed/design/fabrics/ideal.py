"""Ideal fabric: a non-blocking switch."""

from __future__ import annotations

from sim.models.network.allreduce import plan_rings
from sim.models.network.fabrics import make_ideal_switch
from testbed.design.fabrics.kind import ChosenFabric, FabricKind, FabricRequest


def build(request: FabricRequest) -> ChosenFabric:
    """Return a non-blocking switch with one link to each host."""
    return ChosenFabric(
        request.name, make_ideal_switch(request.nodes, request.host_gbps), request.host_gbps, plan_rings
    )


IDEAL = FabricKind("a switch that never blocks; one link of D times R", build, is_switched=True)
