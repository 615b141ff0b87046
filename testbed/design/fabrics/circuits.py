"""Optical switches that follow the demand within an iteration, with and without hosts that forward."""

from __future__ import annotations

from sim.models.network.allreduce import ring
from sim.models.network.execution.circuits import CircuitSwitch, Controller
from testbed.design.fabrics.kind import ChosenFabric, FabricKind, FabricRequest, make_single_host_fabric

COMPARED_UP_TO = 256
"""Hosts of the largest switch that takes seconds: every period the controller compares the demands of all pairs."""


def build(request: FabricRequest) -> ChosenFabric:
    """Return an optical switch that follows the demand within an iteration."""
    return _circuits(request, forwarding=False)


def build_forwarding(request: FabricRequest) -> ChosenFabric:
    """Return an optical switch that follows the demand, with one circuit per host in a ring, where hosts forward."""
    return _circuits(request, forwarding=True)


def _circuits(request: FabricRequest, *, forwarding: bool) -> ChosenFabric:
    if request.nodes == 1:
        return make_single_host_fabric(request)
    # The switch reads the demand every 50 ms, or less often if moving the circuits takes long.
    period_s = max(50e-3, 2 * request.options.reconfiguration_s)
    switch = CircuitSwitch(
        request.nodes,
        request.degree,
        request.rate_gbps,
        Controller(period_s=period_s),
        request.options.reconfiguration_s,
        forwarding=forwarding,
    )
    return ChosenFabric(request.name, switch.fabric(), request.host_gbps, ring, circuits=switch)


CIRCUITS = FabricKind(
    "an optical switch that follows the demand within an iteration; D circuits of R",
    build,
    options=("reconfiguration_s",),
    compared_up_to=COMPARED_UP_TO,
)
CIRCUITS_FORWARDING = FabricKind(
    "the same with one circuit in a ring, over which hosts forward; D circuits of R",
    build_forwarding,
    options=("reconfiguration_s",),
    compared_up_to=COMPARED_UP_TO,
)
