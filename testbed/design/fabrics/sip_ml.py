"""SiP-ML (Khani et al., 2021): wavelengths through circuit switches, or on a ring without switches."""

from __future__ import annotations

import numpy as np

from sim.models.network.execution.circuits import CircuitSwitch, Floats, Integers
from sim.models.network.fabrics.cost import compute_circuit_switch_cost
from testbed.design.circuits.shots import allocate_switch_circuits
from testbed.design.circuits.wavelengths import allocate_ring_circuits
from testbed.design.fabrics.circuits import (
    MAX_COMPARED_HOSTS,
    MOVING_CIRCUIT_OPTIONS,
    make_cached_allocator,
    make_circuit_fabric,
    make_controller,
)
from testbed.design.fabrics.kind import ChosenFabric, FabricKind, FabricRequest

WAVELENGTH_GBPS = 25.0
MAX_ARC_LENGTH = 16
"""Largest number of segments that a circuit of SiP-Ring crosses."""
MAX_WAVELENGTHS = 10_000
"""Maximum number of wavelengths per node of SiP-Ring. Wavelengths are allocated one by one, which takes seconds."""


def build_ocs(request: FabricRequest) -> ChosenFabric:
    """Return SiP-OCS: as many circuit switches as a node has links, each set to a permutation of the nodes.

    If the controller moves circuits every period, the circuits serve the most bytes (multi-shot). Otherwise the
    circuits maximise the least share that any pair gets of its demand (single shot).
    """
    is_multi_shot = make_controller(request, "per-layer").switching_rule == "every"

    def allocate(demand: Floats) -> Integers:
        return allocate_switch_circuits(demand, request.degree, is_multi_shot=is_multi_shot)

    link_gbps = _compute_node_gbps(request) / request.degree
    return make_circuit_fabric(
        request,
        lambda: CircuitSwitch(
            request.nodes, request.degree, link_gbps, allocator=make_cached_allocator(allocate)
        ),
        "per-layer",
    )


def build_ring(request: FabricRequest) -> ChosenFabric:
    """Return SiP-Ring: wavelengths on a ring, which arcs without a common segment can share. Hosts forward.

    One wavelength in each direction always joins neighbours, so that every pair has a path.
    """
    node_count, wavelength_count = request.nodes, int(_compute_node_gbps(request) / WAVELENGTH_GBPS) // 2 * 2
    if wavelength_count < 4:
        raise ValueError(f"{wavelength_count} wavelengths: SiP-Ring needs 4 or more, half of them each way")
    if wavelength_count > MAX_WAVELENGTHS:
        raise ValueError(
            f"{wavelength_count} wavelengths: SiP-Ring is simulated with {MAX_WAVELENGTHS} or fewer"
        )
    neighbour_circuits = np.zeros((node_count, node_count), np.int64)
    for step in (1, -1):
        neighbour_circuits[np.arange(node_count), (np.arange(node_count) + step) % node_count] = 1
    np.fill_diagonal(neighbour_circuits, 0)
    # Integer programming takes seconds: too long if circuits are chosen hundreds of times.
    is_rarely_moved = make_controller(request, "per-iteration").switching_rule in ("once", "per-iteration")

    def allocate(demand: Floats) -> Integers:
        return neighbour_circuits + allocate_ring_circuits(
            demand, wavelength_count - 2, MAX_ARC_LENGTH, is_exact=is_rarely_moved
        )

    cost = compute_circuit_switch_cost(
        node_count, request.degree, _compute_node_gbps(request) / request.degree
    )
    return make_circuit_fabric(
        request,
        lambda: CircuitSwitch(
            node_count,
            wavelength_count,
            WAVELENGTH_GBPS,
            hosts_forward=True,
            allocator=make_cached_allocator(allocate),
            cost=cost,
        ),
        "per-iteration",
    )


def _compute_node_gbps(request: FabricRequest) -> float:
    """Return the rate of all wavelengths of a node."""
    wavelength_count = request.options.wavelengths
    return wavelength_count * WAVELENGTH_GBPS if wavelength_count else request.host_gbps


SIP_OCS = FabricKind(
    "SiP-OCS: D circuit switches that serve the pairs of a layer evenly; wavelengths of 25 Gbit/s, D times R in all",
    build_ocs,
    option_names=(*MOVING_CIRCUIT_OPTIONS, "wavelengths"),
    max_compared_hosts=MAX_COMPARED_HOSTS,
)
SIP_RING = FabricKind(
    "SiP-Ring: wavelengths of 25 Gbit/s on a ring, D times R in all, chosen for an iteration; hosts forward",
    build_ring,
    option_names=(*MOVING_CIRCUIT_OPTIONS, "wavelengths"),
    max_compared_hosts=MAX_COMPARED_HOSTS,
)
