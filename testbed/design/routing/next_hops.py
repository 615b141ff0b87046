"""Next-hop table: the link from every node towards every other node, for labs too large to store every path.

Forwarding is by destination, as in `routes.find_routes`, and on shortest paths. If several links are on shortest paths,
the sum of node and destination selects one, which spreads the load without counting it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from testbed.design.topology.hops import Edge, make_hop_table, make_target_table
from testbed.errors import TopologyError

#: Limit of links of a node, because a set of them is a bit mask in one 64-bit word.
_MAX_LINKS = 62


@dataclass(frozen=True, slots=True, eq=False)
class NextHops:
    """Next hops of a graph: node v sends towards t on its link `next_slots[v, t]`.

    `neighbours[v, k]` is the node to which link k of node v leads. `hops[s, t]` is the length of the path.
    """

    neighbours: NDArray[np.int64]
    next_slots: NDArray[np.uint8]
    hops: NDArray[np.int16]

    @property
    def max_link_count(self) -> int:
        """Maximum number of links of a node."""
        return int(self.neighbours.shape[1])

    def find_path(self, source: int, target: int) -> tuple[int, ...]:
        """Return the nodes from `source` to `target`, both included."""
        nodes = [source]
        while nodes[-1] != target:
            nodes.append(int(self.neighbours[nodes[-1], self.next_slots[nodes[-1], target]]))
        return tuple(nodes)

    def compute_loads(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the load of each link, shape (n, links per node), if each s sends `weights[s, t]` to each t."""
        load_by_link = np.zeros(self.neighbours.shape)
        arriving_load = weights.astype(np.float64)
        for distance in range(int(self.hops.max()), 0, -1):
            from_nodes, to_nodes = np.nonzero(self.hops == distance)
            carried_load, slot = arriving_load[from_nodes, to_nodes], self.next_slots[from_nodes, to_nodes]
            np.add.at(load_by_link, (from_nodes, slot), carried_load)
            np.add.at(arriving_load, (self.neighbours[from_nodes, slot], to_nodes), carried_load)
        return load_by_link


def compute_next_hops(nodes: int, edges: Sequence[Edge]) -> NextHops:
    """Return the table for a graph. `edges` are directed, and list each parallel edge.

    Raises `TopologyError` for a pair without a path, and for a node with more than 62 links.
    """
    from testbed.design.routing.path_search import choose_links

    neighbours, hops = make_target_table(nodes, edges), make_hop_table(nodes, edges)
    if neighbours.shape[1] > _MAX_LINKS:
        raise TopologyError(
            f"{neighbours.shape[1]} links at one node: next hops are kept for at most {_MAX_LINKS}"
        )
    if hops.min() < 0:
        source, target = np.argwhere(hops < 0)[0]
        raise TopologyError(
            f"node {source} has no path to node {target}: the topology is not connected; add links between its parts"
        )
    next_slots = np.zeros((nodes, nodes), dtype=np.uint8)
    workspace = np.zeros(nodes, dtype=np.int32), np.zeros(nodes, dtype=np.int64)
    choose_links(neighbours, hops, next_slots, *workspace)
    return NextHops(neighbours, next_slots, hops)
