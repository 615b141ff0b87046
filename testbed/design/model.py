"""Planned network: nodes, NICs, one-way links, topologies and routes, and the valid range of link rates.

Nodes and NICs are numbered from 0. A link is an optical path in one direction, from the transmitter of one NIC to the
receiver of another. A duplex link consists of two links.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from testbed.errors import TopologyError

MIN_GBPS = 1e-6
MAX_GBPS = 1e6
"""Valid range of the rate of a link: a kilobit to a petabit per second."""


class Nic(NamedTuple):
    """Interface `index` of node `node`; both numbers start at 0."""

    node: int
    index: int  # type: ignore[assignment]  # the field hides the method tuple.index


class Link(NamedTuple):
    """A one-way optical path from the transmitter of `source` to the receiver of `target`."""

    source: Nic
    target: Nic


@dataclass(frozen=True, slots=True)
class Topology:
    """A direct-connect graph before it is wired: the links between nodes.

    `edges` are directed and sorted, with an entry for each parallel link. A duplex topology holds both directions.
    `strides` are the strides of the rings from which the topology was built: a ring of stride p links node i to node
    i+p. A duplex ring of n nodes also has the stride n-p, for the other direction; only the smaller of the two is
    listed.
    """

    nodes: int
    degree: int
    simplex: bool
    strides: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]

    @property
    def links(self) -> tuple[tuple[int, int], ...]:
        """If simplex, the directed edges. If duplex, each pair once, smaller node first."""
        if self.simplex:
            return self.edges
        return tuple(edge for edge in self.edges if edge[0] < edge[1])


@dataclass(frozen=True, slots=True)
class Wiring:
    """A topology assigned to NICs. Each NIC transmits on at most one link and receives on at most one link."""

    nodes: int
    degree: int
    simplex: bool
    links: tuple[Link, ...]

    @property
    def link_by_transmitter(self) -> Mapping[Nic, Link]:
        """The link that leaves each transmitter."""
        return {link.source: link for link in self.links}

    @property
    def link_by_receiver(self) -> Mapping[Nic, Link]:
        """The link that ends in each receiver."""
        return {link.target: link for link in self.links}


@dataclass(frozen=True, slots=True)
class Routes:
    """Destination-based forwarding: `first_link[(s, t)]` is the link on which s sends towards t.

    `path(s, t)` follows these links; the class does not check that they lead to t.
    """

    first_link: Mapping[tuple[int, int], Link]

    def path(self, source: int, target: int) -> tuple[Link, ...]:
        """Return the links of a packet from node `source` to node `target`, in order."""
        hops: list[Link] = []
        node = source
        while node != target:
            hops.append(self.first_link[node, target])
            node = hops[-1].target.node
        return tuple(hops)

    def count_hops(self, source: int, target: int) -> int:
        """Return the number of links of `path(source, target)`."""
        return len(self.path(source, target))


@dataclass(frozen=True, slots=True)
class RingOrder:
    """One ring of a collective: `order[k]` is the node at position k.

    The node at position k sends to the node at position k+1, whose number is higher by `stride` (modulo the number of
    nodes). The ring of a group of nodes contains only the nodes of that group.
    """

    stride: int
    order: tuple[int, ...]

    def find_position(self, node: int) -> int:
        """Return the position (rank) of a node in this ring. Raises `ValueError` for a node outside it."""
        return self.order.index(node)


def check_rate(rate_gbps: float) -> None:
    """Raise `TopologyError` unless the rate is from `MIN_GBPS` to `MAX_GBPS`."""
    if not MIN_GBPS <= rate_gbps <= MAX_GBPS:
        raise TopologyError(f"a link of {rate_gbps:g} Gbit/s: give {MIN_GBPS:g} to {MAX_GBPS:g} Gbit/s")
