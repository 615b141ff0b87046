"""AllReduce on rings: link loads, bandwidth limits, and times in closed form.

Figures cover all links that the rings use, including links to and from hosts that forward.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from sim.models import network as flow
from sim.models.network import Network, RingTraffic
from sim.models.network.allreduce import split_bytes
from sim.models.network.taskgraph import TaskGraph
from testbed.design.collectives.kind import Collective, CollectiveLayout
from testbed.design.collectives.performance import IterationBuilder
from testbed.design.model import Link, RingOrder, Routes, Wiring
from testbed.design.routing.routes import list_ring_links
from testbed.errors import TopologyError

RingPaths = tuple[tuple[Link, ...], ...]


def list_ring_paths(wiring: Wiring, routes: Routes, rings: Sequence[RingOrder]) -> tuple[RingPaths, ...]:
    """Return the links of each ring, from each position to the next. Equal rings use different parallel links."""
    copy_counts = Counter[RingOrder]()
    ring_paths = []
    for ring in rings:
        ring_paths.append(list_ring_links(wiring, ring, routes, copy_index=copy_counts[ring]))
        copy_counts[ring] += 1
    return tuple(ring_paths)


def count_ring_hops_by_link(wiring: Wiring, routes: Routes, rings: Sequence[RingOrder]) -> Counter[Link]:
    """Return the number of ring hops on each link. If all are 1, the rings share no link."""
    return Counter(link for ring in list_ring_paths(wiring, routes, rings) for path in ring for link in path)


def compute_link_limit_mbps(
    wiring: Wiring, routes: Routes, rings: Sequence[RingOrder], rate_mbps: float
) -> float:
    """Return the bus bandwidth that the links allow for a large AllReduce split evenly over `rings`.

    If n rings share no link, they reach n times `rate_mbps`, the wire rate of a link.
    Raises `TopologyError` without rings.
    """
    if not rings:
        raise TopologyError(
            "there are no rings, so no link limits the AllReduce: take those of list_rings(topology, group)"
        )
    traffic = make_ring_traffic(wiring, routes, rings, size_bytes=1.0)
    return flow.compute_bus_bandwidth_limit_mbps(traffic, Network(rate_mbps, efficiency=1.0))


def predict_allreduce_s(
    wiring: Wiring, routes: Routes, rings: Sequence[RingOrder], size_bytes: int, network: Network
) -> float:
    """Return the estimated seconds of an AllReduce of `size_bytes` in every group at the same time.

    Raises `TopologyError` without rings.
    """
    if not rings:
        raise TopologyError(
            "there are no rings to run the AllReduce on: take those of list_rings(topology, group)"
        )
    return flow.compute_allreduce_time_s(make_ring_traffic(wiring, routes, rings, size_bytes), network)


def compute_bus_bandwidth_mbps(size_bytes: int, rank_count: int, time_s: float) -> float:
    """Return the bus bandwidth of an AllReduce as nccl-tests defines it: size / time * 2(n-1)/n.

    >>> compute_bus_bandwidth_mbps(1_000_000, 2, 0.008)
    1000.0
    """
    return size_bytes * 8 / time_s * 2 * (rank_count - 1) / rank_count / 1e6


def make_ring_traffic(
    wiring: Wiring, routes: Routes, rings: Sequence[RingOrder], size_bytes: float
) -> tuple[RingTraffic, ...]:
    """Return the rings for the flow model, with numbered links. Each group's tensor is split evenly over its rings."""
    number_by_link = {link: index for index, link in enumerate(sorted(wiring.links))}
    ring_count_by_group = Counter(frozenset(ring.order) for ring in rings)

    def iterate_traffic() -> Iterator[RingTraffic]:
        for ring, paths in zip(rings, list_ring_paths(wiring, routes, rings), strict=True):
            numbered_paths = tuple(tuple(number_by_link[link] for link in path) for path in paths)
            yield RingTraffic(
                ring.order, numbered_paths, size_bytes / ring_count_by_group[frozenset(ring.order)]
            )

    return tuple(iterate_traffic())


def make_allreduce_graph(
    node_count: int, rings: Sequence[RingOrder], size_bytes: int, iterations: int = 1
) -> TaskGraph:
    """Return `iterations` consecutive AllReduces; the tensor of a group is split evenly over its rings."""
    ring_count_by_group = Counter(frozenset(ring.order) for ring in rings)
    builder = IterationBuilder(node_count)
    for _ in range(iterations):
        used_part_counts: Counter[frozenset[int]] = Counter()
        for ring in rings:
            members = frozenset(ring.order)
            part_bytes = split_bytes(size_bytes, ring_count_by_group[members])[used_part_counts[members]]
            used_part_counts[members] += 1
            builder.add_task(
                ring.order,
                builder.graph_builder.add_allreduce(
                    ring.order, part_bytes, predecessors=builder.find_previous_tasks(ring.order)
                ),
            )
        builder.end_iteration()
    return builder.graph_builder.build()


def _compute_allreduce_bus_factor(rank_count: int) -> float:
    return 2 * (rank_count - 1) / rank_count


def _compute_link_shares(wiring: Wiring, routes: Routes, layout: CollectiveLayout) -> Mapping[Link, float]:
    tensors_per_hop = _compute_allreduce_bus_factor(layout.ranks) / layout.rings_per_node
    hops_by_link = count_ring_hops_by_link(wiring, routes, layout.rings)
    return {link: hop_count * tensors_per_hop for link, hop_count in hops_by_link.items()}


ALL_REDUCE = Collective(
    "all_reduce",
    matches_layout=lambda layout: not layout.pairs,
    compute_bus_factor=_compute_allreduce_bus_factor,
    compute_link_shares=_compute_link_shares,
    compute_limit_mbps=lambda wiring, routes, layout, rate: compute_link_limit_mbps(
        wiring, routes, layout.rings, rate
    ),
    predict_time_s=lambda wiring, routes, layout, size, rate, _mtu: predict_allreduce_s(
        wiring, routes, layout.rings, size, Network(rate)
    ),
    make_graph=lambda nodes, layout, size, iterations: make_allreduce_graph(
        nodes, layout.rings, size, iterations
    ),
    runs_on_gpus=True,
)
