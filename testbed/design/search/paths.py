"""The paths from every server to every other that the closed form puts bytes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sim.models.network.fabrics.circulants import ROUTE_SETS, circulant
from testbed.design.fabrics.builders import ring_strides
from testbed.design.model import Topology
from testbed.design.routing.next_hops import next_hops
from testbed.design.topology.circulants import circulant_edges
from testbed.design.topology.strides import directed_strides

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

_CIRCULANTS = 8
"""So many are remembered: topologies that differ in their links for pairs are not circulants."""


@dataclass(frozen=True, slots=True, eq=False)
class Paths:
    """Paths over a topology, in `sets` among which what is sent chooses, as with the simulator's fabric.

    In set c that of the pair s, t is `links[first[p]:first[p + 1]]` with p = (c * n + s) * n + t. `byte_s` are
    seconds a byte on each link, parallel links being one; `strides` those over the positions of a group on which its
    AllReduce runs as rings.
    """

    nodes: int
    sets: int
    first: Integers
    links: Integers
    byte_s: Floats
    strides: Callable[[Sequence[int]], tuple[int, ...]]

    def seconds(
        self, source: Integers, target: Integers, choice: Integers, size_bytes: Floats
    ) -> tuple[Floats, int]:
        """Return what each link needs for these bytes, and the links of the longest path."""
        from testbed.design.search.recurrence import add_loads

        load = np.zeros(self.byte_s.size)
        longest = add_loads(
            self.nodes, source, target, choice % self.sets, size_bytes, self.first, self.links, load
        )
        return load * self.byte_s, int(longest)


def paths_over(topology: Topology, rate_gbps: float) -> Paths:
    """Return paths of a topology: as the simulator routes on a circulant, by the next-hop table on any other graph."""

    def strides(members: Sequence[int]) -> tuple[int, ...]:
        return ring_strides(topology, members)

    nodes = topology.nodes
    if nodes == 1:
        nothing = np.zeros(0, dtype=np.int64)
        return Paths(1, 1, np.zeros(2, dtype=np.int64), nothing, np.zeros(0), strides)
    steps = directed_strides(nodes, topology.strides, simplex=topology.simplex)
    if topology.edges == circulant_edges(nodes, steps):
        first, links, byte_s = _on_circulant(nodes, steps, rate_gbps)
        return Paths(nodes, ROUTE_SETS, first, links, byte_s, strides)
    return _by_next_hops(topology, rate_gbps, strides)


@lru_cache(_CIRCULANTS)
def _on_circulant(nodes: int, steps: tuple[int, ...], rate_gbps: float) -> tuple[Integers, Integers, Floats]:
    """Return the simulator's own routes, all sets of them; and the seconds a byte takes on each link."""
    fabric = circulant(nodes, steps, rate_gbps)
    choice, pair = np.divmod(np.arange(ROUTE_SETS * nodes**2), nodes**2)
    source, target = np.divmod(pair, nodes)
    first, links = fabric.routes(source, target, choice)
    return first.astype(np.int64), links, 8 / fabric.capacity_bps


def _by_next_hops(
    topology: Topology, rate_gbps: float, strides: Callable[[Sequence[int]], tuple[int, ...]]
) -> Paths:
    from testbed.design.search.recurrence import walk

    nodes, table = topology.nodes, next_hops(topology.nodes, topology.edges)
    ends = np.arange(nodes)[:, None] * nodes + table.slots
    _, number, copies = np.unique(ends, return_inverse=True, return_counts=True)
    first = np.concatenate([[0], np.cumsum(table.hops.ravel(), dtype=np.int64)])
    links = np.zeros(first[-1], dtype=np.int64)
    walk(table.slots, table.choice, number.reshape(ends.shape), first, links)
    return Paths(nodes, 1, first, links, 8 / (copies * rate_gbps * 1e9), strides)
