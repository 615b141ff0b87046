"""Plots of the energy of an inference, and of accuracy over photons."""

from __future__ import annotations

from collections.abc import Sequence

from lightning.canvas import (
    FAINT_COLOUR,
    INK_COLOUR,
    OPTICS_COLOUR,
    SERIES_COLOURS,
    SHADE_COLOUR,
    Plot,
    add_heading,
    add_legend,
    make_figure,
    style_axes,
)
from lightning.costs import BASELINES, Costs
from lightning.costs.presets import PartGroup
from lightning.costs.shot_noise import MIN_NORMAL_PHOTONS, ShotPoint

GROUPS: tuple[tuple[PartGroup, str], ...] = (
    ("converters", SERIES_COLOURS[0]),
    ("optics", OPTICS_COLOUR),
    ("receiver", SERIES_COLOURS[3]),
    ("digital", SERIES_COLOURS[1]),
    ("memory", SERIES_COLOURS[2]),
)


def plot_energy(costs: Sequence[Costs], name: str) -> Plot:
    """Plot the energy of a multiply-accumulate by group of parts for each system, with digital baselines."""
    figure = make_figure(8.0, 1.4 + 0.42 * (len(BASELINES) + len(costs) * (len(GROUPS) + 1)))
    axes = figure.add_subplot()
    rows = [
        *_make_photonic_rows(costs),
        *((baseline.name, baseline.joules_per_mac, FAINT_COLOUR) for baseline in BASELINES),
    ]
    labels, values, colours = zip(*rows, strict=True)
    axes.barh(range(len(rows)), [value * 1e12 for value in values], color=colours, height=0.7)
    for position, value in enumerate(values):
        axes.annotate(
            f" {_format_value(value * 1e12)}",
            (value * 1e12, position),
            va="center",
            color=INK_COLOUR,
            fontsize=8,
            clip_on=False,
        )
    axes.set_yticks(range(len(rows)), labels)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(right=max(values) * 1e12 * 6)
    style_axes(axes, x_label="energy of one multiply-accumulate, pJ (logarithmic)")
    add_heading(
        figure,
        f"What a multiply-accumulate costs: {name}",
        "converters and memory included",
        is_simulated=True,
    )
    return figure


def _make_photonic_rows(costs: Sequence[Costs]) -> list[tuple[str, float, str]]:
    rows: list[tuple[str, float, str]] = []
    for cost in costs:
        macs = max(cost.work.macs, 1)
        rows.append((f"{cost.preset.name}: all", cost.joules_per_image / macs, INK_COLOUR))
        rows += [
            (f"{cost.preset.name}: {group}", cost.compute_joules(group) / macs, colour)
            for group, colour in GROUPS
            if cost.compute_joules(group)
        ]
    return rows


def _format_value(value: float) -> str:
    """Format a number with three significant digits, without an exponent.

    >>> _format_value(452371.8), _format_value(0.2491)
    ('452,000', '0.249')
    """
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"


def plot_shot_noise(points: Sequence[ShotPoint], name: str, exact_accuracy: float) -> Plot:
    """Plot accuracy over photons per product. `exact_accuracy` is the accuracy without noise (0 .. 1)."""
    figure = make_figure()
    axes = figure.add_subplot()
    axes.axhline(100 * exact_accuracy, color=FAINT_COLOUR, linewidth=1, linestyle="--", label="without noise")
    axes.errorbar(
        [point.photons for point in points],
        [100 * point.accuracy for point in points],
        yerr=[100 * point.spread for point in points],
        color=SERIES_COLOURS[0],
        marker="o",
        markersize=4,
        label="shot noise alone",
    )
    axes.set_xscale("log")
    if points[0].photons < MIN_NORMAL_PHOTONS:
        axes.axvspan(
            points[0].photons,
            MIN_NORMAL_PHOTONS,
            color=SHADE_COLOUR,
            zorder=0,
            label="normal instead of Poisson",
        )
    style_axes(axes, x_label="photons in a product of 255 and 255", y_label="accuracy, %")
    add_legend(axes, loc="upper left", bbox_to_anchor=(0, 0.92))
    add_heading(figure, f"What photons allow: {name}", "no receiver is better than this", is_simulated=True)
    return figure
