"""The list of collectives: what each sends, what links allow it, how long it should take.

A new collective is an entry of `COLLECTIVES`. What runs on the hosts is in `testbed/node/collective.py`, which is
copied there and imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from sim.models.network.taskgraph import TaskGraph
from testbed.design.collectives.performance import (
    NAMESPACE_HOSTS,
    Network,
    Pair,
    allreduce_graph,
    allreduce_time_s,
    exchange_graph,
    exchange_limit_mbps,
    exchange_loads,
    hosts_fabric,
    link_limit_mbps,
    link_loads,
    predicted_s,
)
from testbed.design.model import Link, RingOrder, Routes, Wiring


class Ways(Protocol):
    """The ways that the data of a collective takes: rings of nodes, or pairs (source, target)."""

    @property
    def rings(self) -> tuple[RingOrder, ...]:
        """Rings over all nodes or over groups of them."""

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Pairs that are sent to all at once; none where rings are given."""

    @property
    def ranks(self) -> int:
        """Nodes that share one sum, or that send and receive."""

    @property
    def rings_per_node(self) -> int:
        """Rings over which each node splits its tensor."""


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective and its arithmetic.

    `bus_factor` is what a node of so many sends in one iteration, in tensors: nccl-tests' bus bandwidth over its
    algorithm bandwidth. `link_shares` are the tensors of a node that pass over each link, `limit_mbps` the bus
    bandwidth that links of a rate allow at large sizes, `time_s` the expected time of one iteration of a size, and
    `graph` so many iterations for the flow simulator. `is_one_of` says which ways are its own; `on_gpus` whether
    our program runs it over NCCL.
    """

    name: str
    is_one_of: Callable[[Ways], bool]
    bus_factor: Callable[[int], float]
    link_shares: Callable[[Wiring, Routes, Ways], Mapping[Link, float]]
    limit_mbps: Callable[[Wiring, Routes, Ways, float], float]
    time_s: Callable[[Wiring, Routes, Ways, int, float, int], float]
    graph: Callable[[int, Ways, int, int], TaskGraph]
    on_gpus: bool


def collective_of(ways: Ways) -> Collective:
    """Return the first collective of the table whose ways these are."""
    return next(each for each in COLLECTIVES if each.is_one_of(ways))


def _allreduce_bus_factor(ranks: int) -> float:
    return 2 * (ranks - 1) / ranks


def _ring_shares(wiring: Wiring, routes: Routes, ways: Ways) -> Mapping[Link, float]:
    share = _allreduce_bus_factor(ways.ranks) / ways.rings_per_node
    loads = link_loads(wiring, routes, ways.rings)
    return {link: crossings * share for link, crossings in loads.items()}


def _exchange_time_s(
    wiring: Wiring, routes: Routes, ways: Ways, size_bytes: int, rate_mbps: float, mtu_bytes: int
) -> float:
    fabric = hosts_fabric(wiring, routes, rate_mbps, mtu_bytes=mtu_bytes)
    return predicted_s(exchange_graph(wiring.nodes, ways.pairs, size_bytes), fabric, NAMESPACE_HOSTS)


def _exchange(name: str, is_one_of: Callable[[Ways], bool]) -> Collective:
    """Return a collective that sends a node's tensor, in equal parts, to the targets of its pairs."""
    return Collective(
        name,
        is_one_of,
        bus_factor=lambda _ranks: 1.0,
        link_shares=lambda _wiring, routes, ways: exchange_loads(routes, ways.pairs),
        limit_mbps=lambda _wiring, routes, ways, rate: exchange_limit_mbps(routes, ways.pairs, rate),
        time_s=_exchange_time_s,
        graph=lambda nodes, ways, size, iterations: exchange_graph(nodes, ways.pairs, size, iterations),
        on_gpus=False,
    )


ALL_REDUCE = Collective(
    "all_reduce",
    is_one_of=lambda ways: not ways.pairs,
    bus_factor=_allreduce_bus_factor,
    link_shares=_ring_shares,
    limit_mbps=lambda wiring, routes, ways, rate: link_limit_mbps(wiring, routes, ways.rings, rate),
    time_s=lambda wiring, routes, ways, size, rate, _mtu: allreduce_time_s(
        wiring, routes, ways.rings, size, Network(rate)
    ),
    graph=lambda nodes, ways, size, iterations: allreduce_graph(nodes, ways.rings, size, iterations),
    on_gpus=True,
)
ALL_TO_ALL = _exchange("all_to_all", lambda ways: len(ways.pairs) == ways.ranks * (ways.ranks - 1))
SEND_RECEIVE = _exchange("sendrecv", lambda ways: bool(ways.pairs))

COLLECTIVES = (ALL_REDUCE, ALL_TO_ALL, SEND_RECEIVE)
"""All collectives; the first whose ways are given counts, so that the more particular stand first."""
