"""How far apart nodes are: hops, diameter and mean over all ordered pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from testbed.design.model import Topology
from testbed.design.strides import directed_strides, hop_distances
from testbed.errors import TopologyError


def distances(topology: Topology) -> NDArray[np.int64]:
    """Hops from node s (row) to node t (column), shape (n, n); -1 where there is no path."""
    row = _circulant_row(topology)
    if row is None:
        return _breadth_first(topology)
    offsets = np.arange(topology.nodes)
    table: NDArray[np.int64] = row[(offsets[np.newaxis, :] - offsets[:, np.newaxis]) % topology.nodes]
    return table


def diameter(topology: Topology) -> int:
    """Hops between the two nodes that are farthest apart. Raises `TopologyError` when not connected."""
    return int(_connected_distances(topology).max())


def mean_hops(topology: Topology) -> float:
    """Mean hops over all ordered pairs of different nodes. Raises `TopologyError` when not connected."""
    pairs = topology.nodes * (topology.nodes - 1)
    return float(_connected_distances(topology).sum() / pairs)


def _connected_distances(topology: Topology) -> NDArray[np.int64]:
    hops = distances(topology)
    if hops.min() < 0:
        source, target = np.argwhere(hops < 0)[0]
        raise TopologyError(
            f"node {source} has no path to node {target}: the topology is not connected; add links between its parts"
        )
    return hops


def _circulant_row(topology: Topology) -> NDArray[np.int64] | None:
    """Hops from node 0 when the edges are exactly the strides' (then one row says all), else None."""
    steps = directed_strides(topology.nodes, topology.strides, simplex=topology.simplex)
    edges = sorted((node, (node + step) % topology.nodes) for step in steps for node in range(topology.nodes))
    if topology.edges != tuple(edges):
        return None
    return np.asarray(hop_distances(topology.nodes, steps), dtype=np.int64)


def _breadth_first(topology: Topology) -> NDArray[np.int64]:
    """All searches at once: row s of `frontier` holds the nodes last reached from s."""
    adjacent = np.zeros((topology.nodes, topology.nodes), dtype=np.float32)
    for source, target in topology.edges:
        adjacent[source, target] = 1
    hops = np.where(np.eye(topology.nodes, dtype=bool), 0, -1).astype(np.int64)
    frontier = np.eye(topology.nodes, dtype=np.float32)
    level = 0
    while frontier.any():
        level += 1
        fresh = (frontier @ adjacent > 0) & (hops < 0)
        hops[fresh] = level
        frontier = fresh.astype(np.float32)
    return hops
