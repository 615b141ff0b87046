"""A matching of dense demands among many nodes, and the proof of how good it is.

`priced` in short: match exactly among the heaviest pairs of every node only. The duals of that answer are prices
of the nodes. A pair left out can matter only when it is worth more than the prices of its two nodes; raising
the prices until no pair is gives an upper bound on every matching (LP duality). While the matching weighs
less than the wanted part of the bound, the pairs that beat their prices most are taken in, those among nodes without
a partner too, twice as many each round, and it is matched again. Once nothing beats its price, the answer is exact.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from testbed.design.matching.exact import Floats, Matching, match_edges

#: Pairs of every node that are looked at first; each round takes in twice as many.
_PAIRS_PER_NODE = 8


def match_priced(weights: Floats, *, wanted: float = 0.9) -> Matching:
    """Return a matching of the symmetric `weights`, shape (n, n), that weighs at least `wanted` of the heaviest.

    `bound` is what no matching outweighs: `weight / bound` is the part that was proven, at least `wanted`.
    """
    nodes = len(weights)
    count = _PAIRS_PER_NODE
    taken = _heaviest_of_each(weights, count)
    while True:
        one, other = np.nonzero(np.triu(taken, 1))
        found = match_edges(nodes, one, other, weights[one, other])
        excess = weights - found.dual[:, np.newaxis] - found.dual[np.newaxis, :]
        excess[taken] = 0.0  # these are proven already, and blossoms may hold them down
        np.fill_diagonal(excess, 0.0)
        proven = found._replace(bound=_bound(found, excess))
        if found.weight >= wanted * proven.bound or excess.max(initial=0.0) <= 0:
            return proven
        alone = found.mate < 0
        among_alone = np.where(alone[:, np.newaxis] & alone, weights, 0.0)
        taken |= _heaviest_of_each(excess, count) | _heaviest_of_each(among_alone, count)
        count *= 2


def _bound(found: Matching, excess: Floats) -> float:
    """Return the sum of duals when each node's price is raised by half of the most that it is beaten by."""
    raised: Floats = np.maximum(excess.max(axis=1, initial=0.0), 0.0)
    return found.bound + float(raised.sum()) / 2


def _heaviest_of_each(weights: Floats, count: int) -> NDArray[np.bool_]:
    """Return which pairs are among the heaviest `count` of either node; of equals those nearest ahead on Z_n."""
    nodes = len(weights)
    ahead = (np.arange(nodes)[:, np.newaxis] + np.arange(1, nodes)) % nodes
    turned = np.take_along_axis(weights, ahead, axis=1)
    best = np.argsort(-turned, axis=1, kind="stable")[:, : min(count, nodes - 1)]
    chosen = np.take_along_axis(ahead, best, axis=1)
    marks = np.zeros((nodes, nodes), dtype=bool)
    np.put_along_axis(marks, chosen, values=True, axis=1)
    marks &= weights > 0
    return marks | marks.T
