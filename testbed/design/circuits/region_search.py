"""Search for the circuits of a region that end an all-to-all soonest, compiled; `regions` has the interface.

The search asks whether an all-to-all can end within T, and halves the interval of T. Within T a pair of servers on
circuits takes so many ports at both that its bytes pass, and what the pairs without circuits send out of and into each
server must pass the packet network. Servers that send or receive too much by packets move pairs to circuits, one at a
time: the pair that lowers the excess most per port. If ports are lacking, the circuits whose traffic adds least to the
excess make room. A moved pair stays for a few steps, so that the search does not turn in circles.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lightbed.compiled import compile_function

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

PRECISION = 0.003
"""The interval at which the halving of T ends, as a fraction of T."""

PROBES = 64
"""Number of probes below the last interval, times the number of servers, which makes their duration similar."""

DEPTH = 0.3
"""Depth of the lowest probe below T, as a fraction of T."""


@compile_function
def search_circuits(traffic: Floats, ports: int, circuit_rate: float, packet_rate: float) -> Integers:
    """Return circuits, shape (n, n), for `traffic` in bytes with a zero diagonal; rates in bytes per second."""
    size = len(traffic)
    best = np.zeros((size, size), dtype=np.int64)
    high = seconds_of(traffic, best, circuit_rate, packet_rate)
    low = high * packet_rate / (packet_rate + ports * circuit_rate)
    fraction = 0.5 * low / high + 0.5
    misses, probes = 0, max(2, PROBES // len(traffic))
    while misses < probes:
        goal = fraction * high
        circuits, fits = fit_within(traffic, ports, goal * circuit_rate, goal * packet_rate, True)
        if not fits:
            circuits, fits = fit_within(traffic, ports, goal * circuit_rate, goal * packet_rate, False)
        if fits:
            best, high = circuits, seconds_of(traffic, circuits, circuit_rate, packet_rate)
            misses = 0
        else:
            low = max(low, goal)
            misses += 1 if high - low <= PRECISION * high else 0
        # Circuits are whole, so the search may miss T and fit within less: probe below the interval, too.
        halves = high - low > PRECISION * high
        fraction = (low + high) / (2 * high) if halves else 1 - DEPTH * (misses + 1) / (probes + 1)
    return best


@compile_function
def seconds_of(traffic: Floats, circuits: Integers, circuit_rate: float, packet_rate: float) -> float:
    """Return the seconds of the all-to-all, as `regions.exchange_seconds`."""
    size = len(traffic)
    slowest = 0.0
    for one in range(size):
        sent, received = 0.0, 0.0
        for other in range(size):
            if circuits[one, other] > 0:
                slowest = max(slowest, traffic[one, other] / (circuits[one, other] * circuit_rate))
            else:
                sent += traffic[one, other]
                received += traffic[other, one]
        slowest = max(slowest, max(sent, received) / packet_rate)
    return slowest


@compile_function
def fit_within(
    traffic: Floats, ports: int, circuit_bytes: float, packet_bytes: float, by_port: bool
) -> tuple[Integers, bool]:
    """Return circuits, and whether each of them carries its pair in `circuit_bytes`, the packets in `packet_bytes`."""
    size = len(traffic)
    width = np.zeros((size, size), dtype=np.int64)
    for one in range(size):
        for other in range(size):
            width[one, other] = int(
                np.ceil(max(traffic[one, other], traffic[other, one]) / circuit_bytes - 1e-12)
            )
    circuits = np.zeros((size, size), dtype=np.int64)
    free = np.full(size, ports)
    load = np.zeros((2, size))
    for one in range(size):
        for other in range(size):
            load[0, one] += traffic[one, other]
            load[1, other] += traffic[one, other]
    rest = np.zeros((size, size), dtype=np.int64)
    moves = np.zeros((2 * size, 2), dtype=np.int64)
    limit = packet_bytes * (1 + 1e-9)
    for step in range(8 * size):
        server, most = -1, limit
        for direction in range(2):
            for one in range(size):
                if load[direction, one] > most:
                    server, most = one, load[direction, one]
        if server < 0:
            return circuits, True
        before = _excess(load, limit)
        chosen, lowest = -1, np.inf
        for other in range(size):
            if other == server or circuits[server, other] or rest[server, other] > step:
                continue
            if not 0 < width[server, other] <= ports:
                continue
            count = _move(traffic, width, circuits, free, load, limit, server, other, moves)
            change = _excess(load, limit) - before
            score = change / width[server, other] if by_port and change < 0 else change
            _undo(traffic, width, circuits, free, load, moves, count)
            if score < lowest:
                chosen, lowest = other, score
        if chosen < 0:
            return circuits, False
        count = _move(traffic, width, circuits, free, load, limit, server, chosen, moves)
        for index in range(count):
            one, other = moves[index, 0], moves[index, 1]
            rest[one, other] = rest[other, one] = step + 3 + step % 3
    return circuits, False


@compile_function
def _excess(load: Floats, limit: float) -> float:
    """Return the bytes by which all servers together send and receive too much by packets."""
    excess = 0.0
    for direction in range(2):
        for server in range(load.shape[1]):
            excess += max(load[direction, server] - limit, 0.0)
    return excess


@compile_function
def _toggle(
    traffic: Floats, width: Integers, circuits: Integers, free: Integers, load: Floats, one: int, other: int
) -> None:
    """Move a pair from packets to circuits, or back."""
    sign = -1 if circuits[one, other] else 1
    circuits[one, other] = circuits[other, one] = width[one, other] if sign > 0 else 0
    free[one] -= sign * width[one, other]
    free[other] -= sign * width[one, other]
    load[0, one] -= sign * traffic[one, other]
    load[0, other] -= sign * traffic[other, one]
    load[1, one] -= sign * traffic[other, one]
    load[1, other] -= sign * traffic[one, other]


@compile_function
def _move(
    traffic: Floats,
    width: Integers,
    circuits: Integers,
    free: Integers,
    load: Floats,
    limit: float,
    server: int,
    other: int,
    moves: Integers,
) -> int:
    """Give a pair its circuits and remove others until there are ports; list the pairs in `moves`, return how many."""
    _toggle(traffic, width, circuits, free, load, server, other)
    moves[0, 0], moves[0, 1] = server, other
    count = 1
    for end in (server, other):
        while free[end] < 0:
            removed, lowest = -1, np.inf
            for peer in range(len(traffic)):
                if not circuits[end, peer] or peer in (server, other):
                    continue
                added = (
                    max(0.0, min(load[0, end] + traffic[end, peer] - limit, traffic[end, peer]))
                    + max(0.0, min(load[1, end] + traffic[peer, end] - limit, traffic[peer, end]))
                    + max(0.0, min(load[0, peer] + traffic[peer, end] - limit, traffic[peer, end]))
                    + max(0.0, min(load[1, peer] + traffic[end, peer] - limit, traffic[end, peer]))
                )
                cost = added / min(width[end, peer], -free[end])
                if cost < lowest:
                    removed, lowest = peer, cost
            _toggle(traffic, width, circuits, free, load, end, removed)
            moves[count, 0], moves[count, 1] = end, removed
            count += 1
    return count


@compile_function
def _undo(
    traffic: Floats,
    width: Integers,
    circuits: Integers,
    free: Integers,
    load: Floats,
    moves: Integers,
    count: int,
) -> None:
    """Move the first `count` pairs of `moves` back."""
    for index in range(count):
        _toggle(traffic, width, circuits, free, load, moves[index, 0], moves[index, 1])
