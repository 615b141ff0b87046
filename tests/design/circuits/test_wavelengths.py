"""Wavelengths on a ring: the hand check, the order of bound, exact and rounded, symmetry, no segment over its share."""

from __future__ import annotations

import numpy as np
import pytest
from libraries import skip_without

skip_without("scipy")

from testbed.design.circuits.wavelengths import allocate, allocate_exactly, solve_bound

NEXT = np.roll(np.eye(8), 1, axis=1)


def random_demands(nodes: int, seed: int, *, symmetric: bool):
    random = np.random.default_rng(seed)
    demands = random.random((nodes, nodes)) * (random.random((nodes, nodes)) < 0.5)
    np.fill_diagonal(demands, 0)
    demands[0, 1] = 1.0
    return demands + demands.T if symmetric else demands


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
    assert allocate(NEXT, 64).share == 36


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_rounded_is_below_exact_is_below_the_bound(seed, symmetric):
    demands = random_demands(5, seed, symmetric=symmetric)
    found = [solve(demands, 8) for solve in (allocate, allocate_exactly, solve_bound)]
    assert found[0].share <= found[1].share + 1e-9
    assert found[1].share <= found[2].share + 1e-6
    assert all(busiest_segment(each.circuits) <= 4 + 1e-6 for each in found)
    assert busiest_segment(found[0].circuits) > 0


@pytest.mark.parametrize("seed", range(4))
def test_symmetric_demands_get_symmetric_circuits(seed):
    circuits = allocate(random_demands(8, seed, symmetric=True), 16).circuits
    assert (circuits[0] == circuits[1].T).all()


def test_an_arc_that_is_too_long_is_refused():
    with pytest.raises(ValueError, match="allow longer arcs"):
        allocate(np.roll(np.eye(8), 4, axis=1), 8, max_distance=3)
