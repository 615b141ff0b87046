"""Circuits of optical switches: permutations, the bound by integer programming, symmetry, and large clusters."""

from __future__ import annotations

import time

import numpy as np
import pytest
from libraries import skip_without

skip_without("scipy")

from testbed.design.circuits.shots import allocate_switch_circuits


def random_demands(nodes: int, seed: int, *, density: float = 0.5, symmetric: bool = False):
    random = np.random.default_rng(seed)
    demands = random.random((nodes, nodes)) * (random.random((nodes, nodes)) < density)
    np.fill_diagonal(demands, 0)
    demands[0, 1] = 1.0
    return demands + demands.T if symmetric else demands


def check_permutations(circuits, switches: int) -> None:
    """Take a matching off the circuits for each switch; raise `AssertionError` if something is left."""
    from scipy.optimize import linear_sum_assignment

    left = circuits.copy()
    assert (left >= 0).all()
    assert not np.diag(left).any()
    for remaining in range(switches, 0, -1):
        busiest = (left.sum(axis=1) == remaining)[:, None].astype(float) + (left.sum(axis=0) == remaining)
        sources, targets = linear_sum_assignment(np.where(left > 0, 1e-3 + busiest, 0), maximize=True)
        left[sources, targets] -= left[sources, targets] > 0
    assert not left.any()


def share(circuits, demands) -> float:
    pairs = demands > 0
    return float((circuits[pairs] / demands[pairs]).min())


def solve(demands, switches: int, *, count_pairs: bool = False) -> float:
    """Return the largest least share, or the largest number of pairs with a circuit, by integer programming."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array, hstack, vstack

    sources, targets = np.nonzero(demands)
    pairs, nodes = len(sources), len(demands)
    rows = [
        csr_array((np.ones(pairs), (end, np.arange(pairs))), shape=(nodes, pairs))
        for end in (sources, targets)
    ]
    limit = hstack([vstack(rows), csr_array((2 * nodes, 1))])
    limits = [LinearConstraint(limit, -np.inf, switches)]
    if not count_pairs:
        served = hstack([csr_array(np.eye(pairs)), csr_array(-demands[sources, targets][:, None])])
        limits.append(LinearConstraint(served, 0, np.inf))
    goal = -np.append(np.full(pairs, float(count_pairs)), float(not count_pairs))
    bounds = Bounds(0, np.append(np.full(pairs, 1.0 if count_pairs else np.inf), 1e3))
    return -float(milp(goal, constraints=limits, integrality=np.append(np.ones(pairs), 0), bounds=bounds).fun)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_the_least_share_is_that_of_integer_programming(seed, symmetric):
    nodes, switches = 4 + seed % 5, 3 + seed
    demands = random_demands(nodes, seed, symmetric=symmetric)

    circuits = allocate_switch_circuits(demands, switches)

    check_permutations(circuits, switches)
    assert share(circuits, demands) == pytest.approx(solve(demands, switches), rel=1e-6)
    assert not symmetric or (circuits == circuits.T).all()


@pytest.mark.parametrize("seed", range(6))
def test_more_partners_than_switches_leave_pairs_out(seed):
    demands = random_demands(9, seed, density=0.9)

    circuits = allocate_switch_circuits(demands, 4)

    check_permutations(circuits, 4)
    assert np.count_nonzero(circuits) == solve(demands, 4, count_pairs=True)


def test_of_equally_many_pairs_the_one_with_more_bytes_is_served():
    demands = np.array([[0, 1.0, 2.0], [0, 0, 0], [0, 0, 0]])

    assert allocate_switch_circuits(demands, 1).tolist() == [[0, 0, 1], [0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("seed", range(6))
def test_a_shot_of_several_moves_the_most_bytes(seed):
    from scipy.optimize import linear_sum_assignment

    demands = random_demands(7, seed)
    sources, targets = linear_sum_assignment(demands, maximize=True)

    circuits = allocate_switch_circuits(demands, 5, is_multi_shot=True)

    check_permutations(circuits, 5)
    assert (demands * circuits).sum() == pytest.approx(5 * demands[sources, targets].sum())


@pytest.mark.parametrize("multi_shot", [False, True])
def test_symmetric_demands_get_symmetric_circuits(multi_shot):
    for seed in range(4):
        circuits = allocate_switch_circuits(
            random_demands(9, seed, symmetric=True), 4, is_multi_shot=multi_shot
        )
        assert (circuits == circuits.T).all()


def test_a_pair_without_demand_gets_no_circuit():
    for multi_shot in (False, True):
        assert not allocate_switch_circuits(np.zeros((4, 4)), 3, is_multi_shot=multi_shot).any()
        demands = random_demands(6, 1, density=0.2)
        assert not allocate_switch_circuits(demands, 3, is_multi_shot=multi_shot)[demands == 0].any()
        assert not allocate_switch_circuits(demands + np.eye(6), 3, is_multi_shot=multi_shot).diagonal().any()


@pytest.mark.parametrize("wrong", [np.ones((2, 3)), -np.ones((2, 2)), np.full((2, 2), np.nan)])
def test_demands_are_checked(wrong):
    with pytest.raises(ValueError, match="square matrix"):
        allocate_switch_circuits(wrong, 2)


def test_at_least_one_switch():
    with pytest.raises(ValueError, match="give at least one"):
        allocate_switch_circuits(np.ones((2, 2)), 0)


@pytest.mark.parametrize(("density", "symmetric"), [(0.01, False), (0.1, False), (0.1, True)])
def test_a_thousand_nodes_take_seconds(density, symmetric):
    demands = random_demands(1024, 3, density=density, symmetric=symmetric)
    start = time.process_time()

    circuits = allocate_switch_circuits(demands, 20)

    assert time.process_time() - start < 10
    assert max(circuits.sum(axis=0).max(), circuits.sum(axis=1).max()) <= 20
    limit = np.minimum((demands > 0).sum(axis=1), 20).sum()
    assert np.count_nonzero(circuits) >= 0.95 * limit
