"""Routes of a job, as they are planned, simulated and installed: up to four sets, and what each pair sends on each.

A set forwards by destination: what a node sends on towards a target depends on the set and the target alone, so
that a host needs one route for each other host and set. The first set is complete, and its ways are shortest; the
others hold the ways that some pair uses, and the ways back, which acknowledgements take. Weights belong to a pair and
a set.
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

MOST_SETS = 4
"""Addresses of a host, and so sets of routes, at most."""


class PairRoute(NamedTuple):
    """`weight` of what `source` sends to `target` takes `path`, numbers of `Topology.edges`, in set `set`."""

    source: int
    target: int
    set: int
    weight: float
    path: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RouteSets:
    """`onward[c, t, v]` is the edge of `topology.edges` on which node v sends towards t in set c, -1 for none.

    `weight[c, s, t]` of what s sends to t takes set c; the weights of a pair sum to 1. `bound_bytes` is what the
    fullest link carries at least, however the demand that the routes were found for is routed; 0 when not known.
    """

    topology: Topology
    onward: NDArray[np.int64]
    weight: NDArray[np.float64]
    bound_bytes: float = 0.0

    @property
    def sets(self) -> int:
        """Number of sets."""
        return len(self.weight)

    def __eq__(self, other: object) -> bool:
        """Compare topologies and ways with their weights; the bound is not looked at."""
        if not isinstance(other, RouteSets):
            return NotImplemented
        return self.topology == other.topology and list(self.routes()) == list(other.routes())

    def __hash__(self) -> int:
        """Return the hash of the topology."""
        return hash(self.topology)

    def path(self, source: int, target: int, number: int = 0) -> tuple[int, ...]:
        """Return the edges from source to target in a set."""
        edges, found, node = self.topology.edges, [], source
        while node != target:
            found.append(int(self.onward[number, target, node]))
            node = edges[found[-1]][1]
        return tuple(found)

    def nodes_of(self, path: tuple[int, ...]) -> tuple[int, ...]:
        """Return the nodes that a path visits."""
        edges = self.topology.edges
        return (edges[path[0]][0], *(edges[edge][1] for edge in path))

    def routes(self) -> Iterator[PairRoute]:
        """Yield the ways of all pairs: those with a weight there or back, and all of the first set."""
        for source, target, number in np.argwhere(ways_of(self.weight).transpose(1, 2, 0)).tolist():
            weight = float(self.weight[number, source, target])
            yield PairRoute(source, target, number, weight, self.path(source, target, number))

    def link_bytes(self, demand: Demand | NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what each edge carries of a demand between pairs, or of bytes from row to column."""
        from testbed.design.routing.priced_trees import lay_all

        size = matrix_of(demand) if isinstance(demand, Demand) else np.asarray(demand, dtype=np.float64)
        load = np.zeros(len(self.topology.edges))
        head = np.array([edge[1] for edge in self.topology.edges], dtype=np.int64)
        lay_all(self.onward, self.weight, size, head, load)
        return load

    def gap(self, demand: Demand | NDArray[np.float64]) -> float:
        """Return how far the fullest link is above the bound, as a part of it; 0.02 is 2 %. NaN without a bound."""
        most = float(self.link_bytes(demand).max(initial=0.0))
        return most / self.bound_bytes - 1 if self.bound_bytes else float("nan")


def ways_of(weight: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return, by set, source and target, the ways that must exist for these weights."""
    there: NDArray[np.bool_] = (weight > 0) | (weight > 0).transpose(0, 2, 1)
    there[0] = True
    there[:, np.eye(weight.shape[1], dtype=bool)] = False
    return there


def routes_on(routes: RouteSets, wiring: Wiring) -> tuple[Routes, ...]:
    """Return each set on the links of a wiring of the topology; parallel links in the order of their NICs."""
    links = sorted(wiring.links, key=lambda link: (link.source.node, link.target.node, link))
    if [(link.source.node, link.target.node) for link in links] != sorted(routes.topology.edges):
        raise TopologyError("the routes are for other links than those of the wiring: route its own topology")
    return tuple(
        Routes(
            {
                (int(node), int(target)): links[onward[target, node]]
                for target, node in np.argwhere(onward >= 0)
            }
        )
        for onward in routes.onward
    )


def matrix_of(demand: Demand) -> NDArray[np.float64]:
    """Return the bytes between pairs, from row to column."""
    size = np.zeros((demand.nodes, demand.nodes))
    size[demand.source, demand.target] = demand.size_bytes
    return size
