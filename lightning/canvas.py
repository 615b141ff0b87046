"""Style of all plots: figures, colours, the SIMULATED mark, and saving."""

from __future__ import annotations

import io
import textwrap
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from lightbed.output_file import save_figure
from lightning.errors import LightningError

INK_COLOUR = "#1f2933"
FAINT_COLOUR = "#9aa5b1"
GRID_COLOUR = "#e4e7eb"
SHADE_COLOUR = "#eef3fb"
OPTICS_COLOUR = "#d9480f"
"""Orange, for the SIMULATED mark and for optics."""
SERIES_COLOURS = ("#0b62a4", "#0f8a6a", "#8a3ffc", "#b2457a")
"""Colours of series, such as readouts and modulators, by number."""
DPI = 144


class PlotError(LightningError, code="picture"):
    """The plot cannot be written."""


class Plot(Figure):
    """A figure that a notebook displays without pyplot."""

    def _repr_png_(self) -> bytes:
        return render_png(self)


def make_figure(width: float = 7.2, height: float = 4.0) -> Plot:
    """Return an empty figure of this width and height in inches."""
    layout_engine = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)
    return Plot(figsize=(width, height), layout=layout_engine, facecolor="white")


def style_axes(axes: Any, *, x_label: str = "", y_label: str = "") -> None:
    """Label axes, and style them with two spines and a faint grid behind the data."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT_COLOUR)
    axes.tick_params(colors=INK_COLOUR, labelsize=9, length=3, color=FAINT_COLOUR)
    axes.grid(visible=True, color=GRID_COLOUR, linewidth=0.8)
    axes.set_axisbelow(True)
    if x_label:
        axes.set_xlabel(x_label, color=INK_COLOUR, fontsize=10)
    if y_label:
        axes.set_ylabel(y_label, color=INK_COLOUR, fontsize=10)


def add_heading(figure: Plot, title: str, subtitle: str, *, is_simulated: bool) -> None:
    """Add a title, a subtitle with the device, and the SIMULATED mark if `is_simulated`."""
    top_axes = figure.axes[0]
    top_axes.set_title(title, loc="left", color=INK_COLOUR, fontsize=12, fontweight="bold", pad=22)
    top_axes.annotate(
        textwrap.shorten(subtitle, 90, placeholder=" …"),
        (0, 1),
        xytext=(0, 6),
        xycoords="axes fraction",
        textcoords="offset points",
        color="#616e7c",
        fontsize=9,
    )
    if is_simulated:
        mark_simulated(top_axes)


def mark_simulated(axes: Any) -> None:
    """Add the SIMULATED mark above the right corner."""
    axes.annotate(
        "SIMULATED",
        (1, 1),
        xytext=(0, 24),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="right",
        color=OPTICS_COLOUR,
        fontsize=10,
        fontweight="bold",
    )


def format_signed(number: float, digits: int) -> str:
    """Format a number with its sign and a typographic minus: −0.25."""
    return f"{number:+,.{digits}f}".replace("-", "−")


def add_legend(axes: Any, **legend_options: Any) -> None:
    """Add a legend without a frame."""
    axes.legend(frameon=False, fontsize=9, labelcolor=INK_COLOUR, **legend_options)


def render_png(figure: Any) -> bytes:
    """Return the plot as a PNG."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DPI)
    return file.getvalue()


def check_file(file: str | Path) -> Path:
    """Check the file name of a plot and return it as a path. Call this early, before long computations for the plot.

    Raise `PlotError` for an unknown format, or a folder that does not exist.
    """
    path = Path(file)
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise PlotError(f"{str(path)!r} has no known plot format", hint="Use .png, .svg or .pdf")
    if not path.parent.is_dir():
        raise PlotError(f"folder {str(path.parent)!r} does not exist", hint="Create it, or give another path")
    return path


def save(figure: Any, file: str | Path) -> Path:
    """Save a figure in the format of the file's suffix (png, svg, pdf). Raise `PlotError` if that fails."""
    path = check_file(file)
    try:
        save_figure(figure, path, dpi=DPI)
    except OSError as error:
        raise PlotError(
            f"{str(path)!r} cannot be written ({error.strerror})", hint="Give another path"
        ) from error
    return path
