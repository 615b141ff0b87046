"""Compiled search for the circuits of a region that minimise the time of an all-to-all. `regions` is its interface.

The search bisects T, the time of the all-to-all. For each T it looks for circuits that fit. A pair of servers either
has enough circuits to send its bytes within T, or it uses the packet network. The packets of each server must pass
within T, too. While a server has too many packets, the search moves one of its pairs to circuits: the pair that lowers
the excess most per port. If a port is missing, the search removes the circuits whose traffic adds least to the excess.
A moved pair is locked for a few steps, which prevents cycles.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lightbed.compiled import compile_function

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

BISECTION_PRECISION = 0.003
"""Bisection stops when the interval of T is smaller than this fraction of T."""

PROBE_COUNT = 64
"""Number of probes below the last interval, times the servers: regions of all sizes then take a similar time."""

PROBE_DEPTH = 0.3
"""The lowest probe is below T by about this fraction of T."""


@compile_function
def search_circuits(traffic: Floats, port_count: int, circuit_rate: float, packet_rate: float) -> Integers:
    """Return the circuits, shape (n, n), for `traffic` in bytes with a zero diagonal. Rates are in bytes per second."""
    server_count = len(traffic)
    best_circuits = np.zeros((server_count, server_count), dtype=np.int64)
    high_s = compute_seconds(traffic, best_circuits, circuit_rate, packet_rate)
    low_s = high_s * packet_rate / (packet_rate + port_count * circuit_rate)
    goal_fraction = 0.5 * low_s / high_s + 0.5
    miss_count, probe_count = 0, max(2, PROBE_COUNT // len(traffic))
    while miss_count < probe_count:
        goal_s = goal_fraction * high_s
        circuits, is_feasible = fit_within(
            traffic, port_count, goal_s * circuit_rate, goal_s * packet_rate, True
        )
        if not is_feasible:
            circuits, is_feasible = fit_within(
                traffic, port_count, goal_s * circuit_rate, goal_s * packet_rate, False
            )
        if is_feasible:
            best_circuits, high_s = circuits, compute_seconds(traffic, circuits, circuit_rate, packet_rate)
            miss_count = 0
        else:
            low_s = max(low_s, goal_s)
            miss_count += 1 if high_s - low_s <= BISECTION_PRECISION * high_s else 0
        # Circuits are whole numbers, so a smaller T can fit where a larger one failed: also probe below the interval.
        is_bisecting = high_s - low_s > BISECTION_PRECISION * high_s
        goal_fraction = (
            (low_s + high_s) / (2 * high_s)
            if is_bisecting
            else 1 - PROBE_DEPTH * (miss_count + 1) / (probe_count + 1)
        )
    return best_circuits


@compile_function
def compute_seconds(traffic: Floats, circuits: Integers, circuit_rate: float, packet_rate: float) -> float:
    """Return the seconds of the all-to-all; compiled version of `regions.compute_exchange_s`."""
    server_count = len(traffic)
    slowest_s = 0.0
    for source in range(server_count):
        sent_bytes, received_bytes = 0.0, 0.0
        for target in range(server_count):
            if circuits[source, target] > 0:
                slowest_s = max(
                    slowest_s, traffic[source, target] / (circuits[source, target] * circuit_rate)
                )
            else:
                sent_bytes += traffic[source, target]
                received_bytes += traffic[target, source]
        slowest_s = max(slowest_s, max(sent_bytes, received_bytes) / packet_rate)
    return slowest_s


@compile_function
def fit_within(
    traffic: Floats, port_count: int, circuit_bytes: float, packet_bytes: float, scores_by_port: bool
) -> tuple[Integers, bool]:
    """Return circuits, and whether they fit.

    They fit if each circuit carries at most `circuit_bytes`, and each server sends and receives at most `packet_bytes`
    by packets. `scores_by_port` scores a move by the excess that it removes per port instead of in total.
    """
    server_count = len(traffic)
    needed_circuits = np.zeros((server_count, server_count), dtype=np.int64)
    for first_server in range(server_count):
        for peer in range(server_count):
            needed_circuits[first_server, peer] = int(
                np.ceil(max(traffic[first_server, peer], traffic[peer, first_server]) / circuit_bytes - 1e-12)
            )
    circuits = np.zeros((server_count, server_count), dtype=np.int64)
    free_ports = np.full(server_count, port_count)
    packet_load = np.zeros((2, server_count))
    for first_server in range(server_count):
        for peer in range(server_count):
            packet_load[0, first_server] += traffic[first_server, peer]
            packet_load[1, peer] += traffic[first_server, peer]
    locked_until = np.zeros((server_count, server_count), dtype=np.int64)
    moved_pairs = np.zeros((2 * server_count, 2), dtype=np.int64)
    limit_bytes = packet_bytes * (1 + 1e-9)
    for step in range(8 * server_count):
        server, heaviest_bytes = -1, limit_bytes
        for direction in range(2):
            for first_server in range(server_count):
                if packet_load[direction, first_server] > heaviest_bytes:
                    server, heaviest_bytes = first_server, packet_load[direction, first_server]
        if server < 0:
            return circuits, True
        previous_excess = _sum_excess(packet_load, limit_bytes)
        best_peer, lowest_score = -1, np.inf
        for peer in range(server_count):
            if peer == server or circuits[server, peer] or locked_until[server, peer] > step:
                continue
            if not 0 < needed_circuits[server, peer] <= port_count:
                continue
            move_count = _move_pair(
                traffic,
                needed_circuits,
                circuits,
                free_ports,
                packet_load,
                limit_bytes,
                server,
                peer,
                moved_pairs,
            )
            excess_change = _sum_excess(packet_load, limit_bytes) - previous_excess
            score = (
                excess_change / needed_circuits[server, peer]
                if scores_by_port and excess_change < 0
                else excess_change
            )
            _undo_moves(traffic, needed_circuits, circuits, free_ports, packet_load, moved_pairs, move_count)
            if score < lowest_score:
                best_peer, lowest_score = peer, score
        if best_peer < 0:
            return circuits, False
        move_count = _move_pair(
            traffic,
            needed_circuits,
            circuits,
            free_ports,
            packet_load,
            limit_bytes,
            server,
            best_peer,
            moved_pairs,
        )
        for index in range(move_count):
            first_server, peer = moved_pairs[index, 0], moved_pairs[index, 1]
            locked_until[first_server, peer] = locked_until[peer, first_server] = step + 3 + step % 3
    return circuits, False


@compile_function
def _sum_excess(packet_load: Floats, limit_bytes: float) -> float:
    """Return the packet bytes above `limit_bytes`, summed over servers and both directions."""
    excess_bytes = 0.0
    for direction in range(2):
        for server in range(packet_load.shape[1]):
            excess_bytes += max(packet_load[direction, server] - limit_bytes, 0.0)
    return excess_bytes


@compile_function
def _toggle_pair(
    traffic: Floats,
    needed_circuits: Integers,
    circuits: Integers,
    free_ports: Integers,
    packet_load: Floats,
    first_server: int,
    second_server: int,
) -> None:
    """Move a pair from packets to circuits, or back."""
    sign = -1 if circuits[first_server, second_server] else 1
    circuits[first_server, second_server] = circuits[second_server, first_server] = (
        needed_circuits[first_server, second_server] if sign > 0 else 0
    )
    free_ports[first_server] -= sign * needed_circuits[first_server, second_server]
    free_ports[second_server] -= sign * needed_circuits[first_server, second_server]
    packet_load[0, first_server] -= sign * traffic[first_server, second_server]
    packet_load[0, second_server] -= sign * traffic[second_server, first_server]
    packet_load[1, first_server] -= sign * traffic[second_server, first_server]
    packet_load[1, second_server] -= sign * traffic[first_server, second_server]


@compile_function
def _move_pair(
    traffic: Floats,
    needed_circuits: Integers,
    circuits: Integers,
    free_ports: Integers,
    packet_load: Floats,
    limit_bytes: float,
    server: int,
    new_peer: int,
    moved_pairs: Integers,
) -> int:
    """Give a pair its circuits, and remove other circuits until the ports suffice.

    Write all pairs that changed to `moved_pairs`, and return their number.
    """
    _toggle_pair(traffic, needed_circuits, circuits, free_ports, packet_load, server, new_peer)
    moved_pairs[0, 0], moved_pairs[0, 1] = server, new_peer
    move_count = 1
    for server_end in (server, new_peer):
        while free_ports[server_end] < 0:
            removed_peer, lowest_cost = -1, np.inf
            for peer in range(len(traffic)):
                if not circuits[server_end, peer] or peer in (server, new_peer):
                    continue
                added_bytes = (
                    max(
                        0.0,
                        min(
                            packet_load[0, server_end] + traffic[server_end, peer] - limit_bytes,
                            traffic[server_end, peer],
                        ),
                    )
                    + max(
                        0.0,
                        min(
                            packet_load[1, server_end] + traffic[peer, server_end] - limit_bytes,
                            traffic[peer, server_end],
                        ),
                    )
                    + max(
                        0.0,
                        min(
                            packet_load[0, peer] + traffic[peer, server_end] - limit_bytes,
                            traffic[peer, server_end],
                        ),
                    )
                    + max(
                        0.0,
                        min(
                            packet_load[1, peer] + traffic[server_end, peer] - limit_bytes,
                            traffic[server_end, peer],
                        ),
                    )
                )
                cost = added_bytes / min(needed_circuits[server_end, peer], -free_ports[server_end])
                if cost < lowest_cost:
                    removed_peer, lowest_cost = peer, cost
            _toggle_pair(
                traffic, needed_circuits, circuits, free_ports, packet_load, server_end, removed_peer
            )
            moved_pairs[move_count, 0], moved_pairs[move_count, 1] = server_end, removed_peer
            move_count += 1
    return move_count


@compile_function
def _undo_moves(
    traffic: Floats,
    needed_circuits: Integers,
    circuits: Integers,
    free_ports: Integers,
    packet_load: Floats,
    moved_pairs: Integers,
    move_count: int,
) -> None:
    """Revert the first `move_count` moves."""
    for index in range(move_count):
        _toggle_pair(
            traffic,
            needed_circuits,
            circuits,
            free_ports,
            packet_load,
            moved_pairs[index, 0],
            moved_pairs[index, 1],
        )
