"""MixNet (SIGCOMM 2025): circuits among the servers that share experts, and a packet network among all servers."""

from __future__ import annotations

import numpy as np

from sim.models.network.execution.circuits import CircuitSwitch, Floats, Integers
from sim.models.network.fabrics.cost import Cost, compute_circuit_switch_cost, compute_fat_tree_cost
from testbed.design.circuits.regions import allocate_region_circuits
from testbed.design.fabrics.circuits import (
    MAX_COMPARED_HOSTS,
    MOVING_CIRCUIT_OPTIONS,
    make_cached_allocator,
    make_circuit_fabric,
)
from testbed.design.fabrics.kind import ChosenFabric, FabricKind, FabricRequest

CIRCUIT_SHARE = 6 / 8
"""Fraction of a server's links that are circuits: 6 of 8 NICs."""


def build(request: FabricRequest) -> ChosenFabric:
    """Return circuits within the regions of experts, and a packet network for all other pairs.

    A region is a group of servers that share the experts of a layer. Without experts no circuit is lit.
    """
    circuit_ports = min(max(round(request.degree * CIRCUIT_SHARE), 1), request.degree - 1)
    if circuit_ports < 1:
        raise ValueError("MixNet needs 2 links or more per server, for circuits and for packets")
    packet_gbps = (request.degree - circuit_ports) * request.rate_gbps
    domain_size = request.options.hb_domain
    host_regions = {
        tuple(sorted({node // domain_size for node in region})): None for region in request.regions
    }
    region_indices = [np.ix_(region, region) for region in host_regions if len(region) > 1]

    def allocate(demand: Floats) -> Integers:
        circuits = np.zeros(demand.shape, np.int64)
        for block in region_indices:
            if demand[block].any():
                rates = request.rate_gbps * 1e9, packet_gbps * 1e9
                circuits[block] = allocate_region_circuits(demand[block], circuit_ports, *rates)
        return circuits

    return make_circuit_fabric(
        request,
        lambda: CircuitSwitch(
            request.nodes,
            circuit_ports,
            request.rate_gbps,
            packet_gbps=packet_gbps,
            allocator=make_cached_allocator(allocate),
            cost=_compute_cost(
                request.nodes, circuit_ports, request.degree - circuit_ports, request.rate_gbps
            ),
        ),
        "per-layer",
    )


def _compute_cost(
    server_count: int, circuit_ports: int, packet_links_per_server: int, rate_gbps: float
) -> Cost:
    """Return the cost of all circuits plus a Fat-tree for the other links."""
    circuit_cost = compute_circuit_switch_cost(server_count, circuit_ports, rate_gbps)
    packet_cost = compute_fat_tree_cost(server_count * packet_links_per_server, rate_gbps)
    return Cost(
        circuit_cost.parts + packet_cost.parts, circuit_cost.is_unverified or packet_cost.is_unverified
    )


MIXNET = FabricKind(
    "MixNet: three of four links are circuits among servers that share experts, the others lead to a Fat-tree; D "
    "links of R",
    build,
    option_names=(*MOVING_CIRCUIT_OPTIONS, "hb_domain"),
    max_compared_hosts=MAX_COMPARED_HOSTS,
)
