"""What a wiring should reach: link loads, bus bandwidth limits and times of ring AllReduce.

Everything is counted on the links that the rings really use, relays included; the flow model behind
is `sim.models.network`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from sim.models import network as flow
from sim.models.network import Network, RingTraffic
from testbed.design.model import Link, RingOrder, Routes, Wiring
from testbed.design.routing.routes import ring_links
from testbed.errors import TopologyError

__all__ = [
    "Network",
    "Pair",
    "allreduce_time_s",
    "bus_bandwidth_mbps",
    "exchange_limit_mbps",
    "exchange_loads",
    "link_limit_mbps",
    "link_loads",
    "ring_paths",
    "ring_traffic",
]

Pair = tuple[int, int]
"""Source and target node."""
RingPaths = tuple[tuple[Link, ...], ...]


def ring_paths(wiring: Wiring, routes: Routes, rings: Sequence[RingOrder]) -> tuple[RingPaths, ...]:
    """For each ring the links from every position to the next; equal rings take different parallel links."""
    seen = Counter[RingOrder]()
    paths = []
    for ring in rings:
        paths.append(ring_links(wiring, ring, routes, copy=seen[ring]))
        seen[ring] += 1
    return tuple(paths)


def link_loads(wiring: Wiring, routes: Routes, rings: Sequence[RingOrder]) -> Counter[Link]:
    """How many ring hops pass over each link; 1 everywhere means that the rings share nothing."""
    return Counter(link for ring in ring_paths(wiring, routes, rings) for path in ring for link in path)


def link_limit_mbps(wiring: Wiring, routes: Routes, rings: Sequence[RingOrder], rate_mbps: float) -> float:
    """The bus bandwidth that the links allow to a large AllReduce split evenly over `rings`.

    Rings that share no link reach their number times `rate_mbps`, the wire rate of a link.
    Raises `TopologyError` without rings.
    """
    if not rings:
        raise TopologyError("no rings, so no link limit: choose rings that fit the group (rings_of)")
    traffic = ring_traffic(wiring, routes, rings, size_bytes=1.0)
    return flow.bus_bandwidth_limit_mbps(traffic, Network(rate_mbps, efficiency=1.0))


def exchange_loads(routes: Routes, pairs: Sequence[Pair]) -> dict[Link, float]:
    """What an exchange puts on each link, in tensors of a node: each is split evenly over the node's targets."""
    targets = Counter(source for source, _ in pairs)
    loads: dict[Link, float] = {}
    for source, target in pairs:
        for link in routes.path(source, target):
            loads[link] = loads.get(link, 0.0) + 1 / targets[source]
    return loads


def exchange_limit_mbps(routes: Routes, pairs: Sequence[Pair], rate_mbps: float) -> float:
    """A node's tensor over the time that the fullest link needs in an exchange of large tensors.

    Raises `TopologyError` without pairs.
    """
    if not pairs:
        raise TopologyError("no pairs, so no link limit: name at least one (source, target)")
    return rate_mbps / max(exchange_loads(routes, pairs).values())


def allreduce_time_s(
    wiring: Wiring, routes: Routes, rings: Sequence[RingOrder], size_bytes: int, network: Network
) -> float:
    """Estimated time of an AllReduce of `size_bytes` in every group of the rings, groups side by side.

    Raises `TopologyError` without rings.
    """
    if not rings:
        raise TopologyError("no rings to run the AllReduce on: choose rings that fit the group (rings_of)")
    return flow.allreduce_time_s(ring_traffic(wiring, routes, rings, size_bytes), network)


def bus_bandwidth_mbps(size_bytes: int, ranks: int, time_s: float) -> float:
    """nccl-tests' bus bandwidth of an AllReduce: size / time * 2(n-1)/n.

    >>> bus_bandwidth_mbps(1_000_000, 2, 0.008)
    1000.0
    """
    return size_bytes * 8 / time_s * 2 * (ranks - 1) / ranks / 1e6


def ring_traffic(
    wiring: Wiring, routes: Routes, rings: Sequence[RingOrder], size_bytes: float
) -> tuple[RingTraffic, ...]:
    """The rings as the flow model takes them: links by number, each group's tensor split evenly."""
    number = {link: index for index, link in enumerate(sorted(wiring.links))}
    sharing = Counter(frozenset(ring.order) for ring in rings)

    def traffic() -> Iterator[RingTraffic]:
        for ring, paths in zip(rings, ring_paths(wiring, routes, rings), strict=True):
            numbered = tuple(tuple(number[link] for link in path) for path in paths)
            yield RingTraffic(ring.order, numbered, size_bytes / sharing[frozenset(ring.order)])

    return tuple(traffic())
