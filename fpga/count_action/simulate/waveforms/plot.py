"""Plot of the waveforms of a run, with fires marked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fpga.count_action.model import Datapath
from fpga.count_action.ports import Rows
from fpga.count_action.simulate.signals import Wire, find_changes, list_input_wires, list_output_wires
from lightbed.output_file import save_figure
from lightbed.wording import describe_extra

MAX_WIRES = 32
MAX_CYCLES = 64
_INPUT, _COUNT, _FIRE, _OUTPUT_COLOUR = "#5b6b7b", "#3a6ea5", "#d1495b", "#2e8b6f"
_TRACE_HEIGHT = 0.62

Trace = tuple[Wire, list[int], str]
"""A wire, its values, and its colour."""


def draw_waveforms(
    datapath: Datapath, inputs: Rows, outputs: Rows, path: Path, *, first_cycle: int = 0
) -> None:
    """Write a PNG of up to 64 cycles and the 32 most active wires.

    Raise ImportError if matplotlib is not installed, and OSError if the file cannot be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(f"a plot needs matplotlib: {describe_extra('hdl')}") from error
    cycle_slice = slice(first_cycle, first_cycle + MAX_CYCLES)
    traces = choose_traces(datapath, inputs[cycle_slice], outputs[cycle_slice])
    cycle_count = max(1, len(inputs[cycle_slice]))
    figure = Figure(
        figsize=(2.6 + 0.34 * max(cycle_count, 16), 0.7 + 0.36 * len(traces)), layout="constrained"
    )
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for row, trace in enumerate(traces):
        _draw_trace(axes, -row, trace)
    _draw_axes(axes, datapath, traces, first_cycle, cycle_count)
    save_figure(figure, path)


def choose_traces(datapath: Datapath, inputs: Rows, outputs: Rows) -> list[Trace]:
    """Return the active wires, inputs first, then modules; at most the 32 most active."""
    wires = [(wire, inputs, _INPUT) for wire in list_input_wires(datapath)]
    wires += [(wire, outputs, _choose_colour(wire)) for wire in list_output_wires(datapath)]
    activities = [(index, _measure_activity(wire, rows)) for index, (wire, rows, _) in enumerate(wires)]
    ranked_activities = sorted(
        activities,
        key=lambda activity: (-_get_priority(wires[activity[0]][0]) if activity[1] else 0, -activity[1]),
    )
    shown_indices = sorted(index for index, changes in ranked_activities[:MAX_WIRES] if changes) or [
        index for index, _ in ranked_activities[:4]
    ]
    return [
        (wire, wire.read_series(rows), colour)
        for wire, rows, colour in (wires[index] for index in shown_indices)
    ]


def _measure_activity(wire: Wire, rows: Rows) -> float:
    """Return the number of changes of a wire; 0.5 for a constant 1, which is still informative."""
    starts_high = wire.width == 1 and any(wire.read_series(rows[:1]))
    return float(find_changes(wire, rows).sum()) or 0.5 * starts_high


def _get_priority(wire: Wire) -> int:
    """Return the priority of a wire: 3 for fires and counts, 1 for data, 2 for others."""
    return 3 if wire.name.startswith(("fire_o", "count_o")) else 1 if "_data_" in wire.name else 2


def _choose_colour(wire: Wire) -> str:
    if wire.name.startswith(("fire_o", "overshoot_o", "saturated_o")):
        return _FIRE
    return _COUNT if wire.name.startswith("count_o") else _OUTPUT_COLOUR


def _draw_trace(axes: Any, base_y: float, trace: Trace) -> None:
    wire, values, colour = trace
    if wire.width == 1:
        _draw_bit(axes, base_y, values, colour)
    else:
        _draw_bus(axes, base_y, values, colour)


def _draw_bit(axes: Any, base_y: float, values: list[int], colour: str) -> None:
    edges = range(len(values) + 1)
    y_values = [base_y + _TRACE_HEIGHT * value for value in [*values, values[-1]]]
    axes.step(edges, y_values, where="post", color=colour, linewidth=1.4)
    axes.fill_between(edges, base_y, y_values, step="post", color=colour, alpha=0.18, linewidth=0)


def _draw_bus(axes: Any, base_y: float, values: list[int], colour: str) -> None:
    """Draw a lozenge for every run of equal values, with the value in it if there is room; 0 is a plain line."""
    begin = 0
    for end in range(1, len(values) + 1):
        if end < len(values) and values[end] == values[begin]:
            continue
        if values[begin] == 0:
            axes.plot([begin, end], [base_y, base_y], color=colour, linewidth=1, alpha=0.6)
        else:
            _draw_lozenge(axes, base_y, (begin, end), colour)
            text = str(values[begin])
            if len(text) <= 3.2 * (end - begin):
                axes.text(
                    (begin + end) / 2, base_y + _TRACE_HEIGHT / 2, text, ha="center", va="center", fontsize=7
                )
        begin = end


def _draw_lozenge(axes: Any, base_y: float, span: tuple[int, int], colour: str) -> None:
    begin, end = span
    tip_width, middle, top = 0.12, base_y + _TRACE_HEIGHT / 2, base_y + _TRACE_HEIGHT
    x_values = [begin, begin + tip_width, end - tip_width, end, end - tip_width, begin + tip_width]
    y_values = [middle, top, top, middle, base_y, base_y]
    axes.fill(x_values, y_values, facecolor=colour + "22", edgecolor=colour, linewidth=1)


def _draw_axes(
    axes: Any, datapath: Datapath, traces: list[Trace], first_cycle: int, cycle_count: int
) -> None:
    """Add the names of wires, the numbers of cycles, and a shaded band for each fire."""
    for row, (wire, values, _) in enumerate(traces):
        if wire.name.startswith("fire_o"):
            for cycle in (index for index, value in enumerate(values) if value):
                axes.axvspan(cycle, cycle + 1, color=_FIRE, alpha=0.05, linewidth=0)
        axes.axhline(-row - 0.19, color="#e8e8e8", linewidth=0.6, zorder=0)
    axes.set_yticks(
        [-row + _TRACE_HEIGHT / 2 for row in range(len(traces))], [wire.name for wire, *_ in traces]
    )
    for label, (*_, colour) in zip(axes.get_yticklabels(), traces, strict=True):
        label.set(color=colour, fontsize=8, fontfamily="monospace")
    tick_step = 1 if cycle_count <= 32 else 4
    axes.set_xticks(
        [cycle + 0.5 for cycle in range(0, cycle_count, tick_step)],
        range(first_cycle, first_cycle + cycle_count, tick_step),
    )
    axes.tick_params(axis="both", length=0, labelsize=8)
    axes.set_xlim(0, cycle_count)
    axes.set_ylim(-len(traces) + 0.7, 1)
    axes.spines[:].set_visible(False)
    axes.set_title(f"{datapath.name}, cycle by cycle", loc="left", fontsize=10, fontweight="bold")
