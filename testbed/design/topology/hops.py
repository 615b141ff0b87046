"""Hop counts between all nodes of a graph, their mean, and the diameter.

Sets of nodes are bits of 64-bit words, so a graph of 4096 nodes takes about a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.design.model import Topology
from testbed.design.topology.strides import compute_hop_distances
from testbed.errors import TopologyError

Edge = tuple[int, int]

_WORD_BITS = 64
MAX_EXACT_NODES = 4096
"""Up to this number of nodes, hops are counted from every node. Larger graphs use a sample of `SAMPLED_NODES`."""
SAMPLED_NODES = 64


def make_target_table(nodes: int, edges: Sequence[Edge]) -> NDArray[np.int64]:
    """Return the targets of each node's links in order, shape (n, maximum links); -1 where a node has fewer links.

    >>> make_target_table(3, [(0, 1), (0, 2), (1, 0)]).tolist()
    [[1, 2], [0, -1], [-1, -1]]
    """
    edge_table = np.asarray(sorted(edges), dtype=np.int64).reshape(-1, 2)
    first_links = np.searchsorted(edge_table[:, 0], np.arange(nodes + 1))
    targets = np.full((nodes, max(int(np.diff(first_links).max(initial=0)), 1)), -1, dtype=np.int64)
    targets[edge_table[:, 0], np.arange(len(edge_table)) - first_links[edge_table[:, 0]]] = edge_table[:, 1]
    return targets


def make_hop_table(nodes: int, edges: Sequence[Edge]) -> NDArray[np.int16]:
    """Return the hops from each node (row) to each node (column), shape (n, n); -1 where there is no path.

    >>> make_hop_table(3, [(0, 1), (1, 2), (2, 0)]).tolist()
    [[0, 1, 2], [2, 0, 1], [1, 2, 0]]
    """
    strides = find_strides(nodes, edges)
    if strides is not None:
        row = np.array(compute_hop_distances(nodes, strides), dtype=np.int16)
        windows = np.lib.stride_tricks.sliding_window_view(np.tile(row, 2)[:-1], nodes)
        return np.ascontiguousarray(np.roll(windows[::-1], 1, axis=0))
    hops = np.zeros((nodes, nodes), dtype=np.int16)
    for reach_bits in _spread_reach(nodes, edges):
        is_reached = np.unpackbits(reach_bits.view(np.uint8), axis=1, count=nodes, bitorder="little")
        hops += 1
        hops -= is_reached
    # An unreachable node was counted as missing at every level: mark it with -1.
    hops[is_reached == 0] = -1
    return hops


def count_hops_from_sources(nodes: int, edges: Sequence[Edge]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the nodes from which hops are counted, shape (s,), and their rows of the hop table, shape (s, n).

    In a circulant all nodes are alike, so node 0 suffices. Other graphs use all nodes, or a fixed sample of
    `SAMPLED_NODES` if there are more than `MAX_EXACT_NODES`.
    """
    if find_strides(nodes, edges) is not None:
        sources = np.zeros(1, dtype=np.int64)
    elif nodes <= MAX_EXACT_NODES:
        return np.arange(nodes), make_hop_table(nodes, edges).astype(np.int32)
    else:
        sources = np.sort(np.random.default_rng(nodes).choice(nodes, SAMPLED_NODES, replace=False))
    return sources, count_hops_from(sources, nodes, edges)


def count_hops_from(sources: NDArray[np.int64], nodes: int, edges: Sequence[Edge]) -> NDArray[np.int32]:
    """Return the hops from up to 64 nodes (rows) to all nodes (columns); -1 where there is no path.

    >>> count_hops_from(np.array([1]), 3, [(0, 1), (1, 2), (2, 0)]).tolist()
    [[2, 0, 1]]
    """
    target_table = make_target_table(nodes, edges)
    source_bits = np.left_shift(np.uint64(1), np.arange(len(sources), dtype=np.uint64))
    hops = np.full((len(sources), nodes), -1, dtype=np.int32)
    # Bit masks per node: the sources that have reached it, and the sources that reach it with the next hop.
    arrived_sources, arriving_sources = np.zeros((2, nodes), dtype=np.uint64)
    frontier, new_sources, hop_count = sources, source_bits, 0
    while len(frontier):
        arrived_sources[frontier] |= new_sources
        row, column = np.nonzero(new_sources & source_bits[:, np.newaxis])
        hops[row, frontier[column]] = hop_count
        targets = target_table[frontier]
        np.bitwise_or.at(
            arriving_sources, targets[targets >= 0], np.repeat(new_sources, (targets >= 0).sum(axis=1))
        )
        frontier = np.unique(targets[targets >= 0])
        new_sources = arriving_sources[frontier] & ~arrived_sources[frontier]
        arriving_sources[frontier] = 0
        frontier, new_sources, hop_count = (
            frontier[new_sources != 0],
            new_sources[new_sources != 0],
            hop_count + 1,
        )
    return hops


