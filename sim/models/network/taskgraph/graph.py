"""One iteration of a training job as a graph: computing on devices, transfers, AllReduces, barriers.

Semantics: a compute task occupies its device for its time; a task starts when all its predecessors have ended and
its device is free (first come, first served; equals by number); a transfer or an AllReduce first spends its own
time, then moves its bytes; the iteration ends when every task has ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


MOST_NODES = 1 << 20
LONGEST_S = 1e9
MOST_BYTES = 1 << 50
"""Limits of a graph: times and bytes beyond them would be lost in sums."""


class Kind(IntEnum):
    """Kind of a task."""

    COMPUTE = 0
    TRANSFER = 1
    ALLREDUCE = 2
    BARRIER = 3


@dataclass(frozen=True, slots=True)
class TaskGraph:
    """A checked task graph; all arrays are (tasks,) unless stated otherwise.

    `device` is the device of a compute task, else -1; `source` and `target` are the nodes of a transfer, else -1;
    `time_s` the computing time, or what precedes the bytes; `size_bytes` what a transfer moves or an AllReduce
    reduces. `before` and `after` (edges,) are the edges: task `before[k]` ends before `after[k]` starts.
    `groups` are the member nodes of the AllReduces, `group` (tasks,) each AllReduce's place in it, else -1.
    Errors: `ValueError` that names the task.
    """

    nodes: int
    kind: Integers
    device: Integers
    time_s: Floats
    size_bytes: Integers
    source: Integers
    target: Integers
    group: Integers
    groups: tuple[tuple[int, ...], ...]
    before: Integers
    after: Integers

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise ValueError(f"a graph of {self.nodes} nodes: at least 1 is needed")
        if self.nodes > MOST_NODES:
            raise ValueError(f"a graph of {self.nodes} nodes: at most {MOST_NODES} are possible")
        _check_columns(self)
        _check_tasks(self)
        _check_edges(self)

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return self.kind.size

    @property
    def transfer_bytes(self) -> int:
        """Sum of what the transfers move."""
        return int(self.size_bytes[self.kind == Kind.TRANSFER].sum())


class TaskGraphBuilder:
    """Makes a graph task by task; each method returns the task's number for use in `after`.

    >>> job = TaskGraphBuilder(nodes=2)
    >>> forward = job.compute(0, 1e-3)
    >>> move = job.transfer(0, 1, 1_000_000, after=[forward])
    >>> job.build().transfer_bytes
    1000000
    """

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._rows: list[tuple[int, int, float, int, int, int, int]] = []
        self._groups: list[tuple[int, ...]] = []
        self._before: list[int] = []
        self._after: list[int] = []

    def compute(self, device: int, time_s: float, *, after: list[int] | None = None) -> int:
        """Add computing on a device; device numbers are free, by convention the node's."""
        return self._add((Kind.COMPUTE, device, time_s, 0, -1, -1, -1), after)

    def transfer(self, source: int, target: int, size_bytes: int, *, after: list[int] | None = None) -> int:
        """Add bytes from one node to another."""
        return self._add((Kind.TRANSFER, -1, 0.0, size_bytes, source, target, -1), after)

    def allreduce(
        self,
        members: tuple[int, ...],
        size_bytes: int,
        *,
        time_s: float = 0.0,
        after: list[int] | None = None,
    ) -> int:
        """Add a sum of `size_bytes` over the members, which takes `time_s` of local work first."""
        self._groups.append(tuple(members))
        return self._add((Kind.ALLREDUCE, -1, time_s, size_bytes, -1, -1, len(self._groups) - 1), after)

    def barrier(self, *, after: list[int]) -> int:
        """Add a task that only waits."""
        return self._add((Kind.BARRIER, -1, 0.0, 0, -1, -1, -1), after)

    def build(self) -> TaskGraph:
        """Return the graph, checked. Raises `ValueError`."""
        columns = list(zip(*self._rows, strict=True)) if self._rows else [()] * 7
        kind, device, time_s, size_bytes, source, target, group = columns
        return TaskGraph(
            nodes=self._nodes,
            kind=np.array(kind, dtype=np.int64),
            device=np.array(device, dtype=np.int64),
            time_s=np.array(time_s, dtype=np.float64),
            size_bytes=np.array(size_bytes, dtype=np.int64),
            source=np.array(source, dtype=np.int64),
            target=np.array(target, dtype=np.int64),
            group=np.array(group, dtype=np.int64),
            groups=tuple(self._groups),
            before=np.array(self._before, dtype=np.int64),
            after=np.array(self._after, dtype=np.int64),
        )

    def _add(self, row: tuple[int, int, float, int, int, int, int], after: list[int] | None) -> int:
        self._rows.append(row)
        number = len(self._rows) - 1
        if after:
            self._before.extend(after)
            self._after.extend([number] * len(after))
        return number


