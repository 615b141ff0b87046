"""One iteration of a training job as a graph of computation, communication and barriers, and its file format.

A compute task occupies its device for its time. A task starts when all its predecessors have ended and its device is
free (first come, first served; ties by task number). A transfer or an AllReduce first spends its own time, then moves
its bytes. An exchange stands for many transfers that begin together, and ends with the last of them. Files have no
exchanges. The iteration ends when every task has ended.

Files are `.npz` with the columns of the TopoOpt artifact: `task_type`, `task_id`, `task_device`, `task_runtime_ms`,
`task_bytes`; `next_ids[next_ptr[i]:next_ptr[i + 1]]` are the ids of the successors of task i, or the member nodes if it
is an AllReduce; `device_id`, `device_type`, `device_property`; `meta`, JSON with `nodes` and `switches`. The property
of a network device is its pair of nodes, source * (nodes + switches) + destination: with this divisor every transfer of
the published graphs ends on the node whose computation waits for it, with `nodes` alone it does not. Devices that
compute are renumbered from 0, in the order of the file.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MAX_NODES = 1 << 20
MAX_TIME_S = 1e9
MAX_BYTES = 1 << 50
"""Limits of a graph: beyond them, sums of times and bytes would lose precision or overflow."""
_NETWORK_TYPES = (13, 14)
_COLUMNS = (
    *("task_type", "task_id", "task_device", "task_runtime_ms", "task_bytes", "next_ptr", "next_ids"),
    *("device_type", "device_id", "device_property", "meta"),
)


class Kind(IntEnum):
    """Kind of a task."""

    COMPUTE = 0
    TRANSFER = 1
    ALLREDUCE = 2
    BARRIER = 3
    EXCHANGE = 4


_KINDS = {0: Kind.COMPUTE, 1: Kind.COMPUTE, 2: Kind.TRANSFER, 3: Kind.COMPUTE, 4: Kind.COMPUTE}
_KINDS |= {5: Kind.TRANSFER, 6: Kind.ALLREDUCE}
"""Kind of each `task_type` of a file."""


class Exchange(NamedTuple):
    """Transfers of one task: `size_bytes` from node `source` to node `target`, columns (transfers,)."""

    source: Integers
    target: Integers
    size_bytes: Integers


@dataclass(frozen=True, slots=True)
class TaskGraph:
    """A checked task graph; all arrays are (tasks,) unless stated otherwise.

    `device` is the device of a compute task, else -1; `source` and `target` are the nodes of a transfer, else -1;
    `time_s` is the computing time, or the time before the bytes move; `size_bytes` is the size of a transfer, of all
    transfers of an exchange, or of the tensor of an AllReduce. Edges are (edges,): task `before[k]` ends before task
    `after[k]` starts. `groups` holds the member nodes of the AllReduces, `exchanges` the transfers of the exchanges;
    `group` is the index of a task in `groups` or `exchanges`, else -1.

    Raise `ValueError` if the graph is inconsistent, exceeds the limits, or has a cycle.
    """

    node_count: int
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
    exchanges: tuple[Exchange, ...] = ()

    def __post_init__(self) -> None:
        if self.node_count < 1:
            raise ValueError(f"a graph of {self.node_count} nodes: at least 1 is needed")
        if self.node_count > MAX_NODES:
            raise ValueError(
                f"a graph of {self.node_count} nodes is too large: at most {MAX_NODES} are possible"
            )
        columns = ("device", "time_s", "size_bytes", "source", "target", "group")
        shapes = {name: getattr(self, name).shape for name in columns}
        wrong_shapes = {name: shape for name, shape in shapes.items() if shape != self.kind.shape}
        if wrong_shapes or self.before.shape != self.after.shape:
            raise ValueError(
                f"columns of a task graph must have one entry per task ({self.kind.shape}): {wrong_shapes}"
            )
        _check_tasks(self)
        _check_edges(self)

    @property
    def task_count(self) -> int:
        """Number of tasks."""
        return self.kind.size

    @property
    def transfer_bytes(self) -> int:
        """Total bytes of all transfers, including the transfers of exchanges."""
        return int(self.size_bytes[np.isin(self.kind, (Kind.TRANSFER, Kind.EXCHANGE))].sum())


class TaskGraphBuilder:
    """Builder of a task graph; methods that add a task return its number, for use in `predecessors`.

    >>> job = TaskGraphBuilder(node_count=2)
    >>> forward = job.add_compute(0, 1e-3)
    >>> move = job.add_transfer(0, 1, 1_000_000, predecessors=[forward])
    >>> job.build().transfer_bytes
    1000000
    """

    def __init__(self, node_count: int) -> None:
        self._nodes = node_count
        self._rows: list[tuple[int, int, float, int, int, int, int]] = []
        self._groups: list[tuple[int, ...]] = []
        self._exchanges: list[Exchange] = []
        self._position_of: dict[int, int] = {}
        self._predecessor: list[int] = []
        self._successor: list[int] = []

    def add_compute(self, device: int, time_s: float, *, predecessors: list[int] | None = None) -> int:
        """Add computation on a device; any device number is valid, by convention the number of the node."""
        return self._add((Kind.COMPUTE, device, time_s, 0, -1, -1, -1), predecessors)

    def add_transfer(
        self, source: int, target: int, size_bytes: int, *, predecessors: list[int] | None = None
    ) -> int:
        """Add a transfer from one node to another."""
        return self._add((Kind.TRANSFER, -1, 0.0, size_bytes, source, target, -1), predecessors)

    def add_allreduce(
        self,
        members: tuple[int, ...],
        size_bytes: int,
        *,
        time_s: float = 0.0,
        predecessors: list[int] | None = None,
    ) -> int:
        """Add an AllReduce of `size_bytes` over the members, after `time_s` of local work."""
        self._groups.append(tuple(members))
        return self._add(
            (Kind.ALLREDUCE, -1, time_s, size_bytes, -1, -1, len(self._groups) - 1), predecessors
        )

    def add_exchange(self, transfers: Exchange, *, predecessors: list[int] | None = None) -> int:
        """Add transfers that begin together, as one task. For equal transfers, pass the same object each time."""
        position = self._position_of.setdefault(id(transfers), len(self._exchanges))
        if position == len(self._exchanges):
            self._exchanges.append(transfers)
        total_bytes = int(transfers.size_bytes.sum())
        return self._add((Kind.EXCHANGE, -1, 0.0, total_bytes, -1, -1, position), predecessors)

    def add_barrier(self, *, predecessors: list[int]) -> int:
        """Add a task that only waits."""
        return self._add((Kind.BARRIER, -1, 0.0, 0, -1, -1, -1), predecessors)

    def build(self) -> TaskGraph:
        """Return the checked graph. Raise `ValueError` as `TaskGraph` does."""
        columns = list(zip(*self._rows, strict=True)) if self._rows else [()] * 7
        kind, device, time_s, size_bytes, source, target, group = columns
        return TaskGraph(
            node_count=self._nodes,
            kind=np.array(kind, dtype=np.int64),
            device=np.array(device, dtype=np.int64),
            time_s=np.array(time_s, dtype=np.float64),
            size_bytes=np.array(size_bytes, dtype=np.int64),
            source=np.array(source, dtype=np.int64),
            target=np.array(target, dtype=np.int64),
            group=np.array(group, dtype=np.int64),
            groups=tuple(self._groups),
            before=np.array(self._predecessor, dtype=np.int64),
            after=np.array(self._successor, dtype=np.int64),
            exchanges=tuple(self._exchanges),
        )

    def _add(self, row: tuple[int, int, float, int, int, int, int], predecessors: list[int] | None) -> int:
        self._rows.append(row)
        number = len(self._rows) - 1
        if predecessors:
            self._predecessor.extend(predecessors)
            self._successor.extend([number] * len(predecessors))
        return number


def _check_tasks(graph: TaskGraph) -> None:
    is_transfer, is_allreduce = graph.kind == Kind.TRANSFER, graph.kind == Kind.ALLREDUCE
    is_exchange = graph.kind == Kind.EXCHANGE
    endpoints = np.stack([graph.source, graph.target])
    faults = {
        "a time that is not a finite time of 0 s or more": ~(np.isfinite(graph.time_s) & (graph.time_s >= 0)),
        f"a time of more than {MAX_TIME_S:g} s": graph.time_s > MAX_TIME_S,
        "a negative size": graph.size_bytes < 0,
        f"more than {MAX_BYTES} bytes": graph.size_bytes > MAX_BYTES,
        "no device": (graph.kind == Kind.COMPUTE) & (graph.device < 0),
        "an unknown kind": ~np.isin(graph.kind, list(Kind)),
        f"a node outside 0..{graph.node_count - 1}": is_transfer
        & ((endpoints < 0) | (endpoints >= graph.node_count)).any(axis=0),
        "no group": is_allreduce & ((graph.group < 0) | (graph.group >= len(graph.groups))),
        "no transfers": is_exchange & ((graph.group < 0) | (graph.group >= len(graph.exchanges))),
    }
    for fault, is_faulty in faults.items():
        task = int(np.argmax(is_faulty)) if is_faulty.any() else None
        if task is not None:
            raise ValueError(f"task {task} of the graph has {fault}: correct it where the graph is made")
    # A link carries a transfer once, and an AllReduce at most in each of its 2(g - 1) rounds.
    if graph.size_bytes @ np.where(is_allreduce, 2.0 * graph.node_count, 1.0) > float(1 << 62):
        raise ValueError("the sizes of the graph overflow when added: give them in a larger unit")
    for number, (source, target, size_bytes) in enumerate(graph.exchanges):
        endpoints = np.concatenate([source, target])
        if endpoints.size and (
            endpoints.min() < 0 or endpoints.max() >= graph.node_count or size_bytes.min() < 0
        ):
            raise ValueError(
                f"exchange {number} must name nodes of 0..{graph.node_count - 1} and sizes of 0 or more"
            )
    for number, members in enumerate(graph.groups):
        has_invalid_member = not members or min(members) < 0 or max(members) >= graph.node_count
        if has_invalid_member or len(set(members)) != len(members):
            raise ValueError(
                f"group {number} {members} must name different nodes of 0..{graph.node_count - 1}"
            )


def _check_edges(graph: TaskGraph) -> None:
    """Raise `ValueError` if an edge names an unknown task, or if the edges form a cycle."""
    edges = np.concatenate([graph.before, graph.after])
    if edges.size and (edges.min() < 0 or edges.max() >= graph.task_count):
        raise ValueError(f"an edge names a task outside 0..{graph.task_count - 1}")
    if (graph.before < graph.after).all():
        return
    predecessor_counts = np.bincount(graph.after, minlength=graph.task_count)
    order = np.argsort(graph.before, kind="stable")
    first = np.searchsorted(graph.before[order], np.arange(graph.task_count + 1))
    next_tasks = graph.after[order].tolist()
    bounds, unmet_counts = first.tolist(), predecessor_counts.tolist()
    free_tasks = np.flatnonzero(predecessor_counts == 0).tolist()
    # Kahn's algorithm: the loop extends its own list, which stays incomplete if there is a cycle.
    for task in free_tasks:
        for successor in next_tasks[bounds[task] : bounds[task + 1]]:
            unmet_counts[successor] -= 1
            if unmet_counts[successor] == 0:
                free_tasks.append(successor)
    if len(free_tasks) < graph.task_count:
        task = next(number for number, count in enumerate(unmet_counts) if count)
        raise ValueError(f"task {task} of the graph depends on itself: edges must not form a cycle")


def read_task_graph(path: str | Path) -> TaskGraph:
    """Read a graph from a file. Raise `OSError` if it cannot be read, `ValueError` if it is not a valid task graph."""
    try:
        with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            missing_columns = [name for name in _COLUMNS if name not in file]
            if missing_columns:
                raise ValueError(f"it lacks {', '.join(missing_columns)}")
            return _convert_columns({name: file[name] for name in _COLUMNS})
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} is not a valid task graph: {error}; see the columns in sim.models.network.taskgraph"
        ) from error


def _convert_columns(columns: Mapping[str, Any]) -> TaskGraph:
    meta = json.loads(str(columns["meta"]))
    node_count, switch_count = int(meta["nodes"]), int(meta.get("switches", 0))
    if not 0 < node_count <= MAX_NODES or not 0 <= switch_count <= MAX_NODES:
        raise ValueError(
            f"it has {node_count} nodes and {switch_count} switches: 1 to {MAX_NODES} nodes are possible"
        )
    kind = _convert_kinds(columns["task_type"])
    device = _find_positions(columns["device_id"], columns["task_device"])
    is_transfer, is_allreduce, is_compute = (
        kind == Kind.TRANSFER,
        kind == Kind.ALLREDUCE,
        kind == Kind.COMPUTE,
    )
    is_unplaced = (is_transfer | is_compute) & (device < 0)
    if is_unplaced.any():
        task = int(np.argmax(is_unplaced))
        raise ValueError(
            f"task {columns['task_id'][task]} names device {columns['task_device'][task]}, which is not in device_id"
        )
    endpoints = _find_endpoints(columns, device, is_transfer, node_count + switch_count)
    used_devices = np.unique(device[is_compute])
    first = columns["next_ptr"].astype(np.int64)
    groups = tuple(
        tuple(map(int, columns["next_ids"][first[i] : first[i + 1]])) for i in np.flatnonzero(is_allreduce)
    )
    before, after = _find_edges(columns, first, is_allreduce)
    return TaskGraph(
        node_count=node_count,
        kind=kind,
        device=np.where(is_compute, np.searchsorted(used_devices, device), -1),
        time_s=np.where(is_transfer, 0.0, columns["task_runtime_ms"].astype(np.float64) * 1e-3),
        size_bytes=_clip_sizes(columns["task_bytes"]),
        source=endpoints[0],
        target=endpoints[1],
        group=np.where(is_allreduce, np.cumsum(is_allreduce) - 1, -1),
        groups=groups,
        before=before,
        after=after,
    )


def _clip_sizes(column: Any) -> Integers:
    """Return sizes as int64, clipped to a value that `TaskGraph` refuses, so that the cast cannot overflow."""
    sizes: Integers = np.minimum(column, np.asarray(2 * MAX_BYTES, column.dtype)).astype(np.int64)
    return sizes


def _convert_kinds(types: Any) -> Integers:
    unknown_types = set(np.unique(types).tolist()) - set(_KINDS)
    if unknown_types:
        raise ValueError(
            f"task types {sorted(unknown_types)} are unknown; known are {min(_KINDS)} to {max(_KINDS)}"
        )
    kind_by_type = np.array([_KINDS[number] for number in sorted(_KINDS)], dtype=np.int64)
    kinds: Integers = kind_by_type[types.astype(np.int64)]
    return kinds


def _find_positions(ids: Any, wanted_ids: Any) -> Integers:
    """Return the index of each wanted id in `ids`, -1 if it is missing."""
    if not ids.size:
        return np.full(wanted_ids.shape, -1, np.int64)
    order = np.argsort(ids, kind="stable")
    position = order[np.searchsorted(ids[order], wanted_ids).clip(max=ids.size - 1)]
    positions: Integers = np.where(ids[position] == wanted_ids, position, -1).astype(np.int64)
    return positions


def _find_endpoints(
    columns: Mapping[str, Any], device: Integers, is_transfer: Any, vertex_count: int
) -> Integers:
    """Return the source and target of each transfer, (2, tasks), -1 for other tasks.

    Raise `ValueError` if a transfer is on a device that is not a network.
    """
    endpoints = np.full((2, device.size), -1, np.int64)
    types = columns["device_type"][device[is_transfer]]
    is_misplaced = ~np.isin(types, _NETWORK_TYPES)
    if is_misplaced.any():
        transfer_index = int(np.argmax(is_misplaced))
        task = int(np.flatnonzero(is_transfer)[transfer_index])
        raise ValueError(
            f"task {columns['task_id'][task]} is a transfer, but its device {columns['task_device'][task]} has type "
            f"{types[transfer_index]}, not a network's type, {' or '.join(map(str, _NETWORK_TYPES))}"
        )
    pair = columns["device_property"][device[is_transfer]].astype(np.int64)
    endpoints[:, is_transfer] = np.stack([pair // vertex_count, pair % vertex_count])
    return endpoints


def _find_edges(columns: Mapping[str, Any], first: Integers, is_allreduce: Any) -> tuple[Integers, Integers]:
    task = np.repeat(np.arange(is_allreduce.size), np.diff(first))
    follows = ~is_allreduce[task]
    successors = columns["next_ids"][follows]
    after = _find_positions(columns["task_id"], successors)
    if (after < 0).any():
        raise ValueError(f"next_ids names task {successors[np.argmax(after < 0)]}, which is not in task_id")
    return task[follows], after
