"""Plot of a request on the smartNIC: its signals, and the counts of its modules with their targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fpga.smartnic.request_trace import RequestTrace
from lightning.canvas import (
    FAINT_COLOUR,
    INK_COLOUR,
    OPTICS_COLOUR,
    SERIES_COLOURS,
    Plot,
    add_heading,
    make_figure,
    mark_simulated,
)

_CLOSE_UP_CYCLES = 160
"""Cycles of the close-ups of beginning and end. Requests of up to three times as many cycles have no close-ups."""
_SIGNAL_ROWS = (
    ("frame in", "rx_valid", INK_COLOUR),
    ("layer starts", "start", INK_COLOUR),
    ("preamble", "heading", SERIES_COLOURS[0]),
    ("sending", "sending", OPTICS_COLOUR),
    ("light is back", "open", OPTICS_COLOUR),
    ("partial sums", "partial_valid", SERIES_COLOURS[1]),
    ("sums", "result_valid", SERIES_COLOURS[2]),
    ("frame out", "tx_valid", INK_COLOUR),
)
"""Signals from top to bottom: label, name, colour."""

Bits = npt.NDArray[np.bool_]


def plot_request(request: RequestTrace, title: str, device: str) -> Plot:
    """Plot every cycle of a request. A long request has close-ups of its first and last cycles at the sides."""
    spans = _choose_spans(request.cycle_count)
    targets = request.find_targets()
    counts = {name: values for name, values in request.trace.counts.items() if targets[name].any()}
    figure = make_figure(4.0 + 3.2 * len(spans), 6.8)
    panels = figure.subplots(
        1 + len(counts), len(spans), sharex="col", squeeze=False,
        gridspec_kw={
            "height_ratios": [0.42 * len(_SIGNAL_ROWS), *[1] * len(counts)],
            "width_ratios": [1] if len(spans) == 1 else [1, 1.7, 1],
        },
    )  # fmt: skip
    for column, span in enumerate(spans):
        _draw_lanes(panels[0][column], request, span, is_named=column == 0)
        for row, (name, values) in enumerate(counts.items(), 1):
            _draw_count(panels[row][column], name, values, targets[name], span, is_named=column == 0)
        panels[-1][column].set_xlabel("cycle", color=INK_COLOUR, fontsize=9)
        panels[-1][column].set_xlim(span.start, span.stop)
    add_heading(figure, title, device, is_simulated=len(spans) == 1)
    if len(spans) > 1:
        mark_simulated(panels[0][-1])
        for axes, text in zip(panels[-1], ("first cycles", "all cycles", "last cycles"), strict=True):
            axes.set_xlabel(f"cycle ({text})", color=INK_COLOUR, fontsize=9)
    return figure


def _choose_spans(cycles: int) -> list[range]:
    if cycles <= 3 * _CLOSE_UP_CYCLES:
        return [range(cycles)]
    return [range(_CLOSE_UP_CYCLES), range(cycles), range(cycles - _CLOSE_UP_CYCLES, cycles)]


def _draw_lanes(axes: Any, request: RequestTrace, span: range, *, is_named: bool) -> None:
    for row, (_, name, colour) in enumerate(_SIGNAL_ROWS):
        bars = _find_runs(request.trace.signals[name], span)
        # A single cycle among many thousands would be invisible.
        min_length = len(span) / 400
        axes.broken_barh(
            [(start, max(length, min_length)) for start, length in bars], (-row, 0.7), color=colour
        )
    for start in request.layer_start_cycles:
        axes.axvline(start, color=FAINT_COLOUR, linewidth=0.7, zorder=0)
    axes.set_ylim(-len(_SIGNAL_ROWS) + 0.8, 0.9)
    axes.set_yticks(
        [0.35 - row for row in range(len(_SIGNAL_ROWS))],
        [label for label, *_ in _SIGNAL_ROWS] if is_named else [],
    )
    _style_axes(axes)


def _draw_count(
    axes: Any,
    name: str,
    count: npt.NDArray[np.int64],
    target: npt.NDArray[np.int64],
    span: range,
    *,
    is_named: bool,
) -> None:
    cycles = np.arange(span.start, span.stop)
    visible_counts, visible_targets = (
        count[span.start : span.stop],
        np.where(target == 0, np.nan, target)[span.start : span.stop],
    )
    axes.fill_between(cycles, visible_counts, step="post", color=SERIES_COLOURS[0], alpha=0.35, linewidth=0)
    axes.step(cycles, visible_counts, where="post", color=SERIES_COLOURS[0], linewidth=0.7)
    axes.step(cycles, visible_targets, where="post", color=OPTICS_COLOUR, linewidth=0.9, linestyle="--")
    highest, highest_target = int(count.max()), int(target.max())
    # A distant target, such as a limit, would flatten the count.
    axis_limit = highest_target if highest_target < 4 * max(highest, 1) else max(highest, 1)
    axes.set_ylim(0, 1.15 * axis_limit)
    axes.set_yticks([0, axis_limit], ["0", f"{axis_limit:,}"] if is_named else ["", ""])
    if is_named and axis_limit != highest_target:
        axes.text(
            0.01,
            0.9,
            f"target {highest_target:,}",
            transform=axes.transAxes,
            fontsize=7,
            color=OPTICS_COLOUR,
            va="top",
        )
    if is_named:
        axes.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8, color=INK_COLOUR, labelpad=6)
    _style_axes(axes)


def _style_axes(axes: Any) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT_COLOUR)
    axes.tick_params(colors=INK_COLOUR, labelsize=8, length=2, color=FAINT_COLOUR)


def _find_runs(signal: Bits, span: range) -> list[tuple[int, int]]:
    """Return the start and length of each run of ones in a signal, inside a span."""
    padded_signal = np.concatenate([[False], signal[span.start : span.stop], [False]]).astype(np.int8)
    edges = np.flatnonzero(np.diff(padded_signal))
    return [
        (span.start + int(start), int(stop - start))
        for start, stop in zip(edges[::2], edges[1::2], strict=True)
    ]
