"""The best that any routing can do, by a linear programme: what planned routes are held against."""

from __future__ import annotations

import numpy as np
import pytest


def least_maximum(topology, demand):
    """Return the least load of the fullest link over all routings: flows towards each target are free."""
    optimize = pytest.importorskip("scipy.optimize", reason="scipy is the oracle here")
    sparse = pytest.importorskip("scipy.sparse", reason="scipy is the oracle here")
    nodes, links = topology.nodes, len(topology.edges)
    tail, head = np.array(topology.edges).T
    target, link = np.divmod(np.arange(nodes * links), links)
    leaves, arrives = tail[link] != target, head[link] != target
    rows = np.r_[(target * nodes + tail[link])[leaves], (target * nodes + head[link])[arrives]]
    columns = np.r_[np.flatnonzero(leaves), np.flatnonzero(arrives)]
    signs = np.r_[np.ones(leaves.sum()), -np.ones(arrives.sum())]
    flows = sparse.coo_matrix((signs, (rows, columns)), shape=(nodes**2, nodes * links + 1))
    size = np.zeros((nodes, nodes))
    size[demand.target, demand.source] = demand.size_bytes / demand.size_bytes.max()
    carried = sparse.coo_matrix((np.ones(nodes * links), (link, np.arange(nodes * links))))
    full = sparse.hstack([carried, -np.ones((links, 1))])
    cost = np.r_[np.zeros(nodes * links), 1.0]
    best = optimize.linprog(
        cost, A_ub=full, b_ub=np.zeros(links), A_eq=flows, b_eq=size.ravel(), method="highs-ipm"
    )
    return best.fun * demand.size_bytes.max()
