"""Distances of nodes: hops, diameter and mean over all ordered pairs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.design.model import Topology
from testbed.design.topology.hops import count_hops, hop_table
from testbed.errors import TopologyError


class Distances(NamedTuple):
    """Diameter and mean hops of a topology.

    `sampled_from` is the number of nodes that hops were counted from, None where these speak for all: the diameter is
    that of the sample, and the true one may be larger.
    """

    diameter: int
    mean_hops: float
    sampled_from: int | None = None


def distances(topology: Topology) -> NDArray[np.int64]:
    """Return hops from node s (row) to node t (column), shape (n, n); -1 where there is no path."""
    return hop_table(topology.nodes, topology.edges).astype(np.int64)


def measure_distances(topology: Topology) -> Distances:
    """Return diameter and mean hops, exact or from a sample of nodes: see `count_hops`.

    Raises `TopologyError` when not connected.
    """
    nodes, edges = topology.nodes, topology.edges
    if nodes < 2:
        return Distances(0, 0.0)
    sources, hops = count_hops(nodes, edges)
    if hops.min() < 0:
        source, target = np.argwhere(hops < 0)[0]
        raise TopologyError(
            f"node {sources[source]} has no path to node {target}: the topology is not connected; "
            "add links between its parts"
        )
    mean = float(hops.sum(dtype=np.int64) / (len(hops) * (nodes - 1)))
    is_sampled = 1 < len(sources) < nodes
    return Distances(int(hops.max()), mean, len(sources) if is_sampled else None)


def diameter(topology: Topology) -> int:
    """Return hops between the two nodes that are farthest apart, as `measure_distances`."""
    return measure_distances(topology).diameter


def mean_hops(topology: Topology) -> float:
    """Return mean hops over all ordered pairs of different nodes, as `measure_distances`."""
    return measure_distances(topology).mean_hops
