"""Simulation of one iteration of a job on a fabric, and its figures for comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sim.models.network.execution import Execution, StalledError
from sim.models.network.taskgraph import Kind, TaskGraph, read_task_graph
from testbed.design.fabrics.kind import ChosenFabric
from testbed.errors import WorkloadError

__all__ = [
    "Execution",
    "TaskGraph",
    "compute_figures",
    "compute_link_traffic",
    "draw_timeline",
    "read_graph",
    "simulate_on",
    "write_trace",
]


def read_graph(path: str | Path) -> TaskGraph:
    """Return the task graph in a `.npz` file. Raises `WorkloadError` for an invalid file, and `OSError`."""
    try:
        return read_task_graph(path)
    except ValueError as error:
        raise WorkloadError(str(error)) from error


def simulate_on(chosen_fabric: ChosenFabric, graph: TaskGraph, *, trace: bool = False) -> Execution:
    """Return the execution of one iteration. Raises `WorkloadError` if the graph does not fit or never ends."""
    try:
        return chosen_fabric.run(graph, trace=trace)
    except (StalledError, ValueError) as error:
        raise WorkloadError(
            f"the iteration does not run on fabric {chosen_fabric.name!r}: {error}"
        ) from error


def compute_figures(
    chosen_fabric: ChosenFabric, execution: Execution, arithmetic_s: float | None = None
) -> dict[str, Any]:
    """Return the figures of a simulated iteration, by name: times, bytes, links and cost.

    - `compute_ms`: computing time of the busiest device.
    - `mfu`: `arithmetic_s` (the time of the model's operations at the peak rate of all devices) divided by the
      iteration time; None without `arithmetic_s`.
    - `bandwidth_tax`: bytes on links between hosts, divided by bytes sent; 1 if hosts do not forward.
    - `busiest_link`: fraction of the iteration in which the fullest link was full.
    - `bytes_in`: bytes that hosts receive: `bytes_out` at their target, and `bytes_forwarded` to be sent on.
    - `reconfigurations`, `outage_ms`: how often circuits moved, and how long some circuits were dark.
    - `allocation_s`: processor time for the choice of circuits.
    """
    graph = execution.graph
    is_computing = graph.kind == Kind.COMPUTE
    compute_s_by_device = np.bincount(graph.device[is_computing], graph.time_s[is_computing])
    return {
        "iteration_ms": execution.iteration_s * 1e3,
        "compute_ms": float(compute_s_by_device.max(initial=0.0)) * 1e3,
        "mfu": arithmetic_s / execution.iteration_s if arithmetic_s and execution.iteration_s else None,
        "bandwidth_tax": execution.bandwidth_tax,
        "payload_bytes": execution.payload_bytes,
        "wire_bytes": execution.wire_bytes,
        "busiest_link": _compute_busiest_link(chosen_fabric, execution),
        "bytes_in": execution.received_bytes,
        "bytes_out": execution.wire_bytes,
        "bytes_forwarded": execution.forwarded_bytes,
        "reconfigurations": execution.reconfiguration_count,
        "outage_ms": execution.outage_s * 1e3,
        "allocation_s": execution.allocation_s,
        "link_count": chosen_fabric.fabric.link_count,
        "tasks": graph.task_count,
        "cost_usd": round(chosen_fabric.fabric.cost.total_usd),
        "prices_recalled": chosen_fabric.fabric.cost.is_unverified,
    }


def compute_link_traffic(execution: Execution) -> list[dict[str, Any]]:
    """Return the links that carried data, with their bytes and the fraction of the time in which they were full.

    A link is named by its two ends: a server's number, or a number from the node count on for a switch. Bytes count
    whole packets. `busy` is None for moving circuits, which exist only part of the time.
    """
    fabric, time_s = execution.fabric, execution.iteration_s
    rows = []
    for link in np.flatnonzero(execution.link_bytes).tolist():
        carried_bytes, bits_per_s = int(execution.link_bytes[link]), float(fabric.capacity_bps[link])
        busy_fraction = carried_bytes * 8 / bits_per_s / time_s if bits_per_s else None
        end_names = f"{fabric.sources[link]}-{fabric.targets[link]}"
        rows.append({"link": end_names, "bytes": carried_bytes, "busy": busy_fraction})
    return rows


def write_trace(execution: Execution, folder: str | Path) -> tuple[Path, ...]:
    """Write `flows.parquet`, `links.parquet` and `tasks.parquet` into a folder, and return their paths.

    Raises `WorkloadError` without pyarrow, and `OSError`.
    """
    from sim.models.network.results.traces import write_traces

    try:
        return write_traces(execution, folder)
    except ModuleNotFoundError as error:
        raise WorkloadError(str(error)) from error


def draw_timeline(execution: Execution, path: str | Path, title: str) -> None:
    """Write the timeline of an iteration. Raises `WorkloadError` without matplotlib, and `OSError`."""
    from sim.models.network.results import timeline

    try:
        timeline.draw_timeline(execution, path, title=title)
    except (ModuleNotFoundError, ValueError) as error:
        raise WorkloadError(f"cannot write the time line {path}: {error}") from error


def _compute_busiest_link(chosen_fabric: ChosenFabric, execution: Execution) -> float | None:
    """Return the fraction of the iteration in which the fullest link was full; None for moving circuits."""
    if chosen_fabric.circuits is not None:
        return None
    bits = execution.link_bytes * 8.0
    if not bits.any():
        return 0.0
    return float((bits / chosen_fabric.fabric.capacity_bps).max()) / execution.iteration_s
