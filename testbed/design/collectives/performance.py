"""Performance of a wiring: loads of links, limits of bandwidth, and times of collectives on wired hosts.

Everything is counted on the links that the rings really use, relays included. Two models of `sim.models.network` give
times: a closed form for AllReduce on rings, and the flow simulator for any task graph. In the latter a link carries
its wire rate less headers and framing, and iterations follow one another as the programs on the hosts run them: a
host begins the next one when it has done its part of the last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from sim.models import network as flow
from sim.models.network import Network, RingTraffic, wire_efficiency
from sim.models.network.allreduce import parts
from sim.models.network.execution import simulate
from sim.models.network.fabrics.cost import patch_panel_cost
from sim.models.network.fabrics.direct import next_links, path_router
from sim.models.network.fabrics.model import Fabric
from sim.models.network.latency import Latency
from sim.models.network.taskgraph import TaskGraph, TaskGraphBuilder
from testbed.design.model import Link, RingOrder, Routes, Wiring
from testbed.design.routing.routes import ring_links
from testbed.errors import TopologyError

__all__ = [
    "NAMESPACE_HOSTS",
    "Network",
    "Pair",
    "allreduce_graph",
    "allreduce_time_s",
    "bus_bandwidth_mbps",
    "exchange_graph",
    "exchange_limit_mbps",
    "exchange_loads",
    "hosts_fabric",
    "link_limit_mbps",
    "link_loads",
    "predicted_s",
    "ring_paths",
    "ring_traffic",
]

Pair = tuple[int, int]
"""Source and target node."""
RingPaths = tuple[tuple[Link, ...], ...]


def ring_paths(wiring: Wiring, routes: Routes, rings: Sequence[RingOrder]) -> tuple[RingPaths, ...]:
    """Return for each ring the links from every position to the next; equal rings take different parallel links."""
    seen = Counter[RingOrder]()
    paths = []
    for ring in rings:
        paths.append(ring_links(wiring, ring, routes, copy=seen[ring]))
        seen[ring] += 1
    return tuple(paths)


def link_loads(wiring: Wiring, routes: Routes, rings: Sequence[RingOrder]) -> Counter[Link]:
    """Return how many ring hops pass over each link; 1 everywhere means that the rings share nothing."""
    return Counter(link for ring in ring_paths(wiring, routes, rings) for path in ring for link in path)


def link_limit_mbps(wiring: Wiring, routes: Routes, rings: Sequence[RingOrder], rate_mbps: float) -> float:
    """Return the bus bandwidth that the links allow to a large AllReduce split evenly over `rings`.

    Rings that share no link reach their number times `rate_mbps`, the wire rate of a link.
    Raises `TopologyError` without rings.
    """
    if not rings:
        raise TopologyError("no rings, so no link limit: choose rings that fit the group (rings_of)")
    traffic = ring_traffic(wiring, routes, rings, size_bytes=1.0)
    return flow.bus_bandwidth_limit_mbps(traffic, Network(rate_mbps, efficiency=1.0))


def exchange_loads(routes: Routes, pairs: Sequence[Pair]) -> dict[Link, float]:
    """Return what an exchange puts on each link, in tensors of a node: each is split evenly over the node's targets."""
    targets = Counter(source for source, _ in pairs)
    loads: dict[Link, float] = {}
    for source, target in pairs:
        for link in routes.path(source, target):
            loads[link] = loads.get(link, 0.0) + 1 / targets[source]
    return loads


def exchange_limit_mbps(routes: Routes, pairs: Sequence[Pair], rate_mbps: float) -> float:
    """Return a node's tensor over the time that the fullest link needs in an exchange of large tensors.

    Raises `TopologyError` without pairs.
    """
    if not pairs:
        raise TopologyError("no pairs, so no link limit: name at least one (source, target)")
    return rate_mbps / max(exchange_loads(routes, pairs).values())


def allreduce_time_s(
    wiring: Wiring, routes: Routes, rings: Sequence[RingOrder], size_bytes: int, network: Network
) -> float:
    """Return estimated time of an AllReduce of `size_bytes` in every group of the rings, groups side by side.

    Raises `TopologyError` without rings.
    """
    if not rings:
        raise TopologyError("no rings to run the AllReduce on: choose rings that fit the group (rings_of)")
    return flow.allreduce_time_s(ring_traffic(wiring, routes, rings, size_bytes), network)


def bus_bandwidth_mbps(size_bytes: int, ranks: int, time_s: float) -> float:
    """Return nccl-tests' bus bandwidth of an AllReduce: size / time * 2(n-1)/n.

    >>> bus_bandwidth_mbps(1_000_000, 2, 0.008)
    1000.0
    """
    return size_bytes * 8 / time_s * 2 * (ranks - 1) / ranks / 1e6


