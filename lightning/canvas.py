"""The sheet that all plots share: its colours, the mark of a simulated device, and how it is saved."""

from __future__ import annotations

import io
import textwrap
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from lightbed.output_file import save_figure
from lightning.errors import LightningError

INK = "#1f2933"
FAINT = "#9aa5b1"
GRID = "#e4e7eb"
SHADE = "#eef3fb"
LIGHT = "#d9480f"
"""Of what was simulated; nothing else has this colour."""
SERIES = ("#0b62a4", "#0f8a6a", "#8a3ffc", "#b2457a")
"""Of readouts and modulators, by number."""
DPI = 144


class PlotError(LightningError, code="picture"):
    """A plot that cannot be written."""


class Plot(Figure):
    """A figure that a notebook shows without pyplot."""

    def _repr_png_(self) -> bytes:
        return as_png(self)


def sheet(width: float = 7.2, height: float = 4.0) -> Plot:
    """Return an empty figure, in inches."""
    margins = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)
    return Plot(figsize=(width, height), layout=margins, facecolor="white")


def plain(axes: Any, *, x: str = "", y: str = "") -> None:
    """Quiet axes with these labels: two spines, a faint grid behind the data."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)
    axes.tick_params(colors=INK, labelsize=9, length=3, color=FAINT)
    axes.grid(visible=True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    if x:
        axes.set_xlabel(x, color=INK, fontsize=10)
    if y:
        axes.set_ylabel(y, color=INK, fontsize=10)


def add_heading(figure: Plot, title: str, device: str, *, simulated: bool) -> None:
    """Write the title, whose device it was, and the mark of a simulated one."""
    top = figure.axes[0]
    top.set_title(title, loc="left", color=INK, fontsize=12, fontweight="bold", pad=22)
    top.annotate(
        textwrap.shorten(device, 90, placeholder=" …"),
        (0, 1),
        xytext=(0, 6),
        xycoords="axes fraction",
        textcoords="offset points",
        color="#616e7c",
        fontsize=9,
    )
    if simulated:
        mark_simulated(top)


def mark_simulated(axes: Any) -> None:
    """Draw the mark of a simulated device above the right corner."""
    axes.annotate(
        "SIMULATED",
        (1, 1),
        xytext=(0, 24),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="right",
        color=LIGHT,
        fontsize=10,
        fontweight="bold",
    )


def format_signed(number: float, digits: int) -> str:
    """Return a number with its sign as type is set: −0.25."""
    return f"{number:+,.{digits}f}".replace("-", "−")


def legend(axes: Any, **where: Any) -> None:
    """Add the names of what is drawn, without a box."""
    axes.legend(frameon=False, fontsize=9, labelcolor=INK, **where)


def as_png(figure: Any) -> bytes:
    """Return the plot as a PNG."""
    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=DPI)
    return written.getvalue()


def check_file(file: str | Path) -> Path:
    """Return the path of a plot that can be written, checked before the work for it begins.

    Raises `PlotError` for a name that ends in no format of a plot, and for a folder that is not there.
    """
    path = Path(file)
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise PlotError(f"{str(path)!r} has no known plot format", hint="Use .png, .svg or .pdf")
    if not path.parent.is_dir():
        raise PlotError(f"folder {str(path.parent)!r} does not exist", hint="Create it, or give another path")
    return path


def save(figure: Any, file: str | Path) -> Path:
    """Write it, in the format that the name ends in (png, svg, pdf). Raises `PlotError`."""
    path = check_file(file)
    try:
        save_figure(figure, path, dpi=DPI)
    except OSError as error:
        raise PlotError(
            f"{str(path)!r} cannot be written ({error.strerror})", hint="Give another path"
        ) from error
    return path
