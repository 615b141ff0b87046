"""Optical switches whose circuits follow the demand of a job, as a controller moves them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from sim.models.network.allreduce import ring
from sim.models.network.execution.circuits import Allocator, CircuitSwitch, Controller, Floats, Integers
from testbed.design.fabrics.kind import ChosenFabric, FabricKind, FabricRequest, make_single_host_fabric

COMPARED_UP_TO = 256
"""Hosts of the largest switch that takes seconds: every time circuits move, the demands of all pairs are compared."""

MOVING = ("reconfiguration_s", "controller", "hysteresis", "look_ahead")
"""Options of fabrics with circuits that move."""

_SHORTEST_PERIOD_S = 50e-3
_REMEMBERED = 64
"""Choices that an allocator keeps, the latest: with 256 hosts each takes 0.8 MB."""


def build(request: FabricRequest) -> ChosenFabric:
    """Return an optical switch that follows the demand within an iteration."""
    return make_circuits(request, lambda: CircuitSwitch(request.nodes, request.degree, request.rate_gbps))


def build_forwarding(request: FabricRequest) -> ChosenFabric:
    """Return an optical switch that follows the demand, with one circuit per host in a ring, where hosts forward."""
    return make_circuits(
        request, lambda: CircuitSwitch(request.nodes, request.degree, request.rate_gbps, forwarding=True)
    )


def make_circuits(
    request: FabricRequest, make: Callable[[], CircuitSwitch], default: str = "every"
) -> ChosenFabric:
    """Return the fabric of a switch with the controller and the dark time of the request."""
    controller = controller_of(request, default)
    if request.nodes == 1:
        return make_single_host_fabric(request)
    # Together, because a switch checks its dark time against the period.
    switch = replace(make(), controller=controller, delay_s=request.options.reconfiguration_s)
    host_gbps = switch.degree * switch.rate_gbps + switch.packet_gbps
    return ChosenFabric(request.name, switch.fabric(), host_gbps, ring, circuits=switch)


def remember(allocate: Callable[[Floats], Integers]) -> Allocator:
    """Return an allocator that asks `allocate` once for demands in the same proportions, such as those of equal layers.

    It sees no demand of a node for itself. Without any demand, the circuits that are lit stay.
    """
    known: dict[bytes, Integers] = {}

    def choose(wanted_bytes: Floats, lit: Integers) -> Integers:
        wanted = wanted_bytes.copy()
        np.fill_diagonal(wanted, 0.0)
        if not wanted.any():
            return lit
        key = np.float32(wanted / wanted.max()).tobytes()
        if key not in known:
            if len(known) == _REMEMBERED:
                del known[next(iter(known))]
            known[key] = allocate(wanted)
        return known[key]

    return choose


def controller_of(request: FabricRequest, default: str = "every") -> Controller:
    """Return the controller of a request, or `default`.

    Without a period, circuits move every 50 ms, or every two dark times if that is longer. Raises `ValueError` for a
    text that names no controller.
    """
    options, text = request.options, request.options.controller or default
    when, colon, period = text.partition(":")
    period_s = max(_SHORTEST_PERIOD_S, 2 * options.reconfiguration_s)
    match when:
        case "every":
            if colon:
                try:
                    period_s = float(period) * 1e-3
                except ValueError:
                    raise ValueError(f"--controller {text}: give the period in ms, as in every:50") from None
        case "once" | "per-iteration" | "per-layer" if not colon:
            pass
        case _:
            raise ValueError(f"--controller {text}: choose once, every:MS, per-iteration or per-layer")
    return Controller(when, period_s, options.hysteresis, options.look_ahead)


CIRCUITS = FabricKind(
    "an optical switch that follows the demand within an iteration; D circuits of R",
    build,
    options=MOVING,
    compared_up_to=COMPARED_UP_TO,
)
CIRCUITS_FORWARDING = FabricKind(
    "the same with one circuit in a ring, over which hosts forward; D circuits of R",
    build_forwarding,
    options=MOVING,
    compared_up_to=COMPARED_UP_TO,
)
