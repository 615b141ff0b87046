"""Circuits within a region: ports are kept, and the all-to-all takes little longer than with the best circuits."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

from testbed.design.circuits.regions import (
    allocate_greedily,
    allocate_region_circuits,
    compute_exchange_s,
    enumerate_allocations,
    find_best_circuits,
)

PORTS, RATE, PACKETS = 6, 100e9, 200e9
KINDS = ("uniform", "cubed", "sparse")


def matrices(size: int, count: int = 200) -> Iterator[np.ndarray]:
    """Yield traffic of three kinds in turn; a sparse matrix may have one pair only."""
    random = np.random.default_rng(size)
    for index in range(count):
        traffic = random.random((size, size))
        kind = KINDS[index % len(KINDS)]
        if kind == "cubed":
            traffic = traffic**3
        if kind == "sparse":
            traffic *= random.random((size, size)) < 0.3
        np.fill_diagonal(traffic, 0)
        if not traffic.any():
            traffic[0, 1] = 1
        yield traffic * 1e9


def seconds(traffic, circuits):
    return compute_exchange_s(traffic, circuits, RATE, PACKETS)


def ours(traffic):
    return allocate_region_circuits(traffic, PORTS, RATE, PACKETS)


def fits(traffic, goal_s):
    """Return True if some circuits end the all-to-all within `goal_s`: pairs on circuits, by integer programming."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    size = len(traffic)
    pairs = [(one, other) for one in range(size) for other in range(one + 1, size)]
    rows = np.zeros((3, size, len(pairs)))
    for column, (one, other) in enumerate(pairs):
        rows[0, [one, other], column] = np.ceil(
            8 * max(traffic[one, other], traffic[other, one]) / (goal_s * RATE) - 1e-12
        )
        rows[1, [one, other], column] = traffic[one, other], traffic[other, one]
        rows[2, [one, other], column] = traffic[other, one], traffic[one, other]
    least = np.concatenate([traffic.sum(axis=1), traffic.sum(axis=0)]) - goal_s * PACKETS / 8
    constraints = [
        LinearConstraint(rows[0], -np.inf, PORTS),
        LinearConstraint(rows[1:].reshape(2 * size, -1), least, np.inf),
    ]
    found = milp(
        np.zeros(len(pairs)), constraints=constraints, bounds=Bounds(0, 1), integrality=np.ones(len(pairs))
    )
    return found.status == 0


def best_seconds(traffic, known_s):
    """Return the time with the best circuits, not above `known_s`, to 0.2 %, and rounded down."""
    low, high = 0.0, known_s
    while high - low > 0.002 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(traffic, middle) else (middle, high)
    return low


@pytest.mark.parametrize("size", [4, 8, 16])
def test_circuits_are_symmetric_keep_the_ports_and_are_never_worse_than_greedy_ones_or_none(size):
    gains = []
    for traffic in matrices(size):
        circuits, greedy = ours(traffic), allocate_greedily(traffic, PORTS)
        assert (circuits == circuits.T).all()
        assert (circuits >= 0).all()
        assert not circuits.diagonal().any()
        assert circuits.sum(axis=1).max() <= PORTS
        assert seconds(traffic, circuits) <= seconds(traffic, greedy)
        assert seconds(traffic, circuits) <= seconds(traffic, np.zeros_like(circuits))
        gains.append(seconds(traffic, greedy) / seconds(traffic, circuits))
    assert np.mean(gains) >= 1.15
    assert np.mean(np.array(gains) > 1.01) >= 0.5


def test_four_servers_are_near_the_best_of_all_allocations():
    allocations = np.array(list(enumerate_allocations(4, PORTS)))
    ratios = []
    for traffic in matrices(4):
        packets = np.where(allocations > 0, 0, traffic)
        busiest = np.maximum(packets.sum(axis=1).max(axis=1), packets.sum(axis=2).max(axis=1)) / PACKETS
        slowest = np.where(allocations > 0, traffic / np.maximum(allocations, 1), 0).max(axis=(1, 2)) / RATE
        ratios.append(seconds(traffic, ours(traffic)) / (8 * np.maximum(busiest, slowest).min()))
    assert min(ratios) >= 1 - 1e-9
    assert np.mean(ratios) <= 1.02
    assert max(ratios) <= 1.30


@pytest.mark.parametrize("count", [15, pytest.param(200, marks=pytest.mark.long)])
def test_eight_servers_are_near_the_optimum_of_integer_programming(count):
    ratios = []
    for traffic in matrices(8, count):
        our_s = seconds(traffic, ours(traffic))
        ratios.append(our_s / best_seconds(traffic, our_s))
    assert np.mean(ratios) <= 1.02
    assert max(ratios) <= 1.20


@pytest.mark.parametrize("size", [4, 8, 16])
def test_a_region_takes_at_most_ten_milliseconds(size):
    traffic = list(matrices(size, 60))
    ours(traffic[0])  # compiles
    started = time.process_time()
    for one in traffic:
        ours(one)
    assert (time.process_time() - started) / len(traffic) <= 10e-3


def test_the_enumeration_finds_the_best_and_greedy_circuits_keep_the_ports():
    traffic = np.array([[0, 9, 1], [0, 0, 2], [0, 0, 0.0]])
    best = find_best_circuits(traffic, 2, 1.0, 1.0)

    assert compute_exchange_s(traffic, best, 1.0, 1.0) == 8 * 4.5
    assert compute_exchange_s(traffic, allocate_region_circuits(traffic, 2, 1.0, 1.0), 1.0, 1.0) == 8 * 4.5
    for published in (False, True):
        greedy = allocate_greedily(next(matrices(4)), 3, uses_published_divisor=published)
        assert greedy.sum(axis=1).max() <= 3


def test_the_published_divisor_gives_parallel_circuits_last():
    """The large pair takes its second circuit only when no pair of comparable size is left."""
    traffic = np.array([[0, 9, 1, 1], [0, 0, 1, 1], [0, 0, 0, 9], [0, 0, 0, 0.0]])

    assert allocate_greedily(traffic, 3)[0].tolist() == [0, 3, 0, 0]
    assert allocate_greedily(traffic, 3, uses_published_divisor=True)[0].tolist() == [0, 1, 1, 1]


def test_traffic_that_needs_no_circuits_and_regions_without_ports():
    assert not allocate_region_circuits(np.diag([5.0, 6.0]), 6, 1.0, 1.0).any()
    assert not allocate_region_circuits(np.ones((3, 3)), 0, 1.0, 1.0).any()


@pytest.mark.parametrize(
    ("traffic", "ports", "rate", "message"),
    [
        (np.ones((2, 3)), 6, 1.0, "shape"),
        (-np.ones((2, 2)), 6, 1.0, "at least 0 bytes"),
        (np.full((2, 2), np.inf), 6, 1.0, "finite"),
        (np.ones((2, 2)), -1, 1.0, "-1 ports"),
        (np.ones((2, 2)), 6, 0.0, "rates above 0"),
    ],
)
def test_impossible_regions_are_refused(traffic, ports, rate, message):
    with pytest.raises(ValueError, match=message):
        allocate_region_circuits(traffic, ports, rate, 1.0)
