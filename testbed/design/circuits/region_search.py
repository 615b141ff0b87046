"""Compiled search for the circuits of a region that minimise the time of an all-to-all; `regions` has the interface.

The search bisects T, the time of the all-to-all. For each T it looks for circuits that fit. A pair of servers either
has enough circuits to send its bytes within T, or it uses the packet network. The packets of each server must pass
within T, too. While a server has too many packets, the search moves one of its pairs to circuits: the pair that lowers
the excess most per port. If a port is missing, it removes the circuits whose traffic adds least to the excess. A moved
pair is locked for a few steps, which prevents cycles.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lightbed.compiled import compile_function

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

PRECISION = 0.003
"""Bisection stops when the interval of T is smaller than this fraction of T."""

PROBES = 64
"""Probes below the last interval: this number divided by the servers, so regions of all sizes take a similar time."""

DEPTH = 0.3
"""The lowest probe is below T by about this fraction of T."""


@compile_function
def search_circuits(traffic: Floats, ports: int, circuit_rate: float, packet_rate: float) -> Integers:
    """Return the circuits, shape (n, n), for `traffic` in bytes with a zero diagonal. Rates are in bytes per second."""
    size = len(traffic)
    best_circuits = np.zeros((size, size), dtype=np.int64)
    high = compute_seconds(traffic, best_circuits, circuit_rate, packet_rate)
    low = high * packet_rate / (packet_rate + ports * circuit_rate)
    fraction = 0.5 * low / high + 0.5
    misses, probes = 0, max(2, PROBES // len(traffic))
    while misses < probes:
        goal = fraction * high
        circuits, fits = fit_within(traffic, ports, goal * circuit_rate, goal * packet_rate, True)
        if not fits:
            circuits, fits = fit_within(traffic, ports, goal * circuit_rate, goal * packet_rate, False)
        if fits:
            best_circuits, high = circuits, compute_seconds(traffic, circuits, circuit_rate, packet_rate)
            misses = 0
        else:
            low = max(low, goal)
            misses += 1 if high - low <= PRECISION * high else 0
        # Circuits are whole numbers, so a smaller T can fit where a larger one failed: also probe below the interval.
        is_bisecting = high - low > PRECISION * high
        fraction = (low + high) / (2 * high) if is_bisecting else 1 - DEPTH * (misses + 1) / (probes + 1)
    return best_circuits


@compile_function
def compute_seconds(traffic: Floats, circuits: Integers, circuit_rate: float, packet_rate: float) -> float:
    """Return the seconds of the all-to-all; compiled version of `regions.exchange_seconds`."""
    size = len(traffic)
    slowest = 0.0
    for source in range(size):
        sent_bytes, received_bytes = 0.0, 0.0
        for target in range(size):
            if circuits[source, target] > 0:
                slowest = max(slowest, traffic[source, target] / (circuits[source, target] * circuit_rate))
            else:
                sent_bytes += traffic[source, target]
                received_bytes += traffic[target, source]
        slowest = max(slowest, max(sent_bytes, received_bytes) / packet_rate)
    return slowest


@compile_function
def fit_within(
    traffic: Floats, ports: int, circuit_bytes: float, packet_bytes: float, by_port: bool
) -> tuple[Integers, bool]:
    """Return circuits, and whether they fit.

    They fit if each circuit carries at most `circuit_bytes`, and each server sends and receives at most `packet_bytes`
    by packets. `by_port` scores a move by the excess that it removes per port instead of in total.
    """
    size = len(traffic)
    circuits_needed = np.zeros((size, size), dtype=np.int64)
    for first_server in range(size):
        for peer in range(size):
            circuits_needed[first_server, peer] = int(
                np.ceil(max(traffic[first_server, peer], traffic[peer, first_server]) / circuit_bytes - 1e-12)
            )
    circuits = np.zeros((size, size), dtype=np.int64)
    free = np.full(size, ports)
    packet_load = np.zeros((2, size))
    for first_server in range(size):
        for peer in range(size):
            packet_load[0, first_server] += traffic[first_server, peer]
            packet_load[1, peer] += traffic[first_server, peer]
    locked_until = np.zeros((size, size), dtype=np.int64)
    moves = np.zeros((2 * size, 2), dtype=np.int64)
    limit = packet_bytes * (1 + 1e-9)
    for step in range(8 * size):
        server, heaviest = -1, limit
        for direction in range(2):
            for first_server in range(size):
                if packet_load[direction, first_server] > heaviest:
                    server, heaviest = first_server, packet_load[direction, first_server]
        if server < 0:
            return circuits, True
        excess_before = _sum_excess(packet_load, limit)
        best_peer, lowest = -1, np.inf
        for peer in range(size):
            if peer == server or circuits[server, peer] or locked_until[server, peer] > step:
                continue
            if not 0 < circuits_needed[server, peer] <= ports:
                continue
            count = _move(traffic, circuits_needed, circuits, free, packet_load, limit, server, peer, moves)
            change = _sum_excess(packet_load, limit) - excess_before
            score = change / circuits_needed[server, peer] if by_port and change < 0 else change
            _undo(traffic, circuits_needed, circuits, free, packet_load, moves, count)
            if score < lowest:
                best_peer, lowest = peer, score
        if best_peer < 0:
            return circuits, False
        count = _move(traffic, circuits_needed, circuits, free, packet_load, limit, server, best_peer, moves)
        for index in range(count):
            first_server, peer = moves[index, 0], moves[index, 1]
            locked_until[first_server, peer] = locked_until[peer, first_server] = step + 3 + step % 3
    return circuits, False


@compile_function
def _sum_excess(packet_load: Floats, limit: float) -> float:
    """Return the packet bytes above `limit`, summed over servers and both directions."""
    excess = 0.0
    for direction in range(2):
        for server in range(packet_load.shape[1]):
            excess += max(packet_load[direction, server] - limit, 0.0)
    return excess


@compile_function
def _toggle(
    traffic: Floats,
    circuits_needed: Integers,
    circuits: Integers,
    free: Integers,
    packet_load: Floats,
    first_server: int,
    second_server: int,
) -> None:
    """Move a pair from packets to circuits, or back."""
    sign = -1 if circuits[first_server, second_server] else 1
    circuits[first_server, second_server] = circuits[second_server, first_server] = (
        circuits_needed[first_server, second_server] if sign > 0 else 0
    )
    free[first_server] -= sign * circuits_needed[first_server, second_server]
    free[second_server] -= sign * circuits_needed[first_server, second_server]
    packet_load[0, first_server] -= sign * traffic[first_server, second_server]
    packet_load[0, second_server] -= sign * traffic[second_server, first_server]
    packet_load[1, first_server] -= sign * traffic[second_server, first_server]
    packet_load[1, second_server] -= sign * traffic[first_server, second_server]


@compile_function
def _move(
    traffic: Floats,
    circuits_needed: Integers,
    circuits: Integers,
    free: Integers,
    packet_load: Floats,
    limit: float,
    server: int,
    new_peer: int,
    moves: Integers,
) -> int:
    """Give a pair its circuits, and remove other circuits until the ports suffice.

    Write all pairs that changed to `moves`, and return their number.
    """
    _toggle(traffic, circuits_needed, circuits, free, packet_load, server, new_peer)
    moves[0, 0], moves[0, 1] = server, new_peer
    count = 1
    for end in (server, new_peer):
        while free[end] < 0:
            removed, lowest = -1, np.inf
            for peer in range(len(traffic)):
                if not circuits[end, peer] or peer in (server, new_peer):
                    continue
                added = (
                    max(0.0, min(packet_load[0, end] + traffic[end, peer] - limit, traffic[end, peer]))
                    + max(0.0, min(packet_load[1, end] + traffic[peer, end] - limit, traffic[peer, end]))
                    + max(0.0, min(packet_load[0, peer] + traffic[peer, end] - limit, traffic[peer, end]))
                    + max(0.0, min(packet_load[1, peer] + traffic[end, peer] - limit, traffic[end, peer]))
                )
                cost = added / min(circuits_needed[end, peer], -free[end])
                if cost < lowest:
                    removed, lowest = peer, cost
            _toggle(traffic, circuits_needed, circuits, free, packet_load, end, removed)
            moves[count, 0], moves[count, 1] = end, removed
            count += 1
    return count


@compile_function
def _undo(
    traffic: Floats,
    circuits_needed: Integers,
    circuits: Integers,
    free: Integers,
    packet_load: Floats,
    moves: Integers,
    count: int,
) -> None:
    """Revert the first `count` moves."""
    for index in range(count):
        _toggle(traffic, circuits_needed, circuits, free, packet_load, moves[index, 0], moves[index, 1])