def ring_traffic(
    wiring: Wiring, routes: Routes, rings: Sequence[RingOrder], size_bytes: float
) -> tuple[RingTraffic, ...]:
    """Yield the rings as the flow model takes them: links by number, each group's tensor split evenly."""
    number = {link: index for index, link in enumerate(sorted(wiring.links))}
    sharing = Counter(frozenset(ring.order) for ring in rings)

    def traffic() -> Iterator[RingTraffic]:
        for ring, paths in zip(rings, ring_paths(wiring, routes, rings), strict=True):
            numbered = tuple(tuple(number[link] for link in path) for path in paths)
            yield RingTraffic(ring.order, numbered, size_bytes / sharing[frozenset(ring.order)])

    return tuple(traffic())


MTU_BYTES = 9000

#: Linux hosts in network namespaces of one two-core machine: flight and forwarding from a TCP ping-pong over one link
#: (13.2 us there and back) and through a host between (19.2 us), as in `Network`; connections stand beforehand.
NAMESPACE_HOSTS = Latency(
    link_s=6.6e-6,
    packet_bytes=1,
    handshakes=0,
    acknowledged=False,
    relay_s=3.0e-6,
    software_s=280e-6,
    single_round_bytes=0,
)


def hosts_fabric(wiring: Wiring, routes: Routes, rate_mbps: float, *, mtu_bytes: int = MTU_BYTES) -> Fabric:
    """Return the wired links at their payload rate, parallel ones apart, and the installed routes as paths.

    Links are numbered as sorted.
    """
    links = sorted(wiring.links)
    number = {link: place for place, link in enumerate(links)}
    ends = np.array([(link.source.node, link.target.node) for link in links], dtype=np.int64).reshape(-1, 2)
    paths = {pair: [[number[link] for link in routes.path(*pair)]] for pair in routes.first_link}
    rate_bps = np.full(len(links), rate_mbps * 1e6 * wire_efficiency(mtu_bytes))
    return Fabric(
        name="wired hosts",
        nodes=wiring.nodes,
        sources=ends[:, 0].copy(),
        targets=ends[:, 1].copy(),
        capacity_bps=rate_bps,
        lane_bps=rate_bps,
        never_full=np.zeros(len(links), dtype=bool),
        router=path_router(next_links(wiring.nodes, ends, seed=0), ends[:, 1], paths),
        hosts_forward=True,
        cost=patch_panel_cost(wiring.nodes, wiring.degree, rate_mbps / 1000),
    )


def allreduce_graph(
    nodes: int, rings: Sequence[RingOrder], size_bytes: int, iterations: int = 1
) -> TaskGraph:
    """Return AllReduces back to back: every node's tensor is split evenly over the rings that hold it."""
    sharing = Counter(frozenset(ring.order) for ring in rings)
    steps = _Steps(nodes)
    for _ in range(iterations):
        taken: Counter[frozenset[int]] = Counter()
        for ring in rings:
            members = frozenset(ring.order)
            share = parts(size_bytes, sharing[members])[taken[members]]
            taken[members] += 1
            steps.add(ring.order, steps.job.allreduce(ring.order, share, after=steps.before(ring.order)))
        steps.end_iteration()
    return steps.job.build()


def exchange_graph(nodes: int, pairs: Sequence[Pair], size_bytes: int, iterations: int = 1) -> TaskGraph:
    """Return transfers of all pairs at once, back to back: a node's tensor is split evenly over its targets."""
    targets = {source: sorted(t for s, t in pairs if s == source) for source, _ in pairs}
    steps = _Steps(nodes)
    for _ in range(iterations):
        for source, target in pairs:
            share = parts(size_bytes, len(targets[source]))[targets[source].index(target)]
            after = steps.before((source, target))
            steps.add((source, target), steps.job.transfer(source, target, share, after=after))
        steps.end_iteration()
    return steps.job.build()


def predicted_s(graph: TaskGraph, fabric: Fabric, latency: Latency = NAMESPACE_HOSTS) -> float:
    """Return seconds until the last host is done with all iterations of the graph."""
    return simulate(graph, fabric, latency=latency).iteration_s


class _Steps:
    """A graph of iterations in the making: which tasks a node must end before its next iteration."""

    def __init__(self, nodes: int) -> None:
        self.job = TaskGraphBuilder(nodes)
        self._last: list[list[int]] = [[] for _ in range(nodes)]
        self._now: list[list[int]] = [[] for _ in range(nodes)]

    def before(self, nodes: Iterable[int]) -> list[int]:
        """Return what these nodes did in the last iteration."""
        return sorted({task for node in nodes for task in self._last[node]})

    def add(self, nodes: Iterable[int], task: int) -> None:
        """Count the task among those of these nodes in this iteration."""
        for node in nodes:
            self._now[node].append(task)

    def end_iteration(self) -> None:
        """Begin the next iteration: what is added from now on waits."""
        self._last = [now or last for now, last in zip(self._now, self._last, strict=True)]
        self._now = [[] for _ in self._now]
