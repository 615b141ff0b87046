"""Performance of wired hosts: their links for the flow simulator, and consecutive iterations.

A link carries its wire rate minus headers and framing. A host begins an iteration when it has finished its part of the
previous one, as the programs on the hosts do.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sim.models.network import compute_wire_efficiency
from sim.models.network.execution import simulate
from sim.models.network.fabrics.cost import compute_patch_panel_cost
from sim.models.network.fabrics.direct import find_next_links, make_path_router
from sim.models.network.fabrics.model import Fabric
from sim.models.network.latency import Latency
from sim.models.network.taskgraph import TaskGraph, TaskGraphBuilder
from testbed.design.model import Routes, Wiring

MTU_BYTES = 9000

#: Latency of Linux hosts in network namespaces of one two-core machine. From a TCP ping-pong over one link (13.2 us
#: round trip) and through one forwarding host (19.2 us), as in `Network`. Connections are already open.
NAMESPACE_HOST_LATENCY = Latency(
    link_delay_s=6.6e-6,
    packet_bytes=1,
    handshake_count=0,
    has_acknowledgement=False,
    relay_delay_s=3.0e-6,
    software_delay_s=280e-6,
    max_single_round_bytes=0,
)


def build_hosts_fabric(
    wiring: Wiring, routes: Routes, rate_mbps: float, *, mtu_bytes: int = MTU_BYTES
) -> Fabric:
    """Return a fabric of the wired links at their payload rate, with the installed routes as paths.

    Links are numbered in sorted order. Parallel links stay separate.
    """
    links = sorted(wiring.links)
    link_numbers = {link: index for index, link in enumerate(links)}
    end_nodes = np.array([(link.source.node, link.target.node) for link in links], dtype=np.int64).reshape(
        -1, 2
    )
    paths = {pair: [[link_numbers[link] for link in routes.path(*pair)]] for pair in routes.first_link}
    rate_bps = np.full(len(links), rate_mbps * 1e6 * compute_wire_efficiency(mtu_bytes))
    return Fabric(
        name="wired hosts",
        node_count=wiring.nodes,
        sources=end_nodes[:, 0].copy(),
        targets=end_nodes[:, 1].copy(),
        capacity_bps=rate_bps,
        lane_bps=rate_bps,
        never_full=np.zeros(len(links), dtype=bool),
        router=make_path_router(find_next_links(wiring.nodes, end_nodes, seed=0), end_nodes[:, 1], paths),
        hosts_forward=True,
        cost=compute_patch_panel_cost(wiring.nodes, wiring.degree, rate_mbps / 1000),
    )


def predict_time_s(graph: TaskGraph, fabric: Fabric, latency: Latency = NAMESPACE_HOST_LATENCY) -> float:
    """Return the seconds until the last host has finished all iterations of the graph."""
    return simulate(graph, fabric, latency=latency).iteration_s


class IterationBuilder:
    """Builder of a graph of iterations. It tracks the tasks that a node must finish before its next iteration."""

    def __init__(self, node_count: int) -> None:
        self.graph_builder = TaskGraphBuilder(node_count)
        self._previous_tasks: list[list[int]] = [[] for _ in range(node_count)]
        self._current_tasks: list[list[int]] = [[] for _ in range(node_count)]

    def find_previous_tasks(self, nodes: Iterable[int]) -> list[int]:
        """Return the tasks of these nodes in the previous iteration."""
        return sorted({task for node in nodes for task in self._previous_tasks[node]})

    def add_task(self, nodes: Iterable[int], task: int) -> None:
        """Record a task of these nodes in the current iteration."""
        for node in nodes:
            self._current_tasks[node].append(task)

    def end_iteration(self) -> None:
        """Begin the next iteration. A node without a task in the current one waits for its earlier tasks."""
        self._previous_tasks = [
            current_tasks or previous_tasks
            for current_tasks, previous_tasks in zip(self._current_tasks, self._previous_tasks, strict=True)
        ]
        self._current_tasks = [[] for _ in self._current_tasks]
