"""Circuits of optical circuit switches (SiP-OCS): one setting for a whole iteration, or one per shot.

Each switch connects a node to at most one other node in each direction. A bipartite graph of degree k is the union of k
matchings (Koenig). So k switches can realise every matrix of whole numbers whose rows and columns sum to at most k. A
single shot can therefore be solved exactly without integer programming. The solution has the largest share m at which
every pair gets ceil(m x demand) circuits, and no row or column exceeds k. Needs scipy.
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_TOLERANCE = 1e-9
#: With more pairs, or if integer programming takes longer than these seconds, the choice of pairs is greedy.
_MAX_PAIRS_EXACT = 3_000
_EXACT_TIME_LIMIT_S = 1.0


def allocate_switch_circuits(
    demand_bytes: Floats, switch_count: int, *, is_multi_shot: bool = False
) -> Integers:
    """Return the number of switches that connect row to column, (n, n). Rows and columns sum to at most `switch_count`.

    The diagonal of `demand_bytes`, (n, n), is ignored. Pairs without demand get no circuit.

    - Single shot: maximise the share, the smallest number of circuits per byte. Remaining ports go to the pairs with
      the least share. If a node has more partners than there are switches, as many pairs as possible get a circuit;
      ties go to the choice with most bytes. Above 3,000 pairs, this choice is greedy. Symmetric demands get symmetric
      circuits.
    - Multi-shot: maximise the sum of bytes times circuits. All switches connect the pairs of one assignment, and later
      shots serve the other pairs. For symmetric demands, half of the switches use the transpose.

    Raises `ValueError` for demands that are not a square matrix of finite numbers of 0 or more, and for `switch_count`
    < 1.

    >>> ring = np.roll(np.eye(4), 1, axis=1)
    >>> allocate_switch_circuits(ring + 0.5 * ring.T, 3)
    array([[0, 2, 0, 1],
           [1, 0, 2, 0],
           [0, 1, 0, 2],
           [2, 0, 1, 0]])
    """
    demands = np.array(demand_bytes, float)
    node_count = len(demands)
    if demands.shape != (node_count, node_count) or not (demands >= 0).all() or np.isinf(demands).any():
        raise ValueError("demands must be a square matrix of numbers of 0 or more")
    if switch_count < 1:
        raise ValueError(f"{switch_count} switches: give at least one")
    np.fill_diagonal(demands, 0)
    if not demands.any():
        return np.zeros((node_count, node_count), np.int64)
    demands /= demands.max()
    return (
        _solve_multi_shot(demands, switch_count)
        if is_multi_shot
        else _solve_single_shot(demands, switch_count)
    )


def _solve_multi_shot(demands: Floats, switch_count: int) -> Integers:
    from scipy.optimize import linear_sum_assignment

    sources, targets = linear_sum_assignment(demands, maximize=True)
    assignment = np.zeros(demands.shape, np.int64)
    assignment[sources, targets] = demands[sources, targets] > 0
    if (demands == demands.T).all():
        return assignment * (switch_count - switch_count // 2) + assignment.T * (switch_count // 2)
    return assignment * switch_count


def _solve_single_shot(demands: Floats, switch_count: int) -> Integers:
    pairs = np.argwhere(demands > 0)
    pair_demands = demands[pairs[:, 0], pairs[:, 1]]

    def count_required(share: float) -> Integers:
        required_circuits = np.zeros(demands.shape, np.int64)
        required_circuits[pairs[:, 0], pairs[:, 1]] = np.maximum(
            np.ceil(share * pair_demands - _TOLERANCE), 1
        )
        return required_circuits

    def is_feasible(required_circuits: Integers) -> bool:
        return (
            int(max(required_circuits.sum(axis=0).max(), required_circuits.sum(axis=1).max())) <= switch_count
        )

    if not is_feasible(count_required(0.0)):
        return _fill_ports(demands, _serve_most_pairs(demands, switch_count), switch_count)
    # At the largest share, some pair has exactly a whole number of circuits: try only these shares.
    counts = np.arange(1, switch_count + 1)
    max_share = switch_count / pair_demands.max()
    candidate_shares = np.unique(
        (counts[:, None] / pair_demands[pair_demands * max_share >= 1 - _TOLERANCE]).ravel()
    )
    candidate_shares = candidate_shares[candidate_shares <= max_share * (1 + _TOLERANCE)]
    low_index, high_index = -1, len(candidate_shares)
    while high_index - low_index > 1:
        middle_index = (low_index + high_index) // 2
        low_index, high_index = (
            (middle_index, high_index)
            if is_feasible(count_required(candidate_shares[middle_index]))
            else (low_index, middle_index)
        )
    return _fill_ports(
        demands, count_required(candidate_shares[low_index] if low_index >= 0 else 0.0), switch_count
    )


def _serve_most_pairs(demands: Floats, switch_count: int) -> Integers:
    """Return one circuit each for as many pairs as possible; ties go to the choice with most bytes."""
    is_symmetric = bool((demands == demands.T).all())
    sources, targets = np.nonzero(np.triu(demands) if is_symmetric else demands)
    # All bytes together weigh 1/2, so one more pair always outweighs them.
    values = 1 + demands[sources, targets] / (2 * demands.sum())
    if len(sources) <= _MAX_PAIRS_EXACT:
        is_served = _serve_exactly(
            sources, targets, values, len(demands), switch_count, is_symmetric=is_symmetric
        )
    else:
        is_served = _serve_largest_first(
            sources, targets, values, len(demands), switch_count, is_symmetric=is_symmetric
        )
    circuits = np.zeros(demands.shape, np.int64)
    circuits[sources[is_served], targets[is_served]] = 1
    return np.maximum(circuits, circuits.T) if is_symmetric else circuits


def _serve_exactly(
    sources: Integers,
    targets: Integers,
    values: Floats,
    node_count: int,
    switch_count: int,
    *,
    is_symmetric: bool,
) -> NDArray[np.bool_]:
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    def make_incidence(nodes_of_pairs: Integers) -> Any:
        return csr_array(
            (np.ones(len(nodes_of_pairs)), (nodes_of_pairs, np.arange(len(nodes_of_pairs)))),
            shape=(node_count, len(nodes_of_pairs)),
        )

    incidences = make_incidence(sources), make_incidence(targets)
    incidence_matrices = [incidences[0] + incidences[1]] if is_symmetric else list(incidences)
    solution = milp(
        -values,
        constraints=[LinearConstraint(incidence, -np.inf, switch_count) for incidence in incidence_matrices],
        integrality=np.ones(len(values)),
        bounds=Bounds(0, 1),
        options={"time_limit": _EXACT_TIME_LIMIT_S},
    )
    is_served_greedily = _serve_largest_first(
        sources, targets, values, node_count, switch_count, is_symmetric=is_symmetric
    )
    is_served = is_served_greedily if solution.x is None else np.asarray(solution.x > 0.5)
    return is_served if values[is_served].sum() >= values[is_served_greedily].sum() else is_served_greedily


def _serve_largest_first(
    sources: Integers,
    targets: Integers,
    values: Floats,
    node_count: int,
    switch_count: int,
    *,
    is_symmetric: bool,
) -> NDArray[np.bool_]:
    """Return which pairs are served: in descending order of bytes, each pair whose nodes have a free port."""
    free_transmitters = np.full(node_count, switch_count)
    free_receivers = free_transmitters if is_symmetric else free_transmitters.copy()
    is_served = np.zeros(len(sources), bool)
    for pair_index in np.argsort(-values, kind="stable").tolist():
        source, target = sources[pair_index], targets[pair_index]
        if free_transmitters[source] and free_receivers[target]:
            is_served[pair_index] = True
            free_transmitters[source] -= 1
            free_receivers[target] -= 1
    return is_served


def _fill_ports(demands: Floats, circuits: Integers, switch_count: int) -> Integers:
    """Return `circuits` plus one after another for the pair of least share, while its nodes have free ports."""
    is_symmetric = bool((demands == demands.T).all())
    free_transmitters, free_receivers = (
        switch_count - circuits.sum(axis=1),
        switch_count - circuits.sum(axis=0),
    )
    pairs = np.argwhere((np.triu(demands) if is_symmetric else demands) > 0)
    heap = [
        (circuits[source, target] / demands[source, target], -demands[source, target], source, target)
        for source, target in pairs.tolist()
        if free_transmitters[source] and free_receivers[target]
    ]
    heapify(heap)
    while heap:
        _, negated_demand, source, target = heap[0]
        if not (free_transmitters[source] and free_receivers[target]):
            heappop(heap)
            continue
        for sender, receiver in ((source, target), (target, source))[: 1 + is_symmetric]:
            circuits[sender, receiver] += 1
            free_transmitters[sender] -= 1
            free_receivers[receiver] -= 1
        heapreplace(heap, (circuits[source, target] / -negated_demand, negated_demand, source, target))
    return circuits
