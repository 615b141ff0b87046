"""A plot of an iteration over time: computation of devices, transfers, use of the links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightbed.output_file import save_figure
from lightbed.wording import describe_extra
from sim.models.network.execution.simulation import Execution
from sim.models.network.results.traces import make_link_table
from sim.models.network.taskgraph import Kind

Floats = NDArray[np.float64]

_MAX_DEVICES = 16
"""Maximum number of device rows; more would be too thin to see, so an evenly spaced selection is shown."""
_COLUMN_COUNT = 400
_MAX_MOVE_ROWS = 60
_COLOURS = {
    "compute": "#4c72b0",
    "allreduce": "#dd8452",
    "transfer": "#55a868",
    "exchange": "#8172b3",
    "mean": "#333333",
    "top": "#c44e52",
}


def compute_utilisation(execution: Execution, columns: int = _COLUMN_COUNT) -> tuple[Floats, Floats]:
    """Return the borders of `columns` equal intervals (columns + 1,), and each link's use in 0..1 (links, columns).

    Use is the exact mean over an interval, because rates are piecewise constant. It is NaN for moving circuits, whose
    capacity changes. Raise `ValueError` without a trace.
    """
    table = make_link_table(execution)
    borders = np.linspace(0.0, execution.iteration_s, columns + 1)
    cumulative_bits = np.zeros((execution.fabric.link_count, columns + 1))
    for sign, at_s in ((1.0, table["begin_s"]), (-1.0, table["end_s"])):
        link = table["link"]
        rate_bps = sign * table["rate_bps"]
        first = np.searchsorted(borders, at_s)
        slope, offset = np.zeros_like(cumulative_bits), np.zeros_like(cumulative_bits)
        is_inside = first < borders.size
        np.add.at(slope, (link[is_inside], first[is_inside]), rate_bps[is_inside])
        np.add.at(offset, (link[is_inside], first[is_inside]), (rate_bps * at_s)[is_inside])
        cumulative_bits += np.cumsum(slope, axis=1) * borders - np.cumsum(offset, axis=1)
    moved_bits = np.diff(cumulative_bits, axis=1)
    capacity_bps = execution.fabric.capacity_bps
    capacity_bits = np.where(capacity_bps > 0, capacity_bps, np.nan)[:, None] * np.diff(borders)
    return borders, moved_bits / capacity_bits


def draw_timeline(execution: Execution, path: str | Path, *, title: str = "") -> Path:
    """Write the plot to `path` and return the path; its suffix selects the format (`.png`, `.svg`, `.pdf`).

    From top to bottom: computation by device, AllReduces and transfers by start, use of the mean and the busiest link.
    Raise `ValueError` without a trace, `ModuleNotFoundError` without matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the plot needs matplotlib: {describe_extra('kit')}", name=error.name
        ) from error
    figure = Figure(figsize=(11, 7), layout="constrained")
    device_axes, transfer_axes, link_axes = figure.subplots(3, 1, sharex=True, height_ratios=(3, 2, 2))
    _draw_devices(device_axes, execution)
    _draw_moves(transfer_axes, execution)
    _draw_links(link_axes, execution)
    device_axes.set_title(
        title or f"SIMULATED: one iteration on {execution.fabric.name}, {execution.iteration_s * 1e3:.2f} ms"
    )
    link_axes.set_xlabel("time (ms)")
    link_axes.set_xlim(0, execution.iteration_s * 1e3)
    figure.align_ylabels()
    save_figure(figure, path)
    return Path(path)


def _draw_bars(axes: Any, begin_s: Floats, end_s: Floats, tops: Floats, height: float, colour: str) -> None:
    """Draw bars as a single collection, because thousands of separate bars would take minutes."""
    from matplotlib.collections import PolyCollection

    left_ms, right_ms, bottoms = begin_s * 1e3, end_s * 1e3, tops + height
    corners = [(left_ms, tops), (right_ms, tops), (right_ms, bottoms), (left_ms, bottoms)]
    outlines: Any = np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)
    axes.add_collection(PolyCollection(outlines, facecolors=colour, edgecolors=colour, linewidths=0.2))


def _draw_devices(axes: Any, execution: Execution) -> None:
    graph = execution.graph
    used_devices = np.unique(graph.device[graph.kind == Kind.COMPUTE])
    shown_devices = (
        used_devices
        if used_devices.size <= _MAX_DEVICES
        else used_devices[np.linspace(0, used_devices.size - 1, _MAX_DEVICES).round().astype(int)]
    )
    is_shown = (graph.kind == Kind.COMPUTE) & np.isin(graph.device, shown_devices)
    rows = np.searchsorted(shown_devices, graph.device[is_shown]) + 0.1
    _draw_bars(axes, execution.begin_s[is_shown], execution.end_s[is_shown], rows, 0.8, _COLOURS["compute"])
    axes.set_yticks(np.arange(len(shown_devices)) + 0.5, [str(device) for device in shown_devices])
    axes.set_ylim(max(len(shown_devices), 1), 0)
    axes.set_ylabel(f"device ({len(shown_devices)} of {used_devices.size})")


def _draw_moves(axes: Any, execution: Execution) -> None:
    is_lasting = execution.end_s > execution.begin_s
    row = 0.0
    for kind in (Kind.ALLREDUCE, Kind.TRANSFER, Kind.EXCHANGE):
        name = kind.name.lower()
        tasks = np.flatnonzero((execution.graph.kind == kind) & is_lasting)
        tasks = tasks[np.lexsort((execution.end_s[tasks], execution.begin_s[tasks]))]
        height = min(1.0, _MAX_MOVE_ROWS / max(tasks.size, 1))
        tops = (row + height * np.arange(tasks.size)).astype(np.float64)
        _draw_bars(axes, execution.begin_s[tasks], execution.end_s[tasks], tops, height, _COLOURS[name])
        row += height * tasks.size
        if not tasks.size:
            continue
        axes.plot([], [], color=_COLOURS[name], linewidth=6, label=f"{name} ({tasks.size})")
    axes.set_ylim(max(row, 1), 0)
    axes.set_yticks([])
    axes.set_ylabel("transfers, by start")
    if row:
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)


def _draw_links(axes: Any, execution: Execution) -> None:
    borders, utilisation = compute_utilisation(execution)
    used_utilisation = utilisation[(execution.link_bytes > 0) & (execution.fabric.capacity_bps > 0)]
    if used_utilisation.size:
        axes.stairs(
            used_utilisation.max(axis=0) * 100, borders * 1e3, color=_COLOURS["top"], label="busiest link"
        )
        axes.stairs(
            used_utilisation.mean(axis=0) * 100,
            borders * 1e3,
            color=_COLOURS["mean"],
            fill=True,
            alpha=0.6,
            label="mean",
        )
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    axes.set_ylim(0, 105)
    axes.set_ylabel("links busy (%)")
