"""A switch that never blocks."""

from __future__ import annotations

from sim.models.network.allreduce import ring
from sim.models.network.fabrics import ideal_switch
from testbed.design.fabrics.kind import ChosenFabric, FabricKind, FabricRequest


def build(asked: FabricRequest) -> ChosenFabric:
    """Return a switch with one link to each host."""
    return ChosenFabric(asked.name, ideal_switch(asked.nodes, asked.host_gbps), asked.host_gbps, ring)


IDEAL = FabricKind("a switch that never blocks; one link of D times R", build, is_switched=True)
