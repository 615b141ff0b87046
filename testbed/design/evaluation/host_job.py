"""An iteration of a plan as a job on hosts: the messages of the simulator, sent by the hosts themselves.

What is simulated and what runs are one program: tasks of single hosts (`host_tasks`), whose messages the simulator
splits over the sets of routes by the weights of their pairs, become the script of each host
(`testbed/node/iteration.py`). Bytes and computing are scaled by one factor, so that an iteration lasts about a second
on links of any rate.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.models.network import wire_efficiency
from sim.models.network.execution import Execution, simulate
from sim.models.network.fabrics import Fabric, routed
from sim.models.network.latency import Latency
from sim.models.network.taskgraph import Kind, TaskGraph
from testbed.design.collectives.performance import MTU_BYTES, NAMESPACE_HOSTS
from testbed.design.evaluation.host_tasks import on_hosts
from testbed.design.fabrics.builders import rings_over
from testbed.design.routing.route_sets import RouteSets
from testbed.errors import WorkloadError

LASTS_S = 1.0
"""Time that a scaled iteration is to take."""


@dataclass(frozen=True, slots=True)
class HostJob:
    """An iteration as the hosts run it, and as it is predicted.

    Bytes are `factor` times those of the workload; computing is so, too, and longer by what the links are slower than
    in the plan. `simulated` is one iteration on the hosts' links, `hosts` is where each of its tasks is.
    """

    routes: RouteSets
    factor: float
    simulated: Execution
    hosts: tuple[int, ...]

    @property
    def predicted_s(self) -> float:
        """Predicted time of an iteration on the hosts."""
        return self.simulated.iteration_s

    @property
    def planned_bytes(self) -> NDArray[np.float64]:
        """Bytes of an iteration on each link of the topology, by the routes and weights of the plan."""
        messages = self.simulated.lowered.messages
        nodes = self.routes.topology.nodes
        sent = np.zeros((nodes, nodes))
        np.add.at(
            sent, (messages.source, messages.target), (messages.size_bytes * messages.rounds).astype(float)
        )
        return self.routes.link_bytes(sent)

    @property
    def link_messages(self) -> NDArray[np.int64]:
        """Messages of an iteration that pass each link of the topology, each part by its own set of routes."""
        messages = self.simulated.lowered.messages
        found = np.zeros(len(self.routes.topology.edges), dtype=np.int64)
        ends = np.stack([messages.source, messages.target, _sets_of(self.simulated)], axis=1)
        for (source, target, number), count in zip(*np.unique(ends, axis=0, return_counts=True), strict=True):
            found[list(self.routes.path(source, target, number))] += count
        return found


def host_job(
    graph: TaskGraph,
    routes: RouteSets,
    rate_mbps: float,
    *,
    stretch: float = 1.0,
    lasts_s: float = LASTS_S,
    factor: float | None = None,
    mtu_bytes: int = MTU_BYTES,
    latency: Latency = NAMESPACE_HOSTS,
) -> HostJob:
    """Return an iteration scaled to last about `lasts_s` on links of a rate; a `factor` says the scale outright.

    `stretch` is how much slower these links are than those of the plan, and by so much longer computing takes.
    Raises `WorkloadError` for an iteration that takes no time.
    """
    fabric = host_fabric(routes, rate_mbps, mtu_bytes=mtu_bytes)

    def run(scale: float) -> tuple[Execution, tuple[int, ...]]:
        tasks, hosts = on_hosts(scaled_graph(graph, scale, scale * stretch), rings_over(routes.topology))
        return simulate(tasks, fabric, latency=latency, in_proportion=True), hosts

    if factor is None:
        whole_s = run(1.0)[0].iteration_s
        if not whole_s:
            raise WorkloadError("the iteration takes no time: there is nothing to run")
        factor = float(f"{lasts_s / whole_s:.3g}")
    return HostJob(routes, factor, *run(factor))


def host_fabric(routes: RouteSets, rate_mbps: float, *, mtu_bytes: int = MTU_BYTES) -> Fabric:
    """Return the links of a plan at the payload rate of the hosts, with the plan's routes."""
    topology, rate_gbps = routes.topology, rate_mbps / 1e3 * wire_efficiency(mtu_bytes)
    return routed(topology.nodes, topology.edges, rate_gbps, routes.onward, routes.weight)


def scaled_graph(graph: TaskGraph, of_bytes: float, of_time: float) -> TaskGraph:
    """Return a graph with bytes and times scaled; a transfer moves at least one byte, for its target waits for it."""
    moves = (graph.kind == Kind.TRANSFER) | (graph.kind == Kind.ALLREDUCE)
    size = np.maximum(np.round(graph.size_bytes * of_bytes).astype(np.int64), moves)
    return replace(graph, size_bytes=size, time_s=graph.time_s * of_time)


def scripts(job: HostJob) -> tuple[dict[str, Any], ...]:
    """Return the part of each host: its `tasks`, and `incoming`, the number of connections to it."""
    graph, messages = job.simulated.graph, job.simulated.lowered.messages
    ways = _sets_of(job.simulated)
    parts: dict[int, list[list[int]]] = defaultdict(list)
    columns = (messages.task, messages.target, ways, messages.size_bytes)
    for task, target, way, size in zip(*(column.tolist() for column in columns), strict=True):
        parts[task].append([target, way, size])
    before: dict[int, list[int]] = defaultdict(list)
    for first, then in zip(graph.before.tolist(), graph.after.tolist(), strict=True):
        before[then].append(first)
    tasks: list[list[dict[str, Any]]] = [[] for _ in range(graph.nodes)]
    lines = set()
    for task in range(graph.tasks):
        entry: dict[str, Any] = {"id": task, "computes": bool(graph.kind[task] == Kind.COMPUTE), "receive": 0}
        entry |= {"seconds": float(graph.time_s[task]), "after": before[task], "send": parts[task]}
        tasks[job.hosts[task]].append(entry)
        for target, way, _ in parts[task]:
            lines.add((job.hosts[task], target, way))
        if parts[task]:
            arrival: dict[str, Any] = {"id": task, "computes": False, "receive": len(parts[task])}
            tasks[parts[task][0][0]].append(arrival | {"seconds": 0.0, "after": [], "send": []})
    incoming = Counter(target for _, target, _ in lines)
    return tuple({"tasks": tasks[host], "incoming": incoming[host]} for host in range(graph.nodes))


def _sets_of(done: Execution) -> NDArray[np.int64]:
    """Return the set of routes that each message takes: the first where its pair has no weight on its choice."""
    messages, weight = done.lowered.messages, done.fabric.weights
    assert weight is not None, "a fabric with planned routes has weights"
    taken = messages.choice % len(weight)
    return np.where(weight[taken, messages.source, messages.target] > 0, taken, 0)
