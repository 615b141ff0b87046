"""AllReduce on rings: link loads, bandwidth limits, and times in closed form.

Figures cover all links that the rings use, including links to and from hosts that forward.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from sim.models import network as flow
from sim.models.network import Network, RingTraffic
from sim.models.network.allreduce import parts
from sim.models.network.taskgraph import TaskGraph
from testbed.design.collectives.kind import Collective, CollectiveLayout
from testbed.design.collectives.performance import Steps
from testbed.design.model import Link, RingOrder, Routes, Wiring
from testbed.design.routing.routes import list_ring_links
from testbed.errors import TopologyError

RingPaths = tuple[tuple[Link, ...], ...]


def ring_paths(wiring: Wiring, routes: Routes, rings: Sequence[RingOrder]) -> tuple[RingPaths, ...]:
    """Return the links of each ring, from each position to the next. Equal rings use different parallel links."""
    copies = Counter[RingOrder]()
    paths = []
    for ring in rings:
        paths.append(list_ring_links(wiring, ring, routes, copy=copies[ring]))
        copies[ring] += 1
    return tuple(paths)


def link_loads(wiring: Wiring, routes: Routes, rings: Sequence[RingOrder]) -> Counter[Link]:
    """Return the number of ring hops on each link. If all are 1, the rings share no link."""
    return Counter(link for ring in ring_paths(wiring, routes, rings) for path in ring for link in path)


def link_limit_mbps(wiring: Wiring, routes: Routes, rings: Sequence[RingOrder], rate_mbps: float) -> float:
    """Return the bus bandwidth that the links allow for a large AllReduce split evenly over `rings`.

    If n rings share no link, they reach n times `rate_mbps`, the wire rate of a link.
    Raises `TopologyError` without rings.
    """
    if not rings:
        raise TopologyError("no rings, so no link limit: choose rings that fit the group (rings_of)")
    traffic = ring_traffic(wiring, routes, rings, size_bytes=1.0)
    return flow.bus_bandwidth_limit_mbps(traffic, Network(rate_mbps, efficiency=1.0))


def allreduce_time_s(
    wiring: Wiring, routes: Routes, rings: Sequence[RingOrder], size_bytes: int, network: Network
) -> float:
    """Return the estimated seconds of an AllReduce of `size_bytes` in every group at the same time.

    Raises `TopologyError` without rings.
    """
    if not rings:
        raise TopologyError("no rings to run the AllReduce on: choose rings that fit the group (rings_of)")
    return flow.allreduce_time_s(ring_traffic(wiring, routes, rings, size_bytes), network)


def bus_bandwidth_mbps(size_bytes: int, ranks: int, time_s: float) -> float:
    """Return the bus bandwidth of an AllReduce as nccl-tests defines it: size / time * 2(n-1)/n.

    >>> bus_bandwidth_mbps(1_000_000, 2, 0.008)
    1000.0
    """
    return size_bytes * 8 / time_s * 2 * (ranks - 1) / ranks / 1e6


def ring_traffic(
    wiring: Wiring, routes: Routes, rings: Sequence[RingOrder], size_bytes: float
) -> tuple[RingTraffic, ...]:
    """Return the rings for the flow model, with numbered links. Each group's tensor is split evenly over its rings."""
    number = {link: index for index, link in enumerate(sorted(wiring.links))}
    sharing = Counter(frozenset(ring.order) for ring in rings)

    def traffic() -> Iterator[RingTraffic]:
        for ring, paths in zip(rings, ring_paths(wiring, routes, rings), strict=True):
            numbered = tuple(tuple(number[link] for link in path) for path in paths)
            yield RingTraffic(ring.order, numbered, size_bytes / sharing[frozenset(ring.order)])

    return tuple(traffic())


def allreduce_graph(
    nodes: int, rings: Sequence[RingOrder], size_bytes: int, iterations: int = 1
) -> TaskGraph:
    """Return `iterations` consecutive AllReduces; the tensor of a group is split evenly over its rings."""
    sharing = Counter(frozenset(ring.order) for ring in rings)
    steps = Steps(nodes)
    for _ in range(iterations):
        used_shares: Counter[frozenset[int]] = Counter()
        for ring in rings:
            members = frozenset(ring.order)
            share = parts(size_bytes, sharing[members])[used_shares[members]]
            used_shares[members] += 1
            steps.add(
                ring.order,
                steps.job.allreduce(ring.order, share, after=steps.find_previous_tasks(ring.order)),
            )
        steps.end_iteration()
    return steps.job.build()


def _allreduce_bus_factor(ranks: int) -> float:
    return 2 * (ranks - 1) / ranks


def _compute_link_shares(wiring: Wiring, routes: Routes, layout: CollectiveLayout) -> Mapping[Link, float]:
    share = _allreduce_bus_factor(layout.ranks) / layout.rings_per_node
    loads = link_loads(wiring, routes, layout.rings)
    return {link: crossings * share for link, crossings in loads.items()}


ALL_REDUCE = Collective(
    "all_reduce",
    is_one_of=lambda layout: not layout.pairs,
    bus_factor=_allreduce_bus_factor,
    link_shares=_compute_link_shares,
    limit_mbps=lambda wiring, routes, layout, rate: link_limit_mbps(wiring, routes, layout.rings, rate),
    time_s=lambda wiring, routes, layout, size, rate, _mtu: allreduce_time_s(
        wiring, routes, layout.rings, size, Network(rate)
    ),
    graph=lambda nodes, layout, size, iterations: allreduce_graph(nodes, layout.rings, size, iterations),
    on_gpus=True,
)
