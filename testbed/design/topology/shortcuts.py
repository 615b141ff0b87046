"""Links across a graph: a matching that brings its nodes near to each other, for NICs that are left over.

Antipodal links of a ring halve its distances at best. A random matching brings them down to the logarithm of the
nodes (Bollobas and Chung, 1988); of some random ones the best is taken.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from testbed.design.topology.hops import count_hops

Edge = tuple[int, int]

MUCH_NEARER = 0.8
"""Shortcuts are taken where mean hops fall below this part: small graphs stay regular."""


def shortcuts(nodes: int, edges: Sequence[Edge], alone: Sequence[int]) -> tuple[Edge, ...]:
    """Return duplex links among the nodes `alone`, an even number of them, each in one: the best of some matchings.

    `edges` are directed and connect all nodes. Matchings that repeat a link lose to those that do not. The same
    arguments give the same links.
    """
    chance, tried = np.random.default_rng(nodes), []
    for _ in range(_tries(nodes)):
        ends = chance.permutation(np.asarray(alone, dtype=np.int64)).reshape(2, -1)
        links = tuple(sorted((int(min(pair)), int(max(pair))) for pair in ends.T))
        tried.append((mean_distance(nodes, edges, links), links))
    return min(tried)[1]


def mean_distance(nodes: int, edges: Sequence[Edge], links: Sequence[Edge]) -> float:
    """Return the mean hops from a node to all, itself included, with these duplex links, too; see `count_hops`."""
    both = [*edges, *links, *((other, one) for one, other in links)]
    _, hops = count_hops(nodes, both)
    return float(hops.mean(dtype=np.float64))


def _tries(nodes: int) -> int:
    """Return how many matchings there is time for: about a second."""
    return max(2, min(200, 4_000_000 // nodes**2))
