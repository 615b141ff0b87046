"""Matchings of weighted edges, exact or approximate, with an upper bound on the weight of any matching.

`match_priced` works in rounds. Each round matches exactly, but only among the heaviest pairs of every node. The duals
of this matching are prices of the nodes. An omitted pair can matter only if it exceeds its prices: if its weight is
larger than the sum of the prices of its two nodes. Raising the prices until no pair exceeds them gives an upper bound
on every matching (LP duality). If the matching weighs less than the wanted fraction of the bound, another round adds
twice as many pairs: the pairs that exceed their prices most, and the heaviest pairs of unmatched nodes. Once no pair
exceeds its prices, the matching is exact.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.errors import DemandError

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

#: Integer weights below this limit are unchanged. Other weights are scaled, so that the largest weight is at most this
#: limit, and rounded.
_MAX_INTEGER_WEIGHT = 2**52

#: Pairs of every node in the first round. The second round adds as many, each later round twice as many as the round
#: before.
_FIRST_PAIRS_PER_NODE = 8


class Matching(NamedTuple):
    """A matching: `mate[v]` is the partner of node v, or -1.

    `weight` is the sum over matched edges. No matching weighs more than `bound`; for an exact matching, it equals
    `weight` up to rounding. `dual` holds the node prices that prove the bound of `match_edges`.
    """

    mate: Integers
    weight: float
    bound: float
    dual: Floats


def match_edges(nodes: int, first_nodes: Integers, second_nodes: Integers, weight: Floats) -> Matching:
    """Return the heaviest matching of undirected edges.

    Among parallel edges only the heaviest counts. Edges of weight 0 are ignored. Integer weights below 2^52 are exact;
    other weights are rounded to multiples of at most 2^-51 times the largest weight. The matching of these weights is
    exact. Raises `DemandError` if the largest weight is too large or too small.
    """
    from testbed.design.matching.search import match_all

    # Keep each pair once with its greatest weight, sorted, the smaller node first.
    low_nodes, high_nodes = np.minimum(first_nodes, second_nodes), np.maximum(first_nodes, second_nodes)
    pair_key = low_nodes * nodes + high_nodes
    order = np.lexsort((-weight, pair_key))
    order = order[(weight[order] > 0) & (low_nodes[order] != high_nodes[order])]
    _, first_positions = np.unique(pair_key[order], return_index=True)
    heaviest_edges = order[first_positions]
    first_nodes, second_nodes, weight = (
        low_nodes[heaviest_edges],
        high_nodes[heaviest_edges],
        weight[heaviest_edges],
    )
    scale = _choose_scale(weight)
    integer_weight = np.rint(weight * scale).astype(np.int64)
    state = _make_state(nodes, first_nodes, second_nodes, integer_weight)
    match_all(state)
    mate = np.asarray(state.mate, dtype=np.int64)
    is_matched = mate[first_nodes] == second_nodes
    bound = _sum_duals(state, nodes) / 2 / scale
    return Matching(
        mate, float(weight[is_matched].sum()), bound, np.asarray(state.dual, dtype=np.float64) / 2 / scale
    )


def _choose_scale(weight: Floats) -> float:
    """Return the factor for weights before rounding.

    It is 1 for integers below 2^52, otherwise the power of 2 that brings the largest weight between 2^51 and 2^52.
    Raises `DemandError` if the largest weight is not between 1e-290 and 1e300.
    """
    largest_weight = float(weight.max(initial=0.0))
    if largest_weight < _MAX_INTEGER_WEIGHT and bool(np.all(weight == np.rint(weight))):
        return 1.0
    if not np.isfinite(largest_weight) or largest_weight > 1e300 or largest_weight < 1e-290:
        raise DemandError(f"a weight of {largest_weight}: give demands between 1e-290 and 1e300 bytes")
    return float(2.0 ** np.floor(np.log2(_MAX_INTEGER_WEIGHT / largest_weight)))


def _make_state(node_count: int, low_nodes: Integers, high_nodes: Integers, integer_weight: Integers) -> Any:
    """Return the state before the first stage: no node is matched, and each dual is half of the heaviest edge.

    Weights and duals are stored doubled.
    """
    from lightbed.compiled import IS_AVAILABLE
    from testbed.design.matching.search import State

    tail, head = np.concatenate([low_nodes, high_nodes]), np.concatenate([high_nodes, low_nodes])
    doubled_weights = 2 * np.concatenate([integer_weight, integer_weight])
    order = np.lexsort((head, tail))
    dual = np.zeros(node_count, dtype=np.int64)
    np.maximum.at(dual, tail, doubled_weights // 2)
    ids = np.arange(2 * node_count, dtype=np.int64)
    free_blossoms = np.concatenate([ids[: node_count - 1 : -1], [node_count]])
    path_marks = np.zeros(2 * node_count + 1, dtype=np.int64)
    columns: tuple[Any, ...] = (
        np.searchsorted(tail[order], np.arange(node_count + 1)).astype(np.int64),
        tail[order],
        head[order],
        doubled_weights[order],
        dual,
        np.full(node_count, -1),
        ids[:node_count].copy(),
        np.full(node_count, -1),
        ids.copy(),
        ids.copy(),
        np.zeros(2 * node_count, dtype=np.int64),
        ids.copy(),
        np.full(2 * node_count, -1),
        *(np.full(2 * node_count, -1) for _ in range(5)),
        *(np.zeros(2 * node_count, dtype=np.int64) for _ in range(4)),
        path_marks,
        free_blossoms,
    )
    # Interpreted code is faster on lists; compiled code needs arrays.
    return State(*((column if IS_AVAILABLE else column.tolist()) for column in columns))


def _sum_duals(state: Any, nodes: int) -> float:
    """Return the sum of the duals in doubled weights, an upper bound on every matching (LP duality)."""
    doubled_sum = sum(int(dual) for dual in state.dual)
    unused_blossoms = {int(blossom) for blossom in state.free_blossoms[: int(state.free_blossoms[-1])]}
    for blossom in range(nodes, 2 * nodes):
        if blossom not in unused_blossoms and state.blossom_dual[blossom]:
            node, node_count = state.first_leaf[blossom], 1
            while node != state.last_leaf[blossom]:
                node = state.next_leaf[node]
                node_count += 1
            doubled_sum += int(state.blossom_dual[blossom]) * ((node_count - 1) // 2)
    return float(doubled_sum)


def assign_edges(nodes: int, source: Integers, target: Integers, weight: Floats) -> Integers:
    """Return the target of each node, or -1, in the (exact) heaviest assignment along the given arcs.

    Every node is split into a sender and a receiver (the bipartite double cover). A matching of that graph is an
    assignment.

    >>> assign_edges(3, np.array([0, 1, 0]), np.array([1, 2, 2]), np.array([4.0, 3.0, 6.0])).tolist()
    [1, 2, -1]
    """
    is_arc = source != target
    receivers = match_edges(2 * nodes, source[is_arc], target[is_arc] + nodes, weight[is_arc]).mate[:nodes]
    return np.where(receivers >= 0, receivers - nodes, -1)


def match_priced(weights: Floats, *, min_fraction: float = 0.9) -> Matching:
    """Return a matching of symmetric `weights`, shape (n, n), of at least `min_fraction` of the maximum weight.

    No matching weighs more than `bound`, so the proven fraction is `weight / bound`.
    """
    nodes = len(weights)
    pairs_per_node = _FIRST_PAIRS_PER_NODE
    is_candidate = _mark_heaviest(weights, pairs_per_node)
    while True:
        low_nodes, high_nodes = np.nonzero(np.triu(is_candidate, 1))
        matching = match_edges(nodes, low_nodes, high_nodes, weights[low_nodes, high_nodes])
        excess = weights - matching.dual[:, np.newaxis] - matching.dual[np.newaxis, :]
        excess[is_candidate] = (
            0.0  # `match_edges` considered these pairs: they exceed their prices because of blossoms
        )
        np.fill_diagonal(excess, 0.0)
        price_increases: Floats = np.maximum(excess.max(axis=1, initial=0.0), 0.0)
        proven_matching = matching._replace(bound=matching.bound + float(price_increases.sum()) / 2)
        if matching.weight >= min_fraction * proven_matching.bound or excess.max(initial=0.0) <= 0:
            return proven_matching
        is_unmatched = matching.mate < 0
        unmatched_weights = np.where(is_unmatched[:, np.newaxis] & is_unmatched, weights, 0.0)
        is_candidate |= _mark_heaviest(excess, pairs_per_node) | _mark_heaviest(
            unmatched_weights, pairs_per_node
        )
        pairs_per_node *= 2


def _mark_heaviest(weights: Floats, pair_count: int) -> NDArray[np.bool_]:
    """Return a mask of the pairs that are among the `pair_count` heaviest of at least one of their nodes.

    Ties go to the partner that follows the node soonest in cyclic order.
    """
    node_count = len(weights)
    following_nodes = (np.arange(node_count)[:, np.newaxis] + np.arange(1, node_count)) % node_count
    following_weights = np.take_along_axis(weights, following_nodes, axis=1)
    best_indices = np.argsort(-following_weights, axis=1, kind="stable")[:, : min(pair_count, node_count - 1)]
    partners = np.take_along_axis(following_nodes, best_indices, axis=1)
    is_heaviest = np.zeros((node_count, node_count), dtype=bool)
    np.put_along_axis(is_heaviest, partners, values=True, axis=1)
    is_heaviest &= weights > 0
    return is_heaviest | is_heaviest.T
