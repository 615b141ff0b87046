"""Plots of what an inference costs, and of what photons allow."""

from __future__ import annotations

from collections.abc import Sequence

from lightning.canvas import FAINT, INK, LIGHT, SERIES, SHADE, Plot, add_heading, legend, plain, sheet
from lightning.costs import BASELINES, Costs
from lightning.costs.presets import Group
from lightning.costs.shot_noise import FEW_PHOTONS, ShotPoint

GROUPS: tuple[tuple[Group, str], ...] = (
    ("converters", SERIES[0]),
    ("optics", LIGHT),
    ("receiver", SERIES[3]),
    ("digital", SERIES[1]),
    ("memory", SERIES[2]),
)


def energy_bars(costs: Sequence[Costs], name: str) -> Plot:
    """Energy of a multiply-accumulate by part for each system, with digital baselines; a logarithmic axis."""
    figure = sheet(8.0, 1.4 + 0.42 * (len(BASELINES) + len(costs) * (len(GROUPS) + 1)))
    axes = figure.add_subplot()
    rows = [*_own(costs), *((each.name, each.joules_per_mac, FAINT) for each in BASELINES)]
    labels, values, colours = zip(*rows, strict=True)
    axes.barh(range(len(rows)), [value * 1e12 for value in values], color=colours, height=0.7)
    for place, value in enumerate(values):
        axes.annotate(
            f" {_plain(value * 1e12)}",
            (value * 1e12, place),
            va="center",
            color=INK,
            fontsize=8,
            clip_on=False,
        )
    axes.set_yticks(range(len(rows)), labels)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(right=max(values) * 1e12 * 6)
    plain(axes, x="energy of one multiply-accumulate, pJ (logarithmic)")
    add_heading(
        figure, f"What a multiply-accumulate costs: {name}", "converters and memory included", simulated=True
    )
    return figure


def _own(costs: Sequence[Costs]) -> list[tuple[str, float, str]]:
    rows: list[tuple[str, float, str]] = []
    for each in costs:
        macs = max(each.work.macs, 1)
        rows.append((f"{each.preset.name}: all", each.joules_per_image / macs, INK))
        rows += [
            (f"{each.preset.name}: {group}", each.joules_of(group) / macs, colour)
            for group, colour in GROUPS
            if each.joules_of(group)
        ]
    return rows


def _plain(value: float) -> str:
    """Return a number with three digits, without powers of ten.

    >>> _plain(452371.8), _plain(0.2491)
    ('452,000', '0.249')
    """
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"


def shot_noise_plot(points: Sequence[ShotPoint], name: str, exact: float) -> Plot:
    """Accuracy against photons a multiply, with the accuracy without noise."""
    figure = sheet()
    axes = figure.add_subplot()
    axes.axhline(100 * exact, color=FAINT, linewidth=1, linestyle="--", label="without noise")
    axes.errorbar(
        [point.photons for point in points],
        [100 * point.accuracy for point in points],
        yerr=[100 * point.spread for point in points],
        color=SERIES[0],
        marker="o",
        markersize=4,
        label="shot noise alone",
    )
    axes.set_xscale("log")
    if points[0].photons < FEW_PHOTONS:
        axes.axvspan(points[0].photons, FEW_PHOTONS, color=SHADE, zorder=0, label="normal instead of Poisson")
    plain(axes, x="photons in a product of 255 and 255", y="accuracy, %")
    legend(axes, loc="upper left", bbox_to_anchor=(0, 0.92))
    add_heading(figure, f"What photons allow: {name}", "no receiver is better than this", simulated=True)
    return figure
