"""Host jobs: an iteration of a plan as scripts for the hosts, which send the simulator's messages.

The simulation and the run are one program: tasks of single hosts, whose messages the simulator splits over the route
sets by the weights of their pairs, become the script of each host (`testbed/node/iteration.py`). Bytes and computing
are scaled by one factor, so that an iteration lasts about a second on links of any rate.

In the simulator a round of an AllReduce begins everywhere when the previous one has ended everywhere. A host knows only
its own messages: it begins a round when it has sent and received its messages of the round before.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.models.network import wire_efficiency
from sim.models.network.allreduce import Algorithm
from sim.models.network.execution import Execution, simulate
from sim.models.network.fabrics import Fabric, make_routed
from sim.models.network.latency import Latency
from sim.models.network.taskgraph import Kind, TaskGraph
from testbed.design.collectives.performance import MTU_BYTES, NAMESPACE_HOSTS
from testbed.design.fabrics.direct import rings_over
from testbed.design.routing.route_sets import RouteSets
from testbed.errors import WorkloadError

LASTS_S = 1.0
"""Target duration of a scaled iteration."""


@dataclass(frozen=True, slots=True)
class HostJob:
    """An iteration as the hosts run it, and its prediction.

    Bytes are `factor` times those of the workload, and computing `factor` times as long, further stretched by how much
    slower the links are than in the plan. `simulated` is one iteration on the hosts' links, `hosts` the host of each of
    its tasks.
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
        """Messages of an iteration on each link of the topology; each part of a message takes its own set of routes."""
        messages = self.simulated.lowered.messages
        counts = np.zeros(len(self.routes.topology.edges), dtype=np.int64)
        ends = np.stack([messages.source, messages.target, _route_sets_of(self.simulated)], axis=1)
        for (source, target, number), count in zip(*np.unique(ends, axis=0, return_counts=True), strict=True):
            counts[list(self.routes.path(source, target, number))] += count
        return counts


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
    """Return an iteration scaled to last about `lasts_s` on links of a rate, or scaled by `factor` if given.

    `stretch` is the rate of the plan's links over the rate of these; computing is longer by the same factor.
    Raises `WorkloadError` for an iteration that takes no time.
    """
    fabric = host_fabric(routes, rate_mbps, mtu_bytes=mtu_bytes)

    def run(scale: float) -> tuple[Execution, tuple[int, ...]]:
        tasks, hosts = on_hosts(scale_graph(graph, scale, scale * stretch), rings_over(routes.topology))
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
    return make_routed(topology.nodes, topology.edges, rate_gbps, routes.onward, routes.weight)


def scale_graph(graph: TaskGraph, of_bytes: float, of_time: float) -> TaskGraph:
    """Return a graph with scaled bytes and times; transfers keep at least one byte, since their targets wait for it."""
    moves = (graph.kind == Kind.TRANSFER) | (graph.kind == Kind.ALLREDUCE)
    size = np.maximum(np.round(graph.size_bytes * of_bytes).astype(np.int64), moves)
    return replace(graph, size_bytes=size, time_s=graph.time_s * of_time)


def scripts(job: HostJob) -> tuple[dict[str, Any], ...]:
    """Return the script of each host: its `tasks`, and `incoming`, the number of connections to it."""
    graph, messages = job.simulated.graph, job.simulated.lowered.messages
    ways = _route_sets_of(job.simulated)
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


def _route_sets_of(execution: Execution) -> NDArray[np.int64]:
    """Return the set of routes that each message takes: its choice, or 0 if its pair has no weight there."""
    messages, weight = execution.lowered.messages, execution.fabric.weights
    assert weight is not None, "a fabric with planned routes has weights"
    choice = messages.choice % len(weight)
    return np.where(weight[choice, messages.source, messages.target] > 0, choice, 0)


def on_hosts(graph: TaskGraph, allreduce: Algorithm) -> tuple[TaskGraph, tuple[int, ...]]:
    """Return the graph with transfers in place of AllReduces, and the host of each task (of a transfer its source).

    A host knows when the tasks that its tasks wait for have ended. Raises `WorkloadError` if that cannot be: a task
    waits for a task of another host without a transfer between them.
    """
    host_tasks = _HostTasks(graph, allreduce)
    return host_tasks.graph(), tuple(host_tasks.hosts)


