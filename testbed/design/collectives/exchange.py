"""Exchanges between pairs, such as all-to-all: link loads, bandwidth limits, and simulated times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from sim.models.network.allreduce import split_bytes
from sim.models.network.taskgraph import TaskGraph
from testbed.design.collectives.kind import Collective, CollectiveLayout, Pair
from testbed.design.collectives.performance import (
    NAMESPACE_HOST_LATENCY,
    IterationBuilder,
    build_hosts_fabric,
    predict_time_s,
)
from testbed.design.model import Link, Routes, Wiring
from testbed.errors import TopologyError


def compute_exchange_loads(routes: Routes, pairs: Sequence[Pair]) -> dict[Link, float]:
    """Return the load of each link in units of a tensor. A node splits its tensor evenly over its targets."""
    target_counts = Counter(source for source, _ in pairs)
    load_by_link: dict[Link, float] = {}
    for source, target in pairs:
        for link in routes.path(source, target):
            load_by_link[link] = load_by_link.get(link, 0.0) + 1 / target_counts[source]
    return load_by_link


def compute_exchange_limit_mbps(routes: Routes, pairs: Sequence[Pair], rate_mbps: float) -> float:
    """Return the bandwidth limit of an exchange of large tensors, which the fullest link sets.

    Raises `TopologyError` without pairs.
    """
    if not pairs:
        raise TopologyError(
            "there are no pairs, so no link limits the exchange: name at least one (source, target)"
        )
    return rate_mbps / max(compute_exchange_loads(routes, pairs).values())


def make_exchange_graph(
    node_count: int, pairs: Sequence[Pair], size_bytes: int, iterations: int = 1
) -> TaskGraph:
    """Return `iterations` consecutive exchanges. All pairs send at once, split as in `compute_exchange_loads`."""
    targets_by_source = {
        source: sorted(target for sender, target in pairs if sender == source) for source, _ in pairs
    }
    builder = IterationBuilder(node_count)
    for _ in range(iterations):
        for source, target in pairs:
            part_bytes = split_bytes(size_bytes, len(targets_by_source[source]))[
                targets_by_source[source].index(target)
            ]
            previous_tasks = builder.find_previous_tasks((source, target))
            builder.add_task(
                (source, target),
                builder.graph_builder.add_transfer(source, target, part_bytes, predecessors=previous_tasks),
            )
        builder.end_iteration()
    return builder.graph_builder.build()


def _predict_exchange_s(
    wiring: Wiring,
    routes: Routes,
    layout: CollectiveLayout,
    size_bytes: int,
    rate_mbps: float,
    mtu_bytes: int,
) -> float:
    fabric = build_hosts_fabric(wiring, routes, rate_mbps, mtu_bytes=mtu_bytes)
    return predict_time_s(
        make_exchange_graph(wiring.nodes, layout.pairs, size_bytes), fabric, NAMESPACE_HOST_LATENCY
    )


def make_exchange(name: str, matches_layout: Callable[[CollectiveLayout], bool]) -> Collective:
    """Return a collective in which each node sends equal parts of its tensor to its targets."""
    return Collective(
        name,
        matches_layout,
        compute_bus_factor=lambda _ranks: 1.0,
        compute_link_shares=lambda _wiring, routes, layout: compute_exchange_loads(routes, layout.pairs),
        compute_limit_mbps=lambda _wiring, routes, layout, rate: compute_exchange_limit_mbps(
            routes, layout.pairs, rate
        ),
        predict_time_s=_predict_exchange_s,
        make_graph=lambda nodes, layout, size, iterations: make_exchange_graph(
            nodes, layout.pairs, size, iterations
        ),
        runs_on_gpus=False,
    )


ALL_TO_ALL = make_exchange(
    "all_to_all", lambda layout: len(layout.pairs) == layout.ranks * (layout.ranks - 1)
)
SEND_RECEIVE = make_exchange("sendrecv", lambda layout: bool(layout.pairs))
