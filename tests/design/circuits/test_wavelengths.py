"""Wavelengths on a ring: the hand check, the order of bound, exact and rounded, symmetry, no segment over its share."""

from __future__ import annotations

import time

import numpy as np
import pytest
from libraries import skip_without

skip_without("scipy")

from testbed.design.circuits.wavelengths import (
    allocate_exactly,
    allocate_ring_circuits,
    allocate_wavelengths,
    solve_bound,
)

NEXT = np.roll(np.eye(8), 1, axis=1)
SECONDS = 60.0
QUICK_CASES = (0, 4, 5, 6, *range(9, 16), 21, 23, 24, 27, 30, *range(33, 40))


def random_demands(nodes: int, seed: int, *, symmetric: bool):
    random = np.random.default_rng(seed)
    demands = random.random((nodes, nodes)) * (random.random((nodes, nodes)) < 0.5)
    np.fill_diagonal(demands, 0)
    demands[0, 1] = 1.0
    return demands + demands.T if symmetric else demands


def random_case(seed: int):
    """Return the demands and the wavelengths of a small ring; demands are symmetric in every third case."""
    random = np.random.default_rng(seed)
    nodes, waves = int(random.integers(4, 11)), 2 * int(random.integers(4, 33))
    demands = random.random((nodes, nodes)) * (random.random((nodes, nodes)) < random.uniform(0.1, 0.9))
    np.fill_diagonal(demands, 0)
    demands[0, 1] = 1.0
    return (demands + demands.T if seed % 3 == 0 else demands), waves


def near_demands(nodes: int, partners: int, seed: int, reach: int = 16):
    """Return demands of each node with some of the nodes at most `reach` away."""
    random = np.random.default_rng(seed)
    demands = np.zeros((nodes, nodes))
    distances = np.concatenate([np.arange(-reach, 0), np.arange(1, reach + 1)])
    for source in range(nodes):
        targets = (source + random.choice(distances, partners, replace=False)) % nodes
        demands[source, targets] = random.uniform(0.5, 1, partners)
    return demands


def compare(seeds) -> list[float]:
    """Return the share of the rounded over that of exact allocations, where these are proven and above 0."""
    ratios = []
    for seed in seeds:
        demands, waves = random_case(seed)
        start = time.perf_counter()
        exact = allocate_exactly(demands, waves, time_limit_s=SECONDS).share
        if time.perf_counter() - start > SECONDS - 1:
            continue
        rounded = allocate_wavelengths(demands, waves).share
        assert rounded <= exact + 1e-6 <= solve_bound(demands, waves).share + 2e-5
        if exact > 0:
            assert rounded > 0
            ratios += [rounded / exact] if waves >= 16 else []
    return ratios


def busiest_segment(circuits) -> float:
    nodes = circuits.shape[1]
    load = np.zeros((2, nodes))
    for turn, source, target in np.ndindex(circuits.shape):
        first, last = (target, source) if turn else (source, target)
        load[turn, (first + np.arange((last - first) % nodes)) % nodes] += circuits[turn, source, target]
    return float(load.max())


def test_eight_nodes_that_send_to_the_next_one():
    assert solve_bound(NEXT, 64).share == pytest.approx(32 + 32 / 7)
    assert allocate_exactly(NEXT, 64).share == 36
    assert allocate_wavelengths(NEXT, 64).share == 36


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_rounded_is_below_exact_is_below_the_bound(seed, symmetric):
    demands = random_demands(5, seed, symmetric=symmetric)
    found = [solve(demands, 8) for solve in (allocate_wavelengths, allocate_exactly, solve_bound)]
    assert found[0].share <= found[1].share + 1e-9
    assert found[1].share <= found[2].share + 1e-6
    assert all(busiest_segment(each.circuits) <= 4 + 1e-6 for each in found)
    assert busiest_segment(found[0].circuits) > 0


@pytest.mark.parametrize("seed", range(4))
def test_symmetric_demands_get_symmetric_circuits(seed):
    circuits = allocate_wavelengths(random_demands(8, seed, symmetric=True), 16).circuits
    assert (circuits[0] == circuits[1].T).all()


def test_an_arc_that_is_too_long_is_refused():
    with pytest.raises(ValueError, match="allow longer arcs"):
        allocate_wavelengths(np.roll(np.eye(8), 4, axis=1), 8, max_distance=3)


def test_rounded_is_near_exact():
    ratios = compare(QUICK_CASES)

    assert len(ratios) >= 15
    assert min(ratios) >= 0.9


@pytest.mark.long
def test_rounded_is_near_exact_in_two_hundred_cases():
    ratios = compare(range(200))

    assert len(ratios) >= 150
    assert min(ratios) >= 0.9


@pytest.mark.parametrize("nodes", [64, 256, 1024])
def test_large_rings_are_near_the_bound(nodes):
    demands = near_demands(nodes, 8, nodes)
    start = time.process_time()

    rounded = allocate_wavelengths(demands, 320, 16)

    assert time.process_time() - start < 10
    assert rounded.share >= 0.8 * solve_bound(demands, 320, 16).share


