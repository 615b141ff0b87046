"""Circuits within a region of servers for the traffic of its experts (MixNet): by search, greedily, or by enumeration.

A pair of servers uses its circuits, or the packet network if it has none. `allocate_region_circuits` considers both.
`allocate_greedily` ignores the packet network, as published.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def allocate_region_circuits(
    traffic_bytes: Floats, port_count: int, rate_bps: float, packet_bps: float
) -> Integers:
    """Return the number of circuits between the servers of a region, with a small `compute_exchange_s`.

    `traffic_bytes`, shape (n, n), holds the bytes from row to column; the diagonal is ignored. The result has the same
    shape, is symmetric, and has at most `port_count` circuits at each server. A circuit carries `rate_bps` each way.
    Pairs without circuits use the packet network, which carries `packet_bps` out of and into each server. Raise
    `ValueError` for another shape, negative or infinite traffic, negative ports, and rates of 0 or less.

    Server 0 sends 6 bytes to server 1, and every other pair sends 1. With three ports, the large pair takes all ports:

    >>> traffic = np.ones((4, 4))
    >>> traffic[0, 1] = 6
    >>> allocate_region_circuits(traffic, 3, rate_bps=8.0, packet_bps=16.0)[0].tolist()
    [0, 3, 0, 0]
    """
    traffic = np.array(traffic_bytes, dtype=np.float64)
    if traffic.ndim != 2 or traffic.shape[0] != traffic.shape[1]:
        raise ValueError(
            f"traffic of shape {traffic.shape}: give bytes from each server to each, shape (n, n)"
        )
    np.fill_diagonal(traffic, 0)
    if not (np.isfinite(traffic) & (traffic >= 0)).all():
        raise ValueError("traffic must be finite and at least 0 bytes")
    if port_count < 0 or not (rate_bps > 0 and packet_bps > 0):
        raise ValueError(
            f"{port_count} ports at {rate_bps} bit/s, packets at {packet_bps} bit/s: give rates above 0"
        )
    if not traffic.any():
        return np.zeros(traffic.shape, dtype=np.int64)
    from testbed.design.circuits.region_search import search_circuits  # numba is slow to import

    candidates = (
        search_circuits(traffic, port_count, rate_bps / 8, packet_bps / 8),
        allocate_greedily(traffic, port_count),
    )
    return min(candidates, key=lambda circuits: compute_exchange_s(traffic, circuits, rate_bps, packet_bps))


def allocate_greedily(traffic: Floats, port_count: int, *, uses_published_divisor: bool = False) -> Integers:
    """Return the number of circuits between servers, shape (n, n), symmetric, at most `port_count` at each server.

    The pair with the most traffic per circuit gets the next circuit. By default, a pair's traffic is divided by its
    circuits plus one. With `uses_published_divisor`, what remains is divided by 100 times its circuits, as in the
    published simulator: a pair rarely gets a second circuit before all comparable pairs have one.

    >>> allocate_greedily(np.array([[0, 9, 1], [0, 0, 2], [0, 0, 0.0]]), 2).tolist()
    [[0, 2, 0], [2, 0, 0], [0, 0, 0]]
    """
    demand = np.asarray(traffic + traffic.T, dtype=np.float64)
    np.fill_diagonal(demand, 0)
    remaining_demand = demand.copy() if port_count > 0 else np.zeros(demand.shape)
    circuits = np.zeros(demand.shape, dtype=np.int64)
    free_ports = np.full(len(demand), port_count)
    while remaining_demand.max(initial=0) > 0:
        first_server, second_server = np.unravel_index(
            int(np.argmax(remaining_demand)), remaining_demand.shape
        )
        circuits[first_server, second_server] = circuits[second_server, first_server] = (
            circuits[first_server, second_server] + 1
        )
        free_ports[[first_server, second_server]] -= 1
        circuit_count = circuits[first_server, second_server]
        demand_per_circuit = (
            remaining_demand[first_server, second_server] / (circuit_count * 100)
            if uses_published_divisor
            else demand[first_server, second_server] / (circuit_count + 1)
        )
        remaining_demand[first_server, second_server] = remaining_demand[second_server, first_server] = (
            demand_per_circuit
        )
        is_full = free_ports == 0
        remaining_demand[is_full] = 0
        remaining_demand[:, is_full] = 0
    return circuits


def find_best_circuits(traffic: Floats, port_count: int, rate_bps: float, packet_bps: float) -> Integers:
    """Return the circuits with the least `compute_exchange_s`, by enumeration: feasible up to about 4 servers."""
    server_count = len(traffic)
    return min(
        enumerate_allocations(server_count, port_count),
        key=lambda circuits: compute_exchange_s(traffic, circuits, rate_bps, packet_bps),
    )


def enumerate_allocations(server_count: int, port_count: int) -> Iterator[Integers]:
    """Yield every symmetric matrix of circuits with at most `port_count` at each server."""
    pairs = [
        (first_server, second_server)
        for first_server in range(server_count)
        for second_server in range(first_server + 1, server_count)
    ]

    def extend_allocation(index: int, circuits: Integers) -> Iterator[Integers]:
        if index == len(pairs):
            yield circuits.copy()
            return
        first_server, second_server = pairs[index]
        max_circuits = port_count - int(max(circuits[first_server].sum(), circuits[second_server].sum()))
        for count in range(max_circuits + 1):
            circuits[first_server, second_server] = circuits[second_server, first_server] = count
            yield from extend_allocation(index + 1, circuits)
        circuits[first_server, second_server] = circuits[second_server, first_server] = 0

    yield from extend_allocation(0, np.zeros((server_count, server_count), dtype=np.int64))


def compute_exchange_s(traffic: Floats, circuits: Integers, rate_bps: float, packet_bps: float) -> float:
    """Return the seconds of an all-to-all of `traffic` bytes over circuits and the packet network.

    A pair uses the packet network only if it has no circuit. A circuit carries `rate_bps` each way, the packet network
    `packet_bps` out of and into every server.
    """
    packet_traffic = np.where(circuits > 0, 0, traffic)
    np.fill_diagonal(packet_traffic, 0)
    circuit_s = np.divide(traffic, circuits * rate_bps, out=np.zeros(traffic.shape), where=circuits > 0)
    busiest_bytes = max(packet_traffic.sum(axis=0).max(initial=0), packet_traffic.sum(axis=1).max(initial=0))
    return 8 * max(float(circuit_s.max(initial=0)), float(busiest_bytes) / packet_bps)
