"""Optical switches with a controller that moves circuits as the demand of a job changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from sim.models.network.allreduce import plan_rings
from sim.models.network.execution.circuits import Allocator, CircuitSwitch, Controller, Floats, Integers
from testbed.design.fabrics.kind import ChosenFabric, FabricKind, FabricRequest, make_single_host_fabric

MAX_COMPARED_HOSTS = 256
"""With more hosts, simulation takes minutes: the demands of all pairs are compared whenever circuits move."""

MOVING_CIRCUIT_OPTIONS = ("reconfiguration_s", "controller", "hysteresis", "look_ahead")
"""Options of fabrics with circuits that move."""

_SHORTEST_PERIOD_S = 50e-3
_CACHE_SIZE = 64
"""Number of recent allocations that an allocator keeps: with 256 hosts, each takes 0.8 MB."""


def build(request: FabricRequest) -> ChosenFabric:
    """Return an optical switch that follows the demand within an iteration."""
    return make_circuit_fabric(
        request, lambda: CircuitSwitch(request.nodes, request.degree, request.rate_gbps)
    )


def build_forwarding(request: FabricRequest) -> ChosenFabric:
    """Return an optical switch that follows the demand, plus a ring of circuits over which hosts forward."""
    return make_circuit_fabric(
        request, lambda: CircuitSwitch(request.nodes, request.degree, request.rate_gbps, hosts_forward=True)
    )


def make_circuit_fabric(
    request: FabricRequest, make_switch: Callable[[], CircuitSwitch], default_controller: str = "every"
) -> ChosenFabric:
    """Return the fabric of a switch with the controller (or `default_controller`) and dark time of the request."""
    controller = make_controller(request, default_controller)
    if request.nodes == 1:
        return make_single_host_fabric(request)
    # Set controller and dark time at once: a switch checks its dark time against the controller's period.
    switch = replace(make_switch(), controller=controller, delay_s=request.options.reconfiguration_s)
    host_gbps = switch.degree * switch.rate_gbps + switch.packet_gbps
    return ChosenFabric(request.name, switch.make_fabric(), host_gbps, plan_rings, circuits=switch)


def make_cached_allocator(allocate: Callable[[Floats], Integers]) -> Allocator:
    """Return an allocator that calls `allocate` once for all demands of equal proportions, as equal layers have.

    The demand of a node for itself is ignored. Without demand, the lit circuits stay.
    """
    circuits_by_demand: dict[bytes, Integers] = {}

    def choose_circuits(demand_bytes: Floats, lit_circuits: Integers) -> Integers:
        demand_off_diagonal = demand_bytes.copy()
        np.fill_diagonal(demand_off_diagonal, 0.0)
        if not demand_off_diagonal.any():
            return lit_circuits
        demand_key = np.float32(demand_off_diagonal / demand_off_diagonal.max()).tobytes()
        if demand_key not in circuits_by_demand:
            if len(circuits_by_demand) == _CACHE_SIZE:
                del circuits_by_demand[next(iter(circuits_by_demand))]
            circuits_by_demand[demand_key] = allocate(demand_off_diagonal)
        return circuits_by_demand[demand_key]

    return choose_circuits


def make_controller(request: FabricRequest, default_controller: str = "every") -> Controller:
    """Return the controller that the request or `default_controller` names.

    Without a period, circuits move every 50 ms, or every two dark times if that is longer. Raises `ValueError` for an
    unknown controller.
    """
    options, controller_text = request.options, request.options.controller or default_controller
    switching_rule, colon, period_text = controller_text.partition(":")
    period_s = max(_SHORTEST_PERIOD_S, 2 * options.reconfiguration_s)
    match switching_rule:
        case "every":
            if colon:
                try:
                    period_s = float(period_text) * 1e-3
                except ValueError:
                    raise ValueError(
                        f"--controller {controller_text}: give the period in ms, as in every:50"
                    ) from None
        case "once" | "per-iteration" | "per-layer" if not colon:
            pass
        case _:
            raise ValueError(
                f"--controller {controller_text}: choose once, every:MS, per-iteration or per-layer"
            )
    return Controller(switching_rule, period_s, options.hysteresis, options.look_ahead)


CIRCUITS = FabricKind(
    "an optical switch that follows the demand within an iteration; D circuits of R",
    build,
    option_names=MOVING_CIRCUIT_OPTIONS,
    max_compared_hosts=MAX_COMPARED_HOSTS,
)
CIRCUITS_FORWARDING = FabricKind(
    "the same with one circuit in a ring, over which hosts forward; D circuits of R",
    build_forwarding,
    option_names=MOVING_CIRCUIT_OPTIONS,
    max_compared_hosts=MAX_COMPARED_HOSTS,
)
