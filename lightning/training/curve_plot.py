"""Plot of accuracy against noise, with a line at an accuracy of one half."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from lightning.canvas import (
    FAINT_COLOUR,
    INK_COLOUR,
    SERIES_COLOURS,
    Plot,
    add_heading,
    add_legend,
    make_figure,
    style_axes,
)
from lightning.compiler.measured import MEASURED_SIGMA

ZERO_POSITION = 0.35
"""Position of sigma 0 on the logarithmic axis."""
SIGMA_TICKS = (0.5, 1, 2, 5, 10, 20, 50)
PER_CENT = 100


class AccuracyCurve(Protocol):
    """Curve of accuracy over noise, such as `lightning.training.curve.Curve`."""

    @property
    def sigmas(self) -> Sequence[float]:
        """Standard deviations of the noise in LSB (255 is full scale), ascending from 0."""
        ...

    @property
    def accuracies(self) -> Sequence[float]:
        """Share of correctly classified images, 0 .. 1."""
        ...

    @property
    def half_point(self) -> float:
        """The sigma at which the accuracy is one half."""
        ...


def plot_noise_curves(
    curves: Mapping[str, AccuracyCurve], title: str, *, training_sigma: float | None = None
) -> Plot:
    """Plot a curve for each name. Mark the sigma of Lightning's prototype, and the sigma `training_sigma` if given."""
    figure = make_figure(7.2, 4.4)
    axes = figure.subplots()
    for index, (name, curve) in enumerate(curves.items()):
        sigmas = [max(sigma, ZERO_POSITION) for sigma in curve.sigmas]
        percentages = [PER_CENT * accuracy for accuracy in curve.accuracies]
        half_label = f": half at {curve.half_point:.1f}" if math.isfinite(curve.half_point) else ""
        axes.plot(
            sigmas,
            percentages,
            "o-",
            color=SERIES_COLOURS[index % len(SERIES_COLOURS)],
            markersize=3.5,
            linewidth=1.4,
            label=name + half_label,
        )
    axes.axhline(PER_CENT / 2, color=FAINT_COLOUR, linewidth=0.8)
    sigma_by_label = {"prototype": MEASURED_SIGMA} | ({"training": training_sigma} if training_sigma else {})
    for name, sigma in sigma_by_label.items():
        axes.vlines(sigma, PER_CENT / 2, PER_CENT, color=INK_COLOUR, linewidth=0.8, linestyle=":")
        axes.annotate(
            name,
            (sigma, PER_CENT / 2 + 2),
            xytext=(-3, 0),
            textcoords="offset points",
            ha="right",
            color=INK_COLOUR,
            fontsize=9,
        )
    axes.set_xscale("log")
    axes.set_xticks(SIGMA_TICKS, minor=False)
    axes.set_xticks([], minor=True)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(0, PER_CENT + 3)
    style_axes(
        axes,
        x_label="standard deviation of a product's noise (steps of 255; leftmost: none)",
        y_label="accuracy (%)",
    )
    add_legend(axes, loc="lower left", bbox_to_anchor=(0, 0))
    add_heading(figure, title, "executor: noisy", is_simulated=True)
    return figure
