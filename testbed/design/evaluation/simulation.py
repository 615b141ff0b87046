"""One iteration of a job on a chosen fabric, and the figures of it that people compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sim.models.network.execution import Execution, Stalled
from sim.models.network.taskgraph import Kind, TaskGraph, read_task_graph
from testbed.design.fabrics.kind import ChosenFabric
from testbed.errors import WorkloadError

__all__ = [
    "Execution",
    "TaskGraph",
    "draw_timeline",
    "figures",
    "link_traffic",
    "read_graph",
    "simulate_on",
    "write_trace",
]


def read_graph(path: str | Path) -> TaskGraph:
    """Return a task graph in a `.npz` file. Raises `WorkloadError`, `OSError`."""
    try:
        return read_task_graph(path)
    except ValueError as error:
        raise WorkloadError(str(error)) from error


def simulate_on(chosen: ChosenFabric, graph: TaskGraph, *, trace: bool = False) -> Execution:
    """Run one iteration. Raises `WorkloadError` when it cannot run there, or never ends."""
    try:
        return chosen.run(graph, trace=trace)
    except (Stalled, ValueError) as error:
        raise WorkloadError(f"the iteration does not run on fabric {chosen.name!r}: {error}") from error


def figures(chosen: ChosenFabric, done: Execution) -> dict[str, Any]:
    """Return what a simulated iteration took, moved and costs, by name.

    `compute_ms` is what the busiest device computed; `bandwidth_tax` bytes on links between hosts over bytes sent,
    1 where hosts forward for nobody; `busiest_link` the part of the iteration in which the fullest link was full.
    """
    fabric, graph = chosen.fabric, done.graph
    computing = graph.kind == Kind.COMPUTE
    by_device_s = np.bincount(graph.device[computing], graph.time_s[computing])
    return {
        "iteration_ms": done.iteration_s * 1e3,
        "compute_ms": float(by_device_s.max(initial=0.0)) * 1e3,
        "bandwidth_tax": done.bandwidth_tax if fabric.hosts_forward else 1.0,
        "payload_bytes": done.payload_bytes,
        "wire_bytes": done.wire_bytes,
        "busiest_link": _busiest_link(chosen, done),
        "link_count": fabric.links,
        "tasks": graph.tasks,
        "cost_usd": round(fabric.cost.total_usd),
        "prices_recalled": fabric.cost.recalled,
    }


def link_traffic(done: Execution) -> list[dict[str, Any]]:
    """Return the links that carried anything, what they carried, and the part of the time they were full.

    A link is named by its ends, servers by number; those from `nodes` on are switches. Bytes are in whole packets. A
    link that is there for a part of the time, on circuits that move, has no `busy`.
    """
    fabric, time_s = done.fabric, done.iteration_s
    rows = []
    for link in np.flatnonzero(done.link_bytes).tolist():
        carried, bits_per_s = int(done.link_bytes[link]), float(fabric.capacity_bps[link])
        busy = carried * 8 / bits_per_s / time_s if bits_per_s else None
        ends = f"{fabric.sources[link]}-{fabric.targets[link]}"
        rows.append({"link": ends, "bytes": carried, "busy": busy})
    return rows


def write_trace(done: Execution, folder: str | Path) -> tuple[Path, ...]:
    """Return `flows.parquet`, `links.parquet` and `tasks.parquet`.

    Raises `WorkloadError` without pyarrow, `OSError`.
    """
    from sim.models.network.results.traces import write_traces

    try:
        return write_traces(done, folder)
    except ModuleNotFoundError as error:
        raise WorkloadError(str(error)) from error


def draw_timeline(done: Execution, path: str | Path, title: str) -> None:
    """Draw the time line as a plot. Raises `WorkloadError` without matplotlib, `OSError`."""
    from sim.models.network.results import timeline

    try:
        timeline.draw_timeline(done, path, title=title)
    except (ModuleNotFoundError, ValueError) as error:
        raise WorkloadError(f"cannot write the time line {path}: {error}") from error


def _busiest_link(chosen: ChosenFabric, done: Execution) -> float | None:
    """Return None for circuits that move: a pair's link is there for a part of the time."""
    if chosen.circuits is not None:
        return None
    bits = done.link_bytes * 8.0
    if not bits.any():
        return 0.0
    return float((bits / chosen.fabric.capacity_bps).max()) / done.iteration_s
