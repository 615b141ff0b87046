"""Plot of the accuracy lost to noise, by layer and by noise level."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from lightning.canvas import (
    FAINT_COLOUR,
    INK_COLOUR,
    SERIES_COLOURS,
    Plot,
    add_heading,
    make_figure,
    mark_simulated,
    style_axes,
)
from lightning.evaluation.sensitivity import Sensitivity, format_points


def plot_layer_losses(result: Sensitivity, model: str, data: str) -> Plot:
    """Plot the accuracy lost to noise: in one layer at a time on the left, in all layers on the right.

    The left half shows points lost, in the order of the network. The right half shows accuracy over sigma, with the
    allowed loss and the largest tolerable sigma.
    """
    figure = make_figure(9.6, max(3.4, 1.9 + 0.3 * len(result.layer_losses)))
    left_axes, right_axes = figure.subplots(1, 2)
    _draw_bars(left_axes, result)
    _draw_curve(right_axes, result)
    noise, most_sensitive_layer = result.noise, result.most_sensitive_layer
    exact_text = f"exact {100 * result.exact_accuracy:.2f} %"
    subtitle = f"{model} · {data} · {noise.place}, sigma {noise.sigma:.3g} of 255 · {exact_text}"
    title = (
        f"Noise in layer “{most_sensitive_layer.layer}” costs most: {_format_points(most_sensitive_layer.loss)}"
        " points"
    )
    add_heading(figure, title, subtitle, is_simulated=False)
    for text in left_axes.findobj(Text):
        if text.get_text() in (title, subtitle):
            text.set_in_layout(False)  # these texts span both halves and must not widen the left one
    mark_simulated(right_axes)
    return figure


def _format_points(loss: float) -> str:
    """Format points with a typographic minus, and without the sign of a zero."""
    return f"{round(loss, 2) + 0.0:.2f}".replace("-", "−")


def _draw_bars(axes: Any, result: Sensitivity) -> None:
    positions = range(len(result.layer_losses))
    losses = [layer_loss.loss for layer_loss in result.layer_losses]
    colours = [
        SERIES_COLOURS[3] if layer_loss is result.most_sensitive_layer else SERIES_COLOURS[0]
        for layer_loss in result.layer_losses
    ]
    axes.barh(positions, losses, color=colours, height=0.64)
    for position, loss in zip(positions, losses, strict=True):
        axes.annotate(
            _format_points(loss),
            (max(loss, 0), position),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            color=INK_COLOUR,
            fontsize=9,
        )
    axes.set_yticks(list(positions), [layer_loss.layer for layer_loss in result.layer_losses])
    axes.invert_yaxis()
    axes.axvline(0, color=FAINT_COLOUR, linewidth=1)
    low, high = min(0.0, *losses), max(0.5, *losses)
    axes.set_xlim(1.15 * low, 1.18 * high)
    style_axes(axes, x_label="points lost with noise in this layer alone")
    axes.grid(visible=False, axis="y")


def _draw_curve(axes: Any, result: Sensitivity) -> None:
    sigmas = [trial.sigma for trial in result.level_trials]
    axes.plot(
        sigmas,
        [100 * trial.accuracy for trial in result.level_trials],
        "o-",
        color=SERIES_COLOURS[0],
        markersize=4,
        linewidth=1.4,
    )
    limit = 100 * result.exact_accuracy - result.allowed_loss
    axes.axhline(limit, color=SERIES_COLOURS[3], linewidth=1, linestyle="--")
    _label_line(
        axes,
        f"loss of {format_points(result.allowed_loss)}",
        (1, limit),
        ("axes fraction", "data"),
        "right",
        SERIES_COLOURS[3],
    )
    if result.max_noise_factor and math.isfinite(result.max_noise_factor):
        axes.axvline(result.max_sigma, color=INK_COLOUR, linewidth=1, linestyle=":")
        _label_line(
            axes,
            f"sigma {result.max_sigma:.3g}",
            (result.max_sigma, 0),
            ("data", "axes fraction"),
            "left",
            INK_COLOUR,
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5, 7)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    style_axes(axes, x_label="sigma in all layers (of 255, logarithmic)", y_label="accuracy (%)")


def _label_line(axes: Any, text: str, position: Any, coordinates: Any, side: str, colour: str) -> None:
    """Write a label next to a line."""
    shift = (5 if side == "left" else -5, 4)
    axes.annotate(
        text,
        position,
        xytext=shift,
        xycoords=coordinates,
        textcoords="offset points",
        ha=side,
        color=colour,
        fontsize=9,
    )
