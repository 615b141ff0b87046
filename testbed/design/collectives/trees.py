"""Double binary trees, relabelled by strides: trees of a collective on a circulant, like its rings.

Each of the two trees carries half of a tensor. A node that relays in one tree is a leaf in the other, so no node relays
twice (Sanders, Speck, Träff 2009). The positions of a tree follow a ring order: with stride p, node i*p is at position
i. Each stride gives trees over other links, so several pairs of trees can share a topology.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.models.network.allreduce import find_tree_parents
from testbed.design.model import RingOrder, Topology
from testbed.design.topology.strides import list_totient_strides, make_ring_order


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree over the members of a group: `edges` are (child, parent) pairs of nodes, sorted by child."""

    root: int
    edges: tuple[tuple[int, int], ...]

    @property
    def relays(self) -> frozenset[int]:
        """Nodes with children."""
        return frozenset(parent for _, parent in self.edges)


@dataclass(frozen=True, slots=True)
class DoubleTree:
    """Two trees over one ring order."""

    order: RingOrder
    first: Tree
    second: Tree

    def count_hops(self, hop_table: NDArray[np.int16]) -> int:
        """Return the total hops over the edges of both trees. `hop_table[s, t]` is the number of hops from s to t."""
        return int(
            sum(
                hop_table[child, parent] for tree in (self.first, self.second) for child, parent in tree.edges
            )
        )


def make_double_tree(node_count: int, stride: int, start_node: int = 0) -> DoubleTree:
    """Return the two trees of a stride over the group that contains `start_node`.

    With an even number of members, every node relays in at most one tree. With an odd number, the node at position 0
    may relay in both.

    >>> make_double_tree(4, 1).first.edges, make_double_tree(4, 1).second.edges
    (((1, 2), (2, 0), (3, 2)), ((0, 3), (2, 3), (3, 1)))
    """
    order = make_ring_order(node_count, stride, start_node)
    ring_nodes = order.order
    return DoubleTree(order, _make_tree(ring_nodes), _make_tree(ring_nodes[1:] + ring_nodes[:1]))


def make_double_trees(topology: Topology, group_size: int | None = None) -> tuple[DoubleTree, ...]:
    """Return a pair of trees for each stride that rings through a whole group, in every group of `group_size` nodes.

    If no stride of the topology rings through the group, use the smallest stride that does.
    """
    node_count = topology.nodes
    group_strides = list_totient_strides(node_count, group_size)
    strides = [stride for stride in dict.fromkeys(topology.strides) if stride in group_strides] or [
        group_strides[0]
    ]
    start_nodes = range(node_count // (group_size or node_count))
    return tuple(make_double_tree(node_count, stride, start) for stride in strides for start in start_nodes)


def find_shortest_stride(
    node_count: int, group_size: int, hop_table: NDArray[np.int16], strides: Iterable[int] = ()
) -> int:
    """Return the stride whose relabelled trees take the fewest hops, among `strides` or all strides of the group.

    The edges of a tree join positions that are 1, 2, 4, ... apart, so they need links of strides p, 2p, 4p, ...
    """
    candidates = tuple(strides) or list_totient_strides(node_count, group_size)
    return min(
        candidates, key=lambda stride: (make_double_tree(node_count, stride).count_hops(hop_table), stride)
    )


def measure_depth(tree: Tree) -> int:
    """Return the number of edges from the farthest node to the root: at most 1 + log2 of the members, rounded up.

    >>> measure_depth(make_double_tree(8, 3).first)
    3
    """
    parent_by_node = dict(tree.edges)

    def count_levels(node: int) -> int:
        return 0 if node == tree.root else 1 + count_levels(parent_by_node[node])

    return max((count_levels(child) for child in parent_by_node), default=0)


def _make_tree(ring_nodes: tuple[int, ...]) -> Tree:
    parents = find_tree_parents(len(ring_nodes))
    edges = (
        (ring_nodes[child_position], ring_nodes[parents[child_position]])
        for child_position in range(1, len(ring_nodes))
    )
    return Tree(ring_nodes[0], tuple(sorted(edges)))
