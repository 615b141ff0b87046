"""Task graphs as `.npz` files, column by column as the TopoOpt artifact has them.

Columns: `task_type`, `task_id`, `task_device`, `task_runtime_ms`, `task_bytes`; successors of task i are the ids
`next_ids[next_ptr[i]:next_ptr[i + 1]]`, for an AllReduce its member nodes; `device_id`, `device_type`,
`device_property`; `meta`, JSON with `nodes` and `switches`. The property of a network device holds its pair of
nodes as source * (nodes + switches) + destination: with that divisor every transfer of the published graphs ends
on the node whose computing waits for it, with `nodes` alone it does not. Devices that compute are numbered again from
0, in the order of the file.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sim.models.network.taskgraph.graph import MOST_BYTES, MOST_NODES, Integers, Kind, TaskGraph

_KINDS = {0: Kind.COMPUTE, 1: Kind.COMPUTE, 2: Kind.TRANSFER, 3: Kind.COMPUTE, 4: Kind.COMPUTE}
_KINDS |= {5: Kind.TRANSFER, 6: Kind.ALLREDUCE}
_NETWORK = (13, 14)
_COLUMNS = (
    *("task_type", "task_id", "task_device", "task_runtime_ms", "task_bytes", "next_ptr", "next_ids"),
    *("device_type", "device_id", "device_property", "meta"),
)


def read_task_graph(path: str | Path) -> TaskGraph:
    """Return the graph in a file. Raises `ValueError` that names the file and what is wrong with it; `OSError`."""
    try:
        with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            missing = [name for name in _COLUMNS if name not in file]
            if missing:
                raise ValueError(f"it lacks {', '.join(missing)}")
            return _graph({name: file[name] for name in _COLUMNS})
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} is not a valid task graph: {error}; see the columns in sim.models.network.taskgraph.file"
        ) from error


def _graph(columns: Mapping[str, Any]) -> TaskGraph:
    meta = json.loads(str(columns["meta"]))
    nodes, switches = int(meta["nodes"]), int(meta.get("switches", 0))
    if not 0 < nodes <= MOST_NODES or not 0 <= switches <= MOST_NODES:
        raise ValueError(
            f"it has {nodes} nodes and {switches} switches: 1 to {MOST_NODES} nodes are possible"
        )
    kind = _kinds(columns["task_type"])
    device = _places(columns["device_id"], columns["task_device"])
    moves, sums, computes = kind == Kind.TRANSFER, kind == Kind.ALLREDUCE, kind == Kind.COMPUTE
    if (device[moves | computes] < 0).any():
        raise ValueError("a task names a device that is not listed")
    ends = _ends(columns, device, moves, nodes + switches)
    used = np.unique(device[computes])
    first = columns["next_ptr"].astype(np.int64)
    groups = tuple(
        tuple(map(int, columns["next_ids"][first[i] : first[i + 1]])) for i in np.flatnonzero(sums)
    )
    before, after = _edges(columns, first, sums)
    return TaskGraph(
        nodes=nodes,
        kind=kind,
        device=np.where(computes, np.searchsorted(used, device), -1),
        time_s=np.where(moves, 0.0, columns["task_runtime_ms"].astype(np.float64) * 1e-3),
        size_bytes=_sizes(columns["task_bytes"]),
        source=ends[0],
        target=ends[1],
        group=np.where(sums, np.cumsum(sums) - 1, -1),
        groups=groups,
        before=before,
        after=after,
    )


def _sizes(column: Any) -> Integers:
    """Return sizes as integers; those that are too large stay so, for the graph to refuse."""
    sizes: Integers = np.minimum(column, np.asarray(2 * MOST_BYTES, column.dtype)).astype(np.int64)
    return sizes


def _kinds(types: Any) -> Integers:
    unknown = set(np.unique(types).tolist()) - set(_KINDS)
    if unknown:
        raise ValueError(f"task types {sorted(unknown)} are unknown")
    table = np.array([_KINDS[number] for number in sorted(_KINDS)], dtype=np.int64)
    kinds: Integers = table[types.astype(np.int64)]
    return kinds


def _places(ids: Any, wanted: Any) -> Integers:
    """Return the position of each wanted id in `ids`, -1 for those that are not there."""
    if not ids.size:
        return np.full(wanted.shape, -1, np.int64)
    order = np.argsort(ids, kind="stable")
    place = order[np.searchsorted(ids[order], wanted).clip(max=ids.size - 1)]
    places: Integers = np.where(ids[place] == wanted, place, -1).astype(np.int64)
    return places


def _ends(columns: Mapping[str, Any], device: Integers, moves: Any, vertices: int) -> Integers:
    """Source and target of each transfer, (2, tasks); -1 elsewhere. A transfer inside a node has no network."""
    ends = np.full((2, device.size), -1, np.int64)
    if not np.isin(columns["device_type"][device[moves]], _NETWORK).all():
        raise ValueError("a transfer is on a device that is not a network (types 13 and 14)")
    pair = columns["device_property"][device[moves]].astype(np.int64)
    ends[:, moves] = np.stack([pair // vertices, pair % vertices])
    return ends


def _edges(columns: Mapping[str, Any], first: Integers, sums: Any) -> tuple[Integers, Integers]:
    task = np.repeat(np.arange(sums.size), np.diff(first))
    follows = ~sums[task]
    after = _places(columns["task_id"], columns["next_ids"][follows])
    if (after < 0).any():
        raise ValueError("a successor is not listed as a task")
    return task[follows], after
