"""Optical switches that follow the demand within an iteration, with and without hosts that forward."""

from __future__ import annotations

from sim.models.network.allreduce import ring
from sim.models.network.execution.circuits import CircuitSwitch
from testbed.design.fabrics.kind import ChosenFabric, FabricKind, FabricRequest, make_single_host_fabric


def build(request: FabricRequest) -> ChosenFabric:
    """Return an optical switch that follows the demand within an iteration."""
    return _circuits(request, forwarding=False)


def build_forwarding(request: FabricRequest) -> ChosenFabric:
    """Return an optical switch that follows the demand, with one circuit per host in a ring, where hosts forward."""
    return _circuits(request, forwarding=True)


MAX_NODES = 1024
"""Nodes of the largest switch: every period the controller compares the demands of all pairs."""


def _circuits(request: FabricRequest, *, forwarding: bool) -> ChosenFabric:
    if request.nodes == 1:
        return make_single_host_fabric(request)
    if request.nodes > MAX_NODES:
        raise ValueError(
            f"the controller compares all pairs of nodes every period, which takes too long beyond {MAX_NODES:,} nodes"
        )
    # The switch reads the demand every 50 ms, or less often if moving the circuits takes long.
    period_s = max(50e-3, 2 * request.options.reconfiguration_s)
    switch = CircuitSwitch(
        request.nodes,
        request.degree,
        request.rate_gbps,
        period_s,
        request.options.reconfiguration_s,
        forwarding=forwarding,
    )
    return ChosenFabric(request.name, switch.fabric(), request.host_gbps, ring, circuits=switch)


CIRCUITS = FabricKind(
    "an optical switch that follows the demand within an iteration; D circuits of R. At most 1,024 servers",
    build,
    options=("reconfiguration_s",),
)
CIRCUITS_FORWARDING = FabricKind(
    "the same with one circuit in a ring, over which hosts forward; D circuits of R. At most 1,024 servers",
    build_forwarding,
    options=("reconfiguration_s",),
)
