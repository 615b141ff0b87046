"""Distances of nodes: hops, diameter and mean over all ordered pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from testbed.design.model import Topology
from testbed.design.topology.hops import hop_table
from testbed.errors import TopologyError


def distances(topology: Topology) -> NDArray[np.int64]:
    """Return hops from node s (row) to node t (column), shape (n, n); -1 where there is no path."""
    return hop_table(topology.nodes, topology.edges).astype(np.int64)


def diameter(topology: Topology) -> int:
    """Return hops between the two nodes that are farthest apart. Raises `TopologyError` when not connected."""
    return int(_connected_distances(topology).max())


def mean_hops(topology: Topology) -> float:
    """Return mean hops over all ordered pairs of different nodes. Raises `TopologyError` when not connected."""
    pairs = topology.nodes * (topology.nodes - 1)
    return 0.0 if pairs == 0 else float(_connected_distances(topology).sum() / pairs)


def _connected_distances(topology: Topology) -> NDArray[np.int64]:
    hops = distances(topology)
    if hops.min() < 0:
        source, target = np.argwhere(hops < 0)[0]
        raise TopologyError(
            f"node {source} has no path to node {target}: the topology is not connected; add links between its parts"
        )
    return hops
