"""Plot of serve times, divided by Lightning's serve time, against the network speed, with the published ratios."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lightning.canvas import (
    FAINT_COLOUR,
    SERIES_COLOURS,
    Plot,
    add_heading,
    add_legend,
    make_figure,
    style_axes,
)
from lightning.reproductions.smartnic import PUBLISHED_SERVE_TIME_RATIOS, SPEED_GBPS, Row

_QUANTITY = re.compile(r"serve time of (\S+) over Lightning's at (\S+) Gbit/s, (.+)")


def plot_serve_times(rows: Sequence[Row]) -> Plot:
    """Plot the rows of figure 4, with a line for each processor. Dashed lines are the published ratios."""
    points_by_processor: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in rows:
        if match := _QUANTITY.fullmatch(row.quantity):
            points_by_processor.setdefault(match[1], {}).setdefault(match[3], []).append(
                (float(match[2]), row.ours)
            )
    figure = make_figure(7.2, 4.4)
    axes = figure.add_subplot()
    plotted_processors = [
        (name, points_by_statistic)
        for name, points_by_statistic in points_by_processor.items()
        if name in PUBLISHED_SERVE_TIME_RATIOS
    ]
    for (name, by_statistic), colour in zip(plotted_processors, SERIES_COLOURS, strict=False):
        for (statistic, points), marker in zip(by_statistic.items(), "o^", strict=True):
            label = f"{name}, {statistic}"
            axes.plot(*zip(*points, strict=True), color=colour, marker=marker, markersize=4, label=label)
        axes.axhline(PUBLISHED_SERVE_TIME_RATIOS[name], color=colour, linestyle="--", linewidth=1)
    axes.axvline(SPEED_GBPS, color=FAINT_COLOUR, linewidth=1)
    axes.set_xscale("log")
    axes.set_yscale("log")
    style_axes(
        axes,
        x_label="speed of the network that brings requests, Gbit/s",
        y_label="serve time over Lightning's",
    )
    add_legend(axes)
    add_heading(
        figure,
        "Serve time over Lightning's",
        "seven networks, mean of traces; dashed: published",
        is_simulated=True,
    )
    return figure
