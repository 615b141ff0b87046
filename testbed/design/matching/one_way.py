"""The one-way form: a heaviest set of arcs in which nobody sends twice and nobody receives twice."""

from __future__ import annotations

import numpy as np

from testbed.design.matching.exact import Floats, Integers, match_edges


def assign_edges(nodes: int, source: Integers, target: Integers, weight: Floats) -> Integers:
    """Return to whom each node sends, -1 for nobody: the heaviest assignment of the given arcs, exact.

    Every node is split into a sender and a receiver (the bipartite double cover), where a matching
    is such an assignment.

    >>> assign_edges(3, np.array([0, 1, 0]), np.array([1, 2, 2]), np.array([4.0, 3.0, 6.0])).tolist()
    [1, 2, -1]
    """
    apart = source != target
    sent = match_edges(2 * nodes, source[apart], target[apart] + nodes, weight[apart]).mate[:nodes]
    return np.where(sent >= 0, sent - nodes, -1)