def test_all_neighbours_within_sixteen_get_a_circuit_each():
    ahead = (np.arange(1024) - np.arange(1024)[:, None]) % 1024
    demands = ((ahead > 0) & (np.minimum(ahead, 1024 - ahead) <= 16)).astype(float)

    rounded = allocate_wavelengths(demands, 320, 16)

    # 16 + 15 + ... + 1 = 136 pairs cross each segment, with 160 wavelengths.
    assert solve_bound(demands, 320, 16).share == pytest.approx(160 / 136)
    assert rounded.share == 1


@pytest.mark.parametrize("distances", [(1,), (1, -1), (1, -1, 2, -2), (1, 2, 3, 4)])
@pytest.mark.parametrize("nodes", [12, 32])
def test_neighbours_at_equal_distances_get_equal_circuits(nodes, distances):
    demands = sum(np.roll(np.eye(nodes), distance, axis=1) for distance in distances)

    circuits = allocate_wavelengths(demands, 64).circuits

    assert circuits.sum(axis=0)[demands > 0].min() > 0
    for turn in (0, 1):
        assert (np.roll(circuits[turn], (1, 1), axis=(0, 1)) == circuits[turn]).all()


@pytest.mark.parametrize("nodes", [8, 24])
def test_circuits_of_any_demands(nodes):
    random = np.random.default_rng(nodes)
    demands = random.random((nodes, nodes)) * 1e9

    circuits = allocate_ring_circuits(demands, 64, 3)

    ahead = (np.arange(nodes) - np.arange(nodes)[:, None]) % nodes
    distance = np.minimum(ahead, nodes - ahead)
    assert circuits.dtype == np.int64
    assert ((circuits > 0) == ((distance > 0) & (distance <= 3))).all()
    assert (circuits * distance).sum() <= 64 * nodes
    assert not allocate_ring_circuits(np.zeros((nodes, nodes)), 2).any()
    assert not allocate_ring_circuits(np.roll(np.eye(nodes), nodes // 2, axis=1), 2, 3).any()


def test_more_pairs_than_wavelengths_leave_pairs_without_a_circuit():
    circuits = allocate_ring_circuits(np.ones((10, 10)), 2)

    assert (circuits == circuits.T).all()
    assert 20 <= np.count_nonzero(circuits) < 90


def test_small_rings_get_the_exact_share():
    demands, waves = random_case(7)
    circuits = allocate_ring_circuits(demands * 1e9, waves)

    pairs = demands > 0
    assert (circuits[pairs] / demands[pairs]).min() >= allocate_exactly(demands, waves).share * (1 - 1e-6)


def test_an_odd_number_of_wavelengths_is_refused():
    with pytest.raises(ValueError, match="must be even"):
        allocate_ring_circuits(NEXT, 3)


def test_an_all_to_all_of_a_thousand_nodes_connects_the_nearest():
    start = time.process_time()
    circuits = allocate_ring_circuits(np.ones((1024, 1024)), 320)

    assert time.process_time() - start < 20
    ahead = (np.arange(1024) - np.arange(1024)[:, None]) % 1024
    distance = np.minimum(ahead, 1024 - ahead)
    # 17 * 18 / 2 = 153 pairs up to 17 apart cross each segment, with 160 wavelengths.
    assert (circuits[(distance > 0) & (distance <= 17)] >= 1).all()
    assert not circuits[distance > 18].any()


@pytest.mark.parametrize("seed", range(6))
def test_scaled_demands_get_the_same_circuits(seed):
    demands, waves = random_case(100 + seed)

    assert (
        allocate_ring_circuits(demands * 2.0**30, waves, 3) == allocate_ring_circuits(demands, waves, 3)
    ).all()


def test_the_bound_of_short_arcs_is_that_of_the_fullest_segment():
    demands = np.zeros((12, 12))
    demands[11, 0] = demands[0, 11] = 4.0
    demands[0, 1] = demands[1, 0] = 1.0
    demands[10, 0] = demands[0, 10] = 2.0

    # Both 4 and 2 cross the segment from 11 to 0, with 30 wavelengths in each direction.
    assert solve_bound(demands, 60, 3).share == 30 / (4 + 2)
    assert allocate_wavelengths(demands, 60, 3).share == 5


def test_a_tiny_demand_has_a_circuit_too():
    demands = random_demands(9, 3, symmetric=False)
    demands[4, 2] = 1e-20

    assert allocate_ring_circuits(demands, 64)[4, 2] >= 1
    assert 0 < allocate_wavelengths(demands, 64).share <= solve_bound(demands, 64).share


@pytest.mark.parametrize(
    "partners", [24, *(pytest.param(other, marks=pytest.mark.long) for other in (8, 32))]
)
def test_short_arcs_leave_no_larger_share_in_whole_circuits(partners):
    demands = near_demands(256, partners, partners)
    share = allocate_wavelengths(demands, 320, 16).share

    # The next larger share at which some pair has a whole number of circuits asks too much of some segment.
    larger = float(((np.floor(share * demands + 1e-6) + 1)[demands > 0] / demands[demands > 0]).min())
    need = np.ceil(larger * demands - 1e-6)
    circuits = np.zeros((2, 256, 256))
    for source, target in np.argwhere(demands > 0):
        circuits[int((target - source) % 256 > 16), source, target] = need[source, target]
    assert busiest_segment(circuits) > 160
    assert larger > share
