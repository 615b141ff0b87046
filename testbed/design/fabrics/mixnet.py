"""MixNet (SIGCOMM 2025): circuits among the servers that share experts, and a packet network among all servers."""

from __future__ import annotations

import numpy as np

from sim.models.network.execution.circuits import CircuitSwitch, Floats, Integers
from sim.models.network.fabrics.cost import Cost, circuit_switch_cost, fat_tree_cost
from testbed.design.circuits.regions import region_circuits
from testbed.design.fabrics.circuits import MAX_COMPARED_HOSTS, MOVING, make_cached_allocator, make_circuits
from testbed.design.fabrics.kind import ChosenFabric, FabricKind, FabricRequest

CIRCUIT_SHARE = 6 / 8
"""Fraction of a server's links that are circuits: 6 of 8 NICs."""


def build(request: FabricRequest) -> ChosenFabric:
    """Return circuits within the regions of experts, and a packet network for all other pairs.

    A region is a group of servers that share the experts of a layer. Without experts no circuit is lit.
    """
    ports = min(max(round(request.degree * CIRCUIT_SHARE), 1), request.degree - 1)
    if ports < 1:
        raise ValueError("MixNet needs 2 links or more per server, for circuits and for packets")
    packet_gbps = (request.degree - ports) * request.rate_gbps
    domain = request.options.hb_domain
    hosts = {tuple(sorted({node // domain for node in region})): None for region in request.regions}
    regions = [np.ix_(region, region) for region in hosts if len(region) > 1]

    def allocate(demand: Floats) -> Integers:
        circuits = np.zeros(demand.shape, np.int64)
        for block in regions:
            if demand[block].any():
                rates = request.rate_gbps * 1e9, packet_gbps * 1e9
                circuits[block] = region_circuits(demand[block], ports, *rates)
        return circuits

    return make_circuits(
        request,
        lambda: CircuitSwitch(
            request.nodes,
            ports,
            request.rate_gbps,
            packet_gbps=packet_gbps,
            allocate=make_cached_allocator(allocate),
            cost=_compute_cost(request.nodes, ports, request.degree - ports, request.rate_gbps),
        ),
        "per-layer",
    )


def _compute_cost(servers: int, ports: int, links: int, rate_gbps: float) -> Cost:
    """Return the cost of all circuits plus a Fat-tree for the other links."""
    circuits = circuit_switch_cost(servers, ports, rate_gbps)
    packets = fat_tree_cost(servers * links, rate_gbps)
    return Cost(circuits.parts + packets.parts, circuits.recalled or packets.recalled)


MIXNET = FabricKind(
    "MixNet: three of four links are circuits among servers that share experts, the others lead to a Fat-tree; D "
    "links of R",
    build,
    options=(*MOVING, "hb_domain"),
    max_compared_hosts=MAX_COMPARED_HOSTS,
)
