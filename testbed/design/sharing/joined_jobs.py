"""Jobs joined in one task graph: iterations one after another, of one job or of several that share a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sim.models.network.execution import Execution
from sim.models.network.taskgraph import Kind, TaskGraph

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class PlacedJob:
    """A job whose node i runs on `servers[i]` of the cluster, and which begins at `start_s`."""

    graph: TaskGraph
    servers: Integers
    start_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """The jobs' iterations in one graph; task `ends[j, k]` ends with iteration k of job j, `starts[j]` before all."""

    graph: TaskGraph
    starts: Integers
    ends: Integers

    def iteration_s(self, done: Execution) -> Floats:
        """Return how long each iteration took, (jobs, iterations)."""
        borders = np.column_stack([done.end_s[self.starts], done.end_s[self.ends]])
        times: Floats = np.diff(borders, axis=1)
        return times


def back_to_back(nodes: int, jobs: Sequence[PlacedJob], iterations: int) -> Shared:
    """Return each job `iterations` times, each begun when the last has ended as a whole.

    `ValueError` as `TaskGraph`.
    """
    pile = _Pile(nodes)
    starts, ends = [], []
    for job in jobs:
        last = pile.add_wait(job.start_s)
        starts.append(last)
        ends.append([last := pile.add_iteration(job, after=last) for _ in range(iterations)])
    return Shared(pile.graph(), np.array(starts), np.array(ends))


@dataclass(slots=True)
class _Pile:
    """Columns of a graph in the making."""

    nodes: int
    tasks: int = 0
    waits: int = 0
    columns: dict[str, list[NDArray[np.generic]]] = field(default_factory=dict)
    groups: list[tuple[int, ...]] = field(default_factory=list)

    def add_wait(self, time_s: float) -> int:
        """Return a task that takes so long, on a device of its own."""
        self.waits += 1
        self._append(kind=Kind.COMPUTE, device=self.nodes + self.waits - 1, time_s=time_s)
        return self.tasks - 1

    def add_iteration(self, job: PlacedJob, after: int) -> int:
        """Return all tasks of a job, none before task `after`, and one that waits for all; its number."""
        graph, first = job.graph, self.tasks
        roots = np.setdiff1d(np.arange(graph.tasks), graph.after) + first
        leaves = np.setdiff1d(np.arange(graph.tasks), graph.before) + first
        self._append(
            kind=graph.kind,
            device=_place(job.servers, graph.device),
            time_s=graph.time_s,
            size_bytes=graph.size_bytes,
            source=_place(job.servers, graph.source),
            target=_place(job.servers, graph.target),
            group=np.where(graph.group >= 0, graph.group + len(self.groups), -1),
        )
        self.groups += [tuple(job.servers[list(members)].tolist()) for members in graph.groups]
        self._append(kind=Kind.BARRIER)
        self._join(graph.before + first, graph.after + first)
        self._join(np.full(roots.size, after), roots)
        self._join(leaves, np.full(leaves.size, self.tasks - 1))
        return self.tasks - 1

    def graph(self) -> TaskGraph:
        """Return what has been added so far."""
        whole = {name: np.concatenate(parts) for name, parts in self.columns.items()}
        return TaskGraph(nodes=self.nodes, groups=tuple(self.groups), **whole)

    def _append(self, **given: NDArray[np.generic] | float) -> None:
        size = np.size(given["kind"])
        for name, blank in _BLANK.items():
            value = np.asarray(given.get(name, blank), dtype=np.float64 if name == "time_s" else np.int64)
            self.columns.setdefault(name, []).append(np.broadcast_to(value, (size,)))
        self.tasks += size

    def _join(self, before: Integers, after: Integers) -> None:
        self.columns.setdefault("before", []).append(before.astype(np.int64))
        self.columns.setdefault("after", []).append(after.astype(np.int64))


_BLANK = {"kind": 0, "device": -1, "time_s": 0.0, "size_bytes": 0, "source": -1, "target": -1, "group": -1}


def _place(servers: Integers, column: Integers) -> Integers:
    """Return nodes of the job as servers of the cluster; -1 stays."""
    return np.where(column >= 0, servers[column], -1)
