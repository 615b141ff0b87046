"""Optical switches that follow the demand within an iteration, with and without hosts that forward."""

from __future__ import annotations

from sim.models.network.allreduce import ring
from sim.models.network.execution.circuits import CircuitSwitch
from testbed.design.fabrics.kind import ChosenFabric, FabricKind, FabricRequest, alone


def build(asked: FabricRequest) -> ChosenFabric:
    """Return an optical switch that follows the demand within an iteration."""
    return _circuits(asked, forwarding=False)


def build_forwarding(asked: FabricRequest) -> ChosenFabric:
    """Return the same with one circuit in a ring, over which hosts forward."""
    return _circuits(asked, forwarding=True)


def _circuits(asked: FabricRequest, *, forwarding: bool) -> ChosenFabric:
    if asked.nodes == 1:
        return alone(asked)
    # The demand is looked at every 50 ms, or less often where moving the circuits takes that long.
    period_s = max(50e-3, 2 * asked.options.reconfiguration_s)
    switch = CircuitSwitch(
        asked.nodes,
        asked.degree,
        asked.rate_gbps,
        period_s,
        asked.options.reconfiguration_s,
        forwarding=forwarding,
    )
    return ChosenFabric(asked.name, switch.fabric(), asked.host_gbps, ring, circuits=switch)


CIRCUITS = FabricKind(
    "an optical switch that follows the demand within an iteration; D circuits of R",
    build,
    options=("reconfiguration_s",),
)
CIRCUITS_FORWARDING = FabricKind(
    "the same with one circuit in a ring, over which hosts forward; D circuits of R",
    build_forwarding,
    options=("reconfiguration_s",),
)
