"""Exact matchings of weighted edges: from arrays of edges to mates, and the proof that nothing is heavier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.errors import DemandError

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

#: Weights that are no small integers are rounded to this part of the largest: more than a double holds.
_SCALE = 2**52


class Matching(NamedTuple):
    """`mate[v]` is the partner of node v, -1 without one.

    `weight` is the sum over matched edges; `bound` proves that no matching weighs more, and is the same but for
    rounding when the matching is exact. `dual` are node prices with which the bound was proven.
    """

    mate: Integers
    weight: float
    bound: float
    dual: Floats


def match_edges(nodes: int, one: Integers, other: Integers, weight: Floats) -> Matching:
    """Return the heaviest matching of undirected edges (parallel ones count as the heaviest, zeros as absent).

    Exact: integer weights below 2^52 are taken as they are, others are rounded to 2^-52 of the largest.
    """
    one, other, weight = _merged(nodes, one, other, weight)
    scale = _scale(weight)
    whole = np.rint(weight * scale).astype(np.int64)
    state = _prepare(nodes, one, other, whole)
    _search()(state)
    mate = np.asarray(state.mate, dtype=np.int64)
    chosen = mate[one] == other
    bound = _dual_sum(state, nodes) / 2 / scale
    return Matching(
        mate, float(weight[chosen].sum()), bound, np.asarray(state.dual, dtype=np.float64) / 2 / scale
    )


def _search() -> Callable[[Any], None]:
    from testbed.design.matching.search import match_all

    return match_all


def _merged(nodes: int, one: Integers, other: Integers, weight: Floats) -> tuple[Integers, Integers, Floats]:
    """Return each pair once, the smaller node first, in order, with its greatest weight."""
    low, high = np.minimum(one, other), np.maximum(one, other)
    key = low * nodes + high
    order = np.lexsort((-weight, key))
    order = order[(weight[order] > 0) & (low[order] != high[order])]
    _, firsts = np.unique(key[order], return_index=True)
    kept = order[firsts]
    return low[kept], high[kept], weight[kept]


def _scale(weight: Floats) -> float:
    """Return 1 for weights that are integers as they stand, else what makes the largest about 2^52."""
    largest = float(weight.max(initial=0.0))
    if largest < _SCALE and bool(np.all(weight == np.rint(weight))):
        return 1.0
    if not np.isfinite(largest) or largest > 1e300 or largest < 1e-290:
        raise DemandError(f"a weight of {largest}: give demands between 1e-290 and 1e300 bytes")
    return float(2.0 ** np.floor(np.log2(_SCALE / largest)))


def _prepare(nodes: int, one: Integers, other: Integers, whole: Integers) -> Any:
    """Return the state before the first stage: nobody matched, duals at half of the heaviest edge."""
    from lightbed.compiled import AVAILABLE
    from testbed.design.matching.state import State

    tail, head = np.concatenate([one, other]), np.concatenate([other, one])
    doubled = 2 * np.concatenate([whole, whole])
    order = np.lexsort((head, tail))
    dual = np.zeros(nodes, dtype=np.int64)
    np.maximum.at(dual, tail, doubled // 2)
    ids = np.arange(2 * nodes, dtype=np.int64)
    spare = np.concatenate([ids[: nodes - 1 : -1], [nodes]])
    stamp = np.zeros(2 * nodes + 1, dtype=np.int64)
    columns: tuple[Any, ...] = (
        np.searchsorted(tail[order], np.arange(nodes + 1)).astype(np.int64),
        tail[order],
        head[order],
        doubled[order],
        dual,
        np.full(nodes, -1),
        ids[:nodes].copy(),
        np.full(nodes, -1),
        ids.copy(),
        ids.copy(),
        np.zeros(2 * nodes, dtype=np.int64),
        ids.copy(),
        np.full(2 * nodes, -1),
        *(np.full(2 * nodes, -1) for _ in range(5)),
        *(np.zeros(2 * nodes, dtype=np.int64) for _ in range(4)),
        stamp,
        spare,
    )
    # The interpreter is faster on lists, the compiler needs arrays.
    return State(*((column if AVAILABLE else column.tolist()) for column in columns))


def _dual_sum(state: Any, nodes: int) -> float:
    """Sum of the duals: what no matching outweighs (LP duality), in doubled weights."""
    total = sum(int(dual) for dual in state.dual)
    unused = {int(blossom) for blossom in state.spare[: int(state.spare[-1])]}
    for blossom in range(nodes, 2 * nodes):
        if blossom not in unused and state.z[blossom]:
            total += int(state.z[blossom]) * ((_size(state, blossom) - 1) // 2)
    return float(total)


def _size(state: Any, blossom: int) -> int:
    node, size = state.leaf_head[blossom], 1
    while node != state.leaf_tail[blossom]:
        node = state.leaf_next[node]
        size += 1
    return size
