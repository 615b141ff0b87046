"""Performance of wired hosts: their links for the flow simulator, and consecutive iterations.

A link carries its wire rate minus headers and framing. As in the programs on the hosts, a host begins an iteration when
it has ended its part of the previous one.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sim.models.network import wire_efficiency
from sim.models.network.execution import simulate
from sim.models.network.fabrics.cost import patch_panel_cost
from sim.models.network.fabrics.direct import next_links, path_router
from sim.models.network.fabrics.model import Fabric
from sim.models.network.latency import Latency
from sim.models.network.taskgraph import TaskGraph, TaskGraphBuilder
from testbed.design.model import Routes, Wiring

MTU_BYTES = 9000

#: Linux hosts in network namespaces of one two-core machine: flight and forwarding from a TCP ping-pong over one link
#: (13.2 us round trip) and through a host between (19.2 us), as in `Network`; connections exist beforehand.
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
    """Return the wired links at their payload rate, with the installed routes as paths.

    Links are numbered in sorted order; parallel links stay separate.
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


def predict_s(graph: TaskGraph, fabric: Fabric, latency: Latency = NAMESPACE_HOSTS) -> float:
    """Return the seconds until the last host has ended all iterations of the graph."""
    return simulate(graph, fabric, latency=latency).iteration_s


class Steps:
    """Builder of a graph of iterations: it tracks the tasks that a node must end before its next iteration."""

    def __init__(self, nodes: int) -> None:
        self.job = TaskGraphBuilder(nodes)
        self._last: list[list[int]] = [[] for _ in range(nodes)]
        self._now: list[list[int]] = [[] for _ in range(nodes)]

    def find_previous_tasks(self, nodes: Iterable[int]) -> list[int]:
        """Return the tasks of these nodes in the previous iteration."""
        return sorted({task for node in nodes for task in self._last[node]})

    def add(self, nodes: Iterable[int], task: int) -> None:
        """Record a task of these nodes in the current iteration."""
        for node in nodes:
            self._now[node].append(task)

    def end_iteration(self) -> None:
        """Begin the next iteration; nodes without a task in this one keep those of the previous one."""
        self._last = [now or last for now, last in zip(self._now, self._last, strict=True)]
        self._now = [[] for _ in self._now]
