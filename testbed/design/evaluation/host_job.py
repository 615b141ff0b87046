"""Host jobs: one iteration of a plan as scripts for the hosts, which send the same messages as the simulator.

The iteration is first divided into tasks of single hosts. The simulator splits their messages over the route sets, by
the weights of each pair. The script of each host (`testbed/node/iteration.py`) lists these tasks and messages. Bytes
and computing times are scaled by one factor, so that an iteration lasts about a second on links of any rate.

In the simulator, a round of an AllReduce begins everywhere at once, when the previous round has ended everywhere. A
host knows only its own messages: it begins a round when it has sent and received its messages of the previous round.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.models.network import compute_wire_efficiency
from sim.models.network.allreduce import Algorithm
from sim.models.network.execution import Execution, simulate
from sim.models.network.fabrics import Fabric, make_routed_fabric
from sim.models.network.latency import Latency
from sim.models.network.taskgraph import Kind, TaskGraph
from testbed.design.collectives.performance import MTU_BYTES, NAMESPACE_HOST_LATENCY
from testbed.design.fabrics.direct import make_ring_allreduce
from testbed.design.routing.route_sets import RouteSets
from testbed.errors import WorkloadError

DEFAULT_ITERATION_S = 1.0
"""Target duration of a scaled iteration."""


@dataclass(frozen=True, slots=True)
class HostJob:
    """An iteration as the hosts run it, and its prediction.

    All bytes of the workload are multiplied by `factor`. Computing times are multiplied by `factor`, and by the rate
    of the plan's links divided by the rate of the hosts' links. `execution` is one iteration on the hosts' links.
    `host_by_task` holds the host of each of its tasks.
    """

    routes: RouteSets
    factor: float
    execution: Execution
    host_by_task: tuple[int, ...]

    @property
    def predicted_s(self) -> float:
        """Predicted time of an iteration on the hosts."""
        return self.execution.iteration_s

    @property
    def planned_bytes(self) -> NDArray[np.float64]:
        """Bytes of an iteration on each link of the topology, from the routes and weights of the plan."""
        messages = self.execution.lowered.messages
        node_count = self.routes.topology.nodes
        pair_bytes = np.zeros((node_count, node_count))
        np.add.at(
            pair_bytes,
            (messages.source, messages.target),
            (messages.size_bytes * messages.round_count).astype(float),
        )
        return self.routes.compute_link_bytes(pair_bytes)

    @property
    def link_message_counts(self) -> NDArray[np.int64]:
        """Number of messages of an iteration on each link of the topology. Each message follows one set of routes."""
        messages = self.execution.lowered.messages
        message_counts = np.zeros(len(self.routes.topology.edges), dtype=np.int64)
        routes_of_messages = np.stack(
            [messages.source, messages.target, _find_route_sets(self.execution)], axis=1
        )
        for (source, target, set_number), count in zip(
            *np.unique(routes_of_messages, axis=0, return_counts=True), strict=True
        ):
            message_counts[list(self.routes.find_path(source, target, set_number))] += count
        return message_counts


def make_host_job(
    graph: TaskGraph,
    routes: RouteSets,
    rate_mbps: float,
    *,
    stretch: float = 1.0,
    target_s: float = DEFAULT_ITERATION_S,
    factor: float | None = None,
    mtu_bytes: int = MTU_BYTES,
    latency: Latency = NAMESPACE_HOST_LATENCY,
) -> HostJob:
    """Return an iteration that is scaled by `factor`, or by default to last about `target_s`.

    `rate_mbps` is the rate of the hosts' links. `stretch` is the rate of the plan's links divided by `rate_mbps`;
    computing times are multiplied by `stretch`. Raises `WorkloadError` for an iteration that takes no time.
    """
    fabric = build_host_fabric(routes, rate_mbps, mtu_bytes=mtu_bytes)

    def simulate_scaled(scale_factor: float) -> tuple[Execution, tuple[int, ...]]:
        tasks, hosts = divide_by_host(
            scale_graph(graph, scale_factor, scale_factor * stretch), make_ring_allreduce(routes.topology)
        )
        return simulate(tasks, fabric, latency=latency, in_proportion=True), hosts

    if factor is None:
        total_s = simulate_scaled(1.0)[0].iteration_s
        if not total_s:
            raise WorkloadError("the iteration takes no time: there is nothing to run")
        factor = float(f"{target_s / total_s:.3g}")
    return HostJob(routes, factor, *simulate_scaled(factor))


def build_host_fabric(routes: RouteSets, rate_mbps: float, *, mtu_bytes: int = MTU_BYTES) -> Fabric:
    """Return a fabric with the links and routes of a plan, at the payload rate of the hosts."""
    topology, rate_gbps = routes.topology, rate_mbps / 1e3 * compute_wire_efficiency(mtu_bytes)
    return make_routed_fabric(topology.nodes, topology.edges, rate_gbps, routes.next_edge, routes.weight)


def scale_graph(graph: TaskGraph, byte_factor: float, time_factor: float) -> TaskGraph:
    """Return the graph with bytes scaled by `byte_factor` and times by `time_factor`.

    Transfers and AllReduces keep at least one byte, because the receiver waits for them.
    """
    is_sent = (graph.kind == Kind.TRANSFER) | (graph.kind == Kind.ALLREDUCE)
    size = np.maximum(np.round(graph.size_bytes * byte_factor).astype(np.int64), is_sent)
    return replace(graph, size_bytes=size, time_s=graph.time_s * time_factor)


def make_host_scripts(job: HostJob) -> tuple[dict[str, Any], ...]:
    """Return the script of each host: its tasks, and the number of its incoming connections."""
    graph, messages = job.execution.graph, job.execution.lowered.messages
    route_set_numbers = _find_route_sets(job.execution)
    parts_by_task: dict[int, list[list[int]]] = defaultdict(list)
    columns = (messages.task, messages.target, route_set_numbers, messages.size_bytes)
    for task, target, route_set, size in zip(*(column.tolist() for column in columns), strict=True):
        parts_by_task[task].append([target, route_set, size])
    predecessors_by_task: dict[int, list[int]] = defaultdict(list)
    for predecessor, successor in zip(graph.before.tolist(), graph.after.tolist(), strict=True):
        predecessors_by_task[successor].append(predecessor)
    tasks_by_host: list[list[dict[str, Any]]] = [[] for _ in range(graph.node_count)]
    used_connections = set()
    for task in range(graph.task_count):
        entry: dict[str, Any] = {"id": task, "computes": bool(graph.kind[task] == Kind.COMPUTE), "receive": 0}
        entry |= {
            "seconds": float(graph.time_s[task]),
            "after": predecessors_by_task[task],
            "send": parts_by_task[task],
        }
        tasks_by_host[job.host_by_task[task]].append(entry)
        for target, route_set, _ in parts_by_task[task]:
            used_connections.add((job.host_by_task[task], target, route_set))
        if parts_by_task[task]:
            arrival: dict[str, Any] = {"id": task, "computes": False, "receive": len(parts_by_task[task])}
            tasks_by_host[parts_by_task[task][0][0]].append(
                arrival | {"seconds": 0.0, "after": [], "send": []}
            )
    incoming_counts = Counter(target for _, target, _ in used_connections)
    return tuple(
        {"tasks": tasks_by_host[host], "incoming": incoming_counts[host]} for host in range(graph.node_count)
    )


def _find_route_sets(execution: Execution) -> NDArray[np.int64]:
    """Return the set of routes of each message: its chosen set, or 0 if its pair has no weight in the chosen set."""
    messages, weight = execution.lowered.messages, execution.fabric.weights
    assert weight is not None, "a fabric with planned routes has weights"
    choice = messages.choice % len(weight)
    return np.where(weight[choice, messages.source, messages.target] > 0, choice, 0)


def divide_by_host(graph: TaskGraph, allreduce: Algorithm) -> tuple[TaskGraph, tuple[int, ...]]:
    """Return the graph with transfers instead of AllReduces, and the host of each task (the source of a transfer).

    Each task waits only for tasks whose end its host knows of. Raises `WorkloadError` if a task waits for a task of
    another host without a transfer between them.
    """
    builder = _HostTasks(graph, allreduce)
    return builder.build_graph(), tuple(builder.host_by_task)


class _HostTasks:
    """Builder of the hosts' tasks.

    When the new task `_end_tasks[task, host]` ends, `host` knows that the original `task` has ended.
    """

    def __init__(self, source_graph: TaskGraph, allreduce: Algorithm) -> None:
        self._source_graph, self._allreduce = source_graph, allreduce
        self.host_by_task: list[int] = []
        self._task_rows: list[tuple[int, int, float, int, int, int]] = []
        self._edges: list[tuple[int, int]] = []
        self._end_tasks: dict[tuple[int, int], int] = {}
        self._predecessors: dict[int, list[int]] = defaultdict(list)
        for predecessor, successor in zip(
            source_graph.before.tolist(), source_graph.after.tolist(), strict=True
        ):
            self._predecessors[successor].append(predecessor)
        self._hosts_that_know = _find_hosts_that_know(source_graph, self._predecessors)

    def build_graph(self) -> TaskGraph:
        """Return the graph of all tasks."""
        for task in _sort_topologically(self._source_graph.task_count, self._predecessors):
            source_graph, duration_s = self._source_graph, float(self._source_graph.time_s[task])
            match source_graph.kind[task]:
                case Kind.COMPUTE:
                    host = int(source_graph.device[task])
                    self._end_tasks[task, host] = self._add_task(
                        Kind.COMPUTE, host, duration_s, predecessors=self._find_prerequisites(task, host)
                    )
                case Kind.TRANSFER:
                    sender, receiver = int(source_graph.source[task]), int(source_graph.target[task])
                    size, prerequisites = (
                        int(source_graph.size_bytes[task]),
                        self._find_prerequisites(task, sender),
                    )
                    transfer = self._add_task(
                        Kind.TRANSFER, sender, duration_s, size, receiver, predecessors=prerequisites
                    )
                    self._end_tasks[task, sender] = self._end_tasks[task, receiver] = transfer
                case Kind.ALLREDUCE:
                    self._add_allreduce(task, duration_s)
                case _:
                    for host in self._hosts_that_know[task]:
                        self._end_tasks[task, host] = self._add_task(
                            Kind.BARRIER, host, predecessors=self._find_prerequisites(task, host)
                        )
        kind, device, time_s, size_bytes, source, target = zip(*self._task_rows, strict=True)
        edges = np.array(self._edges, dtype=np.int64).reshape(-1, 2)
        return TaskGraph(
            node_count=self._source_graph.node_count,
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

    def _add_allreduce(self, task: int, time_s: float) -> None:
        """Add the messages of an AllReduce, and on each member a barrier after its last messages."""
        members = self._source_graph.groups[self._source_graph.group[task]]
        prerequisites_by_host = {host: self._find_prerequisites(task, host) for host in members}
        end_tasks_by_host: dict[int, list[int]] = {
            host: list(prerequisites_by_host[host]) for host in members
        }
        for chain in self._allreduce(members, int(self._source_graph.size_bytes[task])):
            last_tasks_by_host, delay_s = prerequisites_by_host, time_s
            for phase in chain:
                messages = list(
                    zip(
                        phase.sources.tolist(),
                        phase.targets.tolist(),
                        phase.sizes_bytes.tolist(),
                        strict=True,
                    )
                )
                for _ in range(phase.round_count):
                    current_tasks_by_host: dict[int, list[int]] = defaultdict(list)
                    for source, target, size in messages:
                        transfer = self._add_task(
                            Kind.TRANSFER,
                            source,
                            delay_s,
                            size,
                            target,
                            predecessors=last_tasks_by_host[source],
                        )
                        current_tasks_by_host[source].append(transfer)
                        current_tasks_by_host[target].append(transfer)
                    last_tasks_by_host, delay_s = {**last_tasks_by_host, **current_tasks_by_host}, 0.0
            for host in members:
                end_tasks_by_host[host] += last_tasks_by_host[host]
        for host in members:
            self._end_tasks[task, host] = self._add_task(
                Kind.BARRIER, host, predecessors=sorted(set(end_tasks_by_host[host]))
            )

    def _find_prerequisites(self, task: int, host: int) -> list[int]:
        """Return the new tasks that must end before a host begins `task`.

        Before an AllReduce, a member waits only for tasks whose end it knows of; other members wait for the rest.
        Raises `WorkloadError` if the host cannot know when a predecessor has ended; for an AllReduce, if no member can.
        """
        prerequisites = []
        for predecessor in self._predecessors[task]:
            if host in self._hosts_that_know[predecessor]:
                prerequisites.append(self._end_tasks[predecessor, host])
            elif self._source_graph.kind[task] != Kind.ALLREDUCE or self._hosts_that_know[task].isdisjoint(
                self._hosts_that_know[predecessor]
            ):
                raise WorkloadError(
                    f"task {task} waits on host {host} for task {predecessor}, which ends elsewhere: put a transfer "
                    "between them"
                )
        return prerequisites

    def _add_task(
        self,
        kind: Kind,
        host: int,
        time_s: float = 0.0,
        size_bytes: int = 0,
        target: int = -1,
        *,
        predecessors: Iterable[int],
    ) -> int:
        task_number = len(self._task_rows)
        device = host if kind == Kind.COMPUTE else -1
        source = host if kind == Kind.TRANSFER else -1
        self._task_rows.append((int(kind), device, time_s, size_bytes, source, target))
        self.host_by_task.append(host)
        self._edges.extend((predecessor, task_number) for predecessor in predecessors)
        return task_number


def _find_hosts_that_know(graph: TaskGraph, predecessors: Mapping[int, Iterable[int]]) -> list[set[int]]:
    """Return, for each task, the hosts that know when it has ended.

    A host knows the end of a barrier if it knows the ends of all predecessors. Raises `WorkloadError` if no host knows.
    """
    hosts_by_task: list[set[int]] = [set() for _ in range(graph.task_count)]
    for task in _sort_topologically(graph.task_count, predecessors):
        match graph.kind[task]:
            case Kind.COMPUTE:
                hosts_by_task[task] = {int(graph.device[task])}
            case Kind.TRANSFER:
                hosts_by_task[task] = {int(graph.source[task]), int(graph.target[task])}
            case Kind.ALLREDUCE:
                hosts_by_task[task] = set(graph.groups[graph.group[task]])
            case _:
                host_sets = [hosts_by_task[predecessor] for predecessor in predecessors.get(task, ())]
                hosts_by_task[task] = (
                    set.intersection(*host_sets) if host_sets else set(range(graph.node_count))
                )
        if not hosts_by_task[task] or max(hosts_by_task[task]) >= graph.node_count:
            raise WorkloadError(f"no host can tell when task {task} may start: put transfers before it")
    return hosts_by_task


def _sort_topologically(task_count: int, predecessors: Mapping[int, Iterable[int]]) -> list[int]:
    """Return the tasks in topological order: each after all tasks that it waits for."""
    pending_counts = [len(list(predecessors.get(task, ()))) for task in range(task_count)]
    successors_by_task: dict[int, list[int]] = defaultdict(list)
    for task in range(task_count):
        for predecessor in predecessors.get(task, ()):
            successors_by_task[predecessor].append(task)
    sorted_tasks = [task for task in range(task_count) if not pending_counts[task]]
    for task in sorted_tasks:  # the list grows during the loop
        for successor in successors_by_task[task]:
            pending_counts[successor] -= 1
            if not pending_counts[successor]:
                sorted_tasks.append(successor)
    return sorted_tasks
