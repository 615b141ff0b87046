"""Sets of routes of a job, as planned, simulated and installed: up to four sets, with a weight per pair and set.

A set forwards by destination: a node's link towards a target depends only on the set and the target. So a host needs
one route for each other host and set. The first set has shortest paths between all pairs. The other sets have only the
paths that some pair uses, and their reverse paths, for acknowledgements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.design.model import Routes, Topology, Wiring
from testbed.design.topology.demand import Demand
from testbed.errors import TopologyError

MAX_SETS = 4
"""Maximum number of sets of routes: each set needs an address on every host."""


class PairRoute(NamedTuple):
    """Path of a pair in set `set_number`, as indices into `Topology.edges`.

    `weight` is the fraction of its bytes on it.
    """

    source: int
    target: int
    set_number: int
    weight: float
    path: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RouteSets:
    """Routes in several sets: in set c, node v sends towards t on edge `next_edge[c, t, v]`, or has no route if -1.

    `weight[c, s, t]` is the fraction of the bytes from s to t in set c; the weights of a pair sum to 1. `bound_bytes`
    is a lower bound on the fullest link of any routing of the same demand; 0 if unknown.
    """

    topology: Topology
    next_edge: NDArray[np.int64]
    weight: NDArray[np.float64]
    bound_bytes: float = 0.0

    @property
    def set_count(self) -> int:
        """Number of sets."""
        return len(self.weight)

    def __eq__(self, other: object) -> bool:
        """Compare topologies, paths and weights, but not the bound."""
        if not isinstance(other, RouteSets):
            return NotImplemented
        return self.topology == other.topology and list(self.list_routes()) == list(other.list_routes())

    def __hash__(self) -> int:
        """Return the hash of the topology."""
        return hash(self.topology)

    def find_path(self, source: int, target: int, set_number: int = 0) -> tuple[int, ...]:
        """Return the edges of the path from source to target in a set."""
        edges, path, node = self.topology.edges, [], source
        while node != target:
            path.append(int(self.next_edge[set_number, target, node]))
            node = edges[path[-1]][1]
        return tuple(path)

    def list_nodes(self, path: tuple[int, ...]) -> tuple[int, ...]:
        """Return the nodes that a path visits."""
        edges = self.topology.edges
        return (edges[path[0]][0], *(edges[edge][1] for edge in path))

    def list_routes(self) -> Iterator[PairRoute]:
        """Yield all routes of the first set, and the other routes that have a weight in either direction."""
        for source, target, set_number in np.argwhere(
            find_used_routes(self.weight).transpose(1, 2, 0)
        ).tolist():
            weight = float(self.weight[set_number, source, target])
            yield PairRoute(source, target, set_number, weight, self.find_path(source, target, set_number))

    def compute_link_bytes(self, demand: Demand | NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the bytes on each edge for the pairs of a demand, or for a matrix of bytes from row to column."""
        from testbed.design.routing.priced_trees import add_demand

        bytes_by_pair = (
            make_demand_matrix(demand) if isinstance(demand, Demand) else np.asarray(demand, dtype=np.float64)
        )
        load = np.zeros(len(self.topology.edges))
        head = np.array([edge[1] for edge in self.topology.edges], dtype=np.int64)
        add_demand(self.next_edge, self.weight, bytes_by_pair, head, load)
        return load

    def compute_gap(self, demand: Demand | NDArray[np.float64]) -> float:
        """Return the relative excess of the fullest link over the bound (0.02 is 2 %), or NaN without a bound."""
        fullest_bytes = float(self.compute_link_bytes(demand).max(initial=0.0))
        return fullest_bytes / self.bound_bytes - 1 if self.bound_bytes else float("nan")


def find_used_routes(weight: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return a mask of the routes in use, shape (sets, sources, targets).

    A route is in use if it has a weight in either direction, or belongs to the first set.
    """
    is_used: NDArray[np.bool_] = (weight > 0) | (weight > 0).transpose(0, 2, 1)
    is_used[0] = True
    is_used[:, np.eye(weight.shape[1], dtype=bool)] = False
    return is_used


def map_routes(routes: RouteSets, wiring: Wiring) -> tuple[Routes, ...]:
    """Return each set as routes over the links of a wiring, with parallel links in the order of their NICs.

    Raises `TopologyError` for a wiring with other links.
    """
    links = sorted(wiring.links, key=lambda link: (link.source.node, link.target.node, link))
    if [(link.source.node, link.target.node) for link in links] != sorted(routes.topology.edges):
        raise TopologyError("the routes are for other links than those of the wiring: route its own topology")
    return tuple(
        Routes(
            {
                (int(node), int(target)): links[next_edge[target, node]]
                for target, node in np.argwhere(next_edge >= 0)
            }
        )
        for next_edge in routes.next_edge
    )


def make_demand_matrix(demand: Demand) -> NDArray[np.float64]:
    """Return the bytes between pairs as a matrix, from row to column."""
    bytes_by_pair = np.zeros((demand.nodes, demand.nodes))
    bytes_by_pair[demand.source, demand.target] = demand.size_bytes
    return bytes_by_pair
