"""Plots of latencies: the distribution at each rate, and percentiles over rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import LogLocator, NullFormatter

from lightning.canvas import (
    INK_COLOUR,
    SERIES_COLOURS,
    Plot,
    add_heading,
    add_legend,
    make_figure,
    style_axes,
)
from lightning.load.outcome import Outcome, make_log_histogram

PERCENTILES = ((50, "p50"), (99, "p99"), (99.9, "p99.9"))


def plot_latencies(outcomes: Sequence[Outcome], description: str) -> Plot:
    """Plot the histogram of latencies and, below, the share of answers that took longer.

    With several rates, add plots of losses and percentiles over the rate on the right. Without any answer, the axes are
    empty and say so.
    """
    has_answers = any(outcome.answered for outcome in outcomes)
    has_several_rates = has_answers and len(outcomes) > 1
    figure = make_figure(11.5 if has_several_rates else 7.2, 5.6)
    grid = figure.add_gridspec(2, 2 if has_several_rates else 1, height_ratios=(1, 1.4))
    upper_axes, lower_axes = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[1, 0])
    for number, outcome in enumerate(outcomes):
        _draw_distribution(upper_axes, lower_axes, outcome, SERIES_COLOURS[number % len(SERIES_COLOURS)])
    style_axes(upper_axes, y_label="share of answers (%)")
    style_axes(lower_axes, x_label="latency from scheduled sending (µs)", y_label="share that took longer")
    lower_axes.set_yscale("log")
    for axes in (upper_axes, lower_axes):
        axes.set_xscale("log")
        _use_plain_numbers(axes.xaxis)
    lower_axes.sharex(upper_axes)
    upper_axes.tick_params(labelbottom=False)
    if has_answers:
        add_legend(lower_axes, loc="lower left")
    else:
        _mark_unanswered(upper_axes, lower_axes)
    if has_several_rates:
        _draw_over_rates(figure.add_subplot(grid[0, 1]), figure.add_subplot(grid[1, 1]), outcomes)
    add_heading(figure, "Latency under open-loop load", description, is_simulated=False)
    return figure


def _use_plain_numbers(axis: Any) -> None:
    """Label a logarithmic axis with plain numbers, at most at 1, 2 and 5 of each decade."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=7))
    axis.set_major_formatter("{x:,.0f}")
    axis.set_minor_formatter(NullFormatter())


def _mark_unanswered(upper_axes: Any, lower_axes: Any) -> None:
    for axes in (upper_axes, lower_axes):
        axes.set_xlim(1, 1000)
    lower_axes.set_ylim(1e-3, 1)
    upper_axes.annotate(
        "no request was answered", (0.5, 0.5), xycoords="axes fraction", ha="center", color=INK_COLOUR
    )


def _draw_distribution(upper_axes: Any, lower_axes: Any, outcome: Outcome, colour: str) -> None:
    values = outcome.latencies_us
    if not len(values):
        return
    histogram = make_log_histogram(values)
    upper_axes.stairs(100 * histogram.counts / len(values), histogram.edges, color=colour, linewidth=1.4)
    label = f"{outcome.rate:,.0f}/s: p99 {outcome.compute_percentile_us(99):,.0f} µs"
    slower_shares = 1 - np.arange(len(values)) / len(values)
    lower_axes.step(values, slower_shares, where="post", color=colour, linewidth=1.4, label=label)


def _draw_over_rates(upper_axes: Any, lower_axes: Any, outcomes: Sequence[Outcome]) -> None:
    sorted_outcomes = sorted(outcomes, key=lambda outcome: outcome.rate)
    rates = [outcome.rate for outcome in sorted_outcomes]
    lost_percent = [100 * outcome.loss for outcome in sorted_outcomes]
    upper_axes.plot(rates, lost_percent, "o-", color=INK_COLOUR, markersize=4, linewidth=1.2, clip_on=False)
    upper_axes.set_ylim(0, max(1, 1.1 * max(lost_percent)))
    style_axes(upper_axes, y_label="lost (%)")
    for (percent, name), colour in zip(PERCENTILES, SERIES_COLOURS, strict=False):
        values = [outcome.compute_percentile_us(percent) for outcome in sorted_outcomes]
        lower_axes.plot(rates, values, "o-", color=colour, markersize=4, linewidth=1.4, label=name)
    lower_axes.set_yscale("log")
    _use_plain_numbers(lower_axes.yaxis)
    lower_axes.xaxis.set_major_formatter("{x:,.0f}")
    style_axes(lower_axes, x_label="requests/s", y_label="latency (µs)")
    upper_axes.sharex(lower_axes)
    upper_axes.tick_params(labelbottom=False)
    add_legend(lower_axes, loc="best")
