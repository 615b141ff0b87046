"""Jobs joined in one task graph: consecutive iterations of one job, or of several jobs that share a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sim.models.network.execution import Execution
from sim.models.network.taskgraph import Exchange, Kind, TaskGraph

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class PlacedJob:
    """A job that begins at `start_s` and whose node i runs on server `servers[i]` of the cluster."""

    graph: TaskGraph
    servers: Integers
    start_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class SharedIterations:
    """Iterations of jobs in one graph.

    Task `start_tasks[j]` precedes job j. Task `end_tasks[j, k]` ends iteration k of job j.
    """

    graph: TaskGraph
    start_tasks: Integers
    end_tasks: Integers

    def compute_iteration_s(self, execution: Execution) -> Floats:
        """Return the duration of each iteration in seconds, shape (jobs, iterations)."""
        borders = np.column_stack([execution.end_s[self.start_tasks], execution.end_s[self.end_tasks]])
        times: Floats = np.diff(borders, axis=1)
        return times


def chain_iterations(node_count: int, jobs: Sequence[PlacedJob], iteration_count: int) -> SharedIterations:
    """Return a graph with each job `iteration_count` times. An iteration begins when the previous one has ended.

    Raises `ValueError` as `TaskGraph` does.
    """
    builder = _GraphBuilder(node_count)
    start_tasks, end_tasks = [], []
    for job in jobs:
        previous_task = builder.add_wait(job.start_s)
        start_tasks.append(previous_task)
        end_tasks.append(
            [
                previous_task := builder.add_iteration(job, earlier_task=previous_task)
                for _ in range(iteration_count)
            ]
        )
    return SharedIterations(builder.build_graph(), np.array(start_tasks), np.array(end_tasks))


@dataclass(slots=True)
class _GraphBuilder:
    """Builder of a task graph."""

    node_count: int
    task_count: int = 0
    wait_count: int = 0
    columns: dict[str, list[NDArray[np.generic]]] = field(default_factory=dict)
    groups: list[tuple[int, ...]] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)

    def add_wait(self, time_s: float) -> int:
        """Add a task that takes `time_s` on its own device, and return its number."""
        self.wait_count += 1
        self._append(kind=Kind.COMPUTE, device=self.node_count + self.wait_count - 1, time_s=time_s)
        return self.task_count - 1

    def add_iteration(self, job: PlacedJob, earlier_task: int) -> int:
        """Add all tasks of a job after `earlier_task`, then a barrier; return the number of the barrier."""
        graph, first_task = job.graph, self.task_count
        roots = np.setdiff1d(np.arange(graph.task_count), graph.after) + first_task
        leaves = np.setdiff1d(np.arange(graph.task_count), graph.before) + first_task
        self._append(
            kind=graph.kind,
            device=_map_to_servers(job.servers, graph.device),
            time_s=graph.time_s,
            size_bytes=graph.size_bytes,
            source=_map_to_servers(job.servers, graph.source),
            target=_map_to_servers(job.servers, graph.target),
            group=np.select(
                [graph.kind == Kind.ALLREDUCE, graph.kind == Kind.EXCHANGE],
                [graph.group + len(self.groups), graph.group + len(self.exchanges)],
                -1,
            ),
        )
        self.groups += [tuple(job.servers[list(members)].tolist()) for members in graph.groups]
        self.exchanges += [
            Exchange(job.servers[source], job.servers[target], size_bytes)
            for source, target, size_bytes in graph.exchanges
        ]
        self._append(kind=Kind.BARRIER)
        self._add_edges(graph.before + first_task, graph.after + first_task)
        self._add_edges(np.full(roots.size, earlier_task), roots)
        self._add_edges(leaves, np.full(leaves.size, self.task_count - 1))
        return self.task_count - 1

    def build_graph(self) -> TaskGraph:
        """Return the graph of all tasks added so far."""
        arrays = {name: np.concatenate(parts) for name, parts in self.columns.items()}
        return TaskGraph(
            node_count=self.node_count, groups=tuple(self.groups), exchanges=tuple(self.exchanges), **arrays
        )

    def _append(self, **values: NDArray[np.generic] | float) -> None:
        size = np.size(values["kind"])
        for name, default in _DEFAULTS.items():
            value = np.asarray(values.get(name, default), dtype=np.float64 if name == "time_s" else np.int64)
            self.columns.setdefault(name, []).append(np.broadcast_to(value, (size,)))
        self.task_count += size

    def _add_edges(self, earlier_tasks: Integers, later_tasks: Integers) -> None:
        self.columns.setdefault("before", []).append(earlier_tasks.astype(np.int64))
        self.columns.setdefault("after", []).append(later_tasks.astype(np.int64))


_DEFAULTS = {"kind": 0, "device": -1, "time_s": 0.0, "size_bytes": 0, "source": -1, "target": -1, "group": -1}


def _map_to_servers(servers: Integers, column: Integers) -> Integers:
    """Return the server of each node in a column; -1 stays -1."""
    return np.where(column >= 0, servers[column], -1)