def find_strides(nodes: int, edges: Sequence[Edge]) -> tuple[int, ...] | None:
    """Return the one-way strides of a circulant, or None for other graphs."""
    edge_table = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    strides = (edge_table[:, 1] - edge_table[:, 0]) % nodes
    order = np.lexsort((strides, edge_table[:, 0]))
    if len(edge_table) == 0 or len(edge_table) % nodes:
        return None
    strides_by_node = strides[order].reshape(nodes, -1)
    is_regular = edge_table[order, 0].reshape(nodes, -1) == np.arange(nodes)[:, np.newaxis]
    return (
        tuple(strides_by_node[0].tolist())
        if is_regular.all() and (strides_by_node == strides_by_node[0]).all()
        else None
    )


def _spread_reach(nodes: int, edges: Sequence[Edge]) -> Iterator[NDArray[np.uint64]]:
    """Yield a table for 0, 1, 2, ... hops: the bits of row s are the nodes within this distance of s."""
    target_table = make_target_table(nodes, edges)
    word_count = -(-nodes // _WORD_BITS)
    # Row n stays empty: slot -1 of a node with fewer links points to it.
    reach_bits = np.zeros((nodes + 1, word_count), dtype=np.uint64)
    node_numbers = np.arange(nodes)
    reach_bits[node_numbers, node_numbers // _WORD_BITS] = np.left_shift(
        np.uint64(1), (node_numbers % _WORD_BITS).astype(np.uint64)
    )
    while True:
        yield reach_bits[:nodes]
        next_reached = reach_bits.copy()
        for slot in range(target_table.shape[1]):
            next_reached[:nodes] |= reach_bits[target_table[:, slot]]
        if (next_reached == reach_bits).all():
            return
        reach_bits = next_reached


class Distances(NamedTuple):
    """Diameter and mean hops of a topology.

    `sampled_node_count` is the number of nodes from which hops were counted, or None for an exact result. The diameter
    of a sample may be smaller than the true diameter.
    """

    diameter: int
    mean_hops: float
    sampled_node_count: int | None = None


def make_distance_matrix(topology: Topology) -> NDArray[np.int64]:
    """Return the hops from each node (row) to each node (column), shape (n, n); -1 where there is no path."""
    return make_hop_table(topology.nodes, topology.edges).astype(np.int64)


def measure_distances(topology: Topology) -> Distances:
    """Return the diameter and mean hops, exact or from a sample of nodes, see `count_hops_from_sources`.

    Raises `TopologyError` if the topology is not connected.
    """
    nodes, edges = topology.nodes, topology.edges
    if nodes < 2:
        return Distances(0, 0.0)
    sources, hops = count_hops_from_sources(nodes, edges)
    if hops.min() < 0:
        source, target = np.argwhere(hops < 0)[0]
        raise TopologyError(
            f"node {sources[source]} has no path to node {target}: the topology is not connected; "
            "add links between its parts"
        )
    mean = float(hops.sum(dtype=np.int64) / (len(hops) * (nodes - 1)))
    is_sampled = 1 < len(sources) < nodes
    return Distances(int(hops.max()), mean, len(sources) if is_sampled else None)


def compute_diameter(topology: Topology) -> int:
    """Return the hops between the two most distant nodes, as `measure_distances` does."""
    return measure_distances(topology).diameter


def compute_mean_hops(topology: Topology) -> float:
    """Return the mean hops over all ordered pairs of different nodes, as `measure_distances` does."""
    return measure_distances(topology).mean_hops