def _check_columns(graph: TaskGraph) -> None:
    columns = ("device", "time_s", "size_bytes", "source", "target", "group")
    lengths = {name: getattr(graph, name).shape for name in columns}
    wrong = {name: shape for name, shape in lengths.items() if shape != graph.kind.shape}
    if wrong or graph.before.shape != graph.after.shape:
        raise ValueError(f"columns of a task graph must have one entry a task ({graph.kind.shape}): {wrong}")


def _first(where: NDArray[np.bool_]) -> int | None:
    return int(np.argmax(where)) if where.any() else None


def _check_tasks(graph: TaskGraph) -> None:
    moves, sums = graph.kind == Kind.TRANSFER, graph.kind == Kind.ALLREDUCE
    ends = np.stack([graph.source, graph.target])
    faults = {
        "a time that is not a finite time of 0 s or more": ~(np.isfinite(graph.time_s) & (graph.time_s >= 0)),
        f"a time of more than {LONGEST_S:g} s": graph.time_s > LONGEST_S,
        "a negative size": graph.size_bytes < 0,
        f"more than {MOST_BYTES} bytes": graph.size_bytes > MOST_BYTES,
        "no device": (graph.kind == Kind.COMPUTE) & (graph.device < 0),
        "an unknown kind": ~np.isin(graph.kind, list(Kind)),
        f"a node outside 0..{graph.nodes - 1}": moves & ((ends < 0) | (ends >= graph.nodes)).any(axis=0),
        "no group": sums & ((graph.group < 0) | (graph.group >= len(graph.groups))),
    }
    for fault, where in faults.items():
        task = _first(where)
        if task is not None:
            raise ValueError(f"task {task} of the graph has {fault}: correct it where the graph is made")
    if graph.size_bytes.sum(dtype=np.float64) * 2 * graph.nodes > float(1 << 62):
        raise ValueError(
            "the sizes of a graph add up to more bytes than can be counted: give it in a larger unit"
        )
    for number, members in enumerate(graph.groups):
        outside = not members or min(members) < 0 or max(members) >= graph.nodes
        if outside or len(set(members)) != len(members):
            raise ValueError(f"group {number} {members} must name different nodes of 0..{graph.nodes - 1}")


def _check_edges(graph: TaskGraph) -> None:
    """Check that edges name tasks, and that following them never comes back."""
    edges = np.concatenate([graph.before, graph.after])
    if edges.size and (edges.min() < 0 or edges.max() >= graph.tasks):
        raise ValueError(f"an edge names a task outside 0..{graph.tasks - 1}")
    waits = np.bincount(graph.after, minlength=graph.tasks)
    order = np.argsort(graph.before, kind="stable")
    first = np.searchsorted(graph.before[order], np.arange(graph.tasks + 1))
    following = graph.after[order].tolist()
    bounds, left = first.tolist(), waits.tolist()
    free = np.flatnonzero(waits == 0).tolist()
    for task in free:  # grows while it is walked
        for successor in following[bounds[task] : bounds[task + 1]]:
            left[successor] -= 1
            if left[successor] == 0:
                free.append(successor)
    if len(free) < graph.tasks:
        task = next(number for number, count in enumerate(left) if count)
        raise ValueError(f"task {task} of the graph waits for itself: edges must not form a cycle")