class _HostTasks:
    """Builder of the hosts' tasks; `_ends[task, host]` is the new task whose end tells a host that `task` has ended."""

    def __init__(self, graph: TaskGraph, allreduce: Algorithm) -> None:
        self._whole, self._allreduce = graph, allreduce
        self.hosts: list[int] = []
        self._rows: list[tuple[int, int, float, int, int, int]] = []
        self._edges: list[tuple[int, int]] = []
        self._ends: dict[tuple[int, int], int] = {}
        self._before: dict[int, list[int]] = defaultdict(list)
        for first, then in zip(graph.before.tolist(), graph.after.tolist(), strict=True):
            self._before[then].append(first)
        self._places = _find_places(graph, self._before)

    def graph(self) -> TaskGraph:
        """Return the graph of all tasks."""
        for task in _sort_topologically(self._whole.tasks, self._before):
            whole, took_s = self._whole, float(self._whole.time_s[task])
            match whole.kind[task]:
                case Kind.COMPUTE:
                    host = int(whole.device[task])
                    self._ends[task, host] = self._add(
                        Kind.COMPUTE, host, took_s, after=self._waits(task, host)
                    )
                case Kind.TRANSFER:
                    sender, receiver = int(whole.source[task]), int(whole.target[task])
                    size, after = int(whole.size_bytes[task]), self._waits(task, sender)
                    transfer = self._add(Kind.TRANSFER, sender, took_s, size, receiver, after=after)
                    self._ends[task, sender] = self._ends[task, receiver] = transfer
                case Kind.ALLREDUCE:
                    self._sum(task, took_s)
                case _:
                    for host in self._places[task]:
                        self._ends[task, host] = self._add(Kind.BARRIER, host, after=self._waits(task, host))
        kind, device, time_s, size_bytes, source, target = zip(*self._rows, strict=True)
        edges = np.array(self._edges, dtype=np.int64).reshape(-1, 2)
        return TaskGraph(
            nodes=self._whole.nodes,
            kind=np.array(kind, dtype=np.int64),
            device=np.array(device, dtype=np.int64),
            time_s=np.array(time_s, dtype=np.float64),
            size_bytes=np.array(size_bytes, dtype=np.int64),
            source=np.array(source, dtype=np.int64),
            target=np.array(target, dtype=np.int64),
            group=np.full(len(kind), -1, dtype=np.int64),
            groups=(),
            before=edges[:, 0].copy(),
            after=edges[:, 1].copy(),
        )

    def _sum(self, task: int, time_s: float) -> None:
        """Add the messages of an AllReduce, and on each member a wait for its last ones."""
        members = self._whole.groups[self._whole.group[task]]
        ready = {host: self._waits(task, host) for host in members}
        ends: dict[int, list[int]] = {host: list(ready[host]) for host in members}
        for chain in self._allreduce(members, int(self._whole.size_bytes[task])):
            last, before_s = ready, time_s
            for phase in chain:
                messages = list(
                    zip(phase.sources.tolist(), phase.targets.tolist(), phase.sizes.tolist(), strict=True)
                )
                for _ in range(phase.rounds):
                    now: dict[int, list[int]] = defaultdict(list)
                    for source, target, size in messages:
                        transfer = self._add(
                            Kind.TRANSFER, source, before_s, size, target, after=last[source]
                        )
                        now[source].append(transfer)
                        now[target].append(transfer)
                    last, before_s = {**last, **now}, 0.0
            for host in members:
                ends[host] += last[host]
        for host in members:
            self._ends[task, host] = self._add(Kind.BARRIER, host, after=sorted(set(ends[host])))

    def _waits(self, task: int, host: int) -> list[int]:
        """Return the new tasks that a host waits for before a task.

        Before an AllReduce a member waits only for tasks that it knows of, since other members know the rest. Raises
        `WorkloadError` if the host, or of an AllReduce every member, does not know of a task before.
        """
        known = []
        for first in self._before[task]:
            if host in self._places[first]:
                known.append(self._ends[first, host])
            elif self._whole.kind[task] != Kind.ALLREDUCE or self._places[task].isdisjoint(
                self._places[first]
            ):
                raise WorkloadError(
                    f"task {task} waits on host {host} for task {first}, which ends elsewhere: put a transfer "
                    "between them"
                )
        return known

    def _add(
        self,
        kind: Kind,
        host: int,
        time_s: float = 0.0,
        size_bytes: int = 0,
        target: int = -1,
        *,
        after: Iterable[int],
    ) -> int:
        number = len(self._rows)
        device = host if kind == Kind.COMPUTE else -1
        source = host if kind == Kind.TRANSFER else -1
        self._rows.append((int(kind), device, time_s, size_bytes, source, target))
        self.hosts.append(host)
        self._edges.extend((first, number) for first in after)
        return number


def _find_places(graph: TaskGraph, before: Mapping[int, Iterable[int]]) -> list[set[int]]:
    """Return the hosts that know when each task has ended; of a barrier those that know all tasks it waits for."""
    places: list[set[int]] = [set() for _ in range(graph.tasks)]
    for task in _sort_topologically(graph.tasks, before):
        match graph.kind[task]:
            case Kind.COMPUTE:
                places[task] = {int(graph.device[task])}
            case Kind.TRANSFER:
                places[task] = {int(graph.source[task]), int(graph.target[task])}
            case Kind.ALLREDUCE:
                places[task] = set(graph.groups[graph.group[task]])
            case _:
                each = [places[first] for first in before.get(task, ())]
                places[task] = set.intersection(*each) if each else set(range(graph.nodes))
        if not places[task] or max(places[task]) >= graph.nodes:
            raise WorkloadError(f"no host can tell when task {task} may start: put transfers before it")
    return places


def _sort_topologically(tasks: int, before: Mapping[int, Iterable[int]]) -> list[int]:
    """Return the tasks in topological order: each behind all tasks that it waits for."""
    waiting_for = [len(list(before.get(task, ()))) for task in range(tasks)]
    following: dict[int, list[int]] = defaultdict(list)
    for task in range(tasks):
        for first in before.get(task, ()):
            following[first].append(task)
    order = [task for task in range(tasks) if not waiting_for[task]]
    for task in order:  # the list grows during the loop
        for then in following[task]:
            waiting_for[then] -= 1
            if not waiting_for[then]:
                order.append(then)
    return order
