"""A comparison of fabrics as a plot. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lightbed.output_file import save_figure
from lightbed.wording import install_extra
from testbed.design.evaluation.comparison import Row
from testbed.errors import WorkloadError


def draw_comparison(rows: Sequence[Row], path: str | Path, title: str) -> None:
    """Draw bars of iteration times, with cost, as a plot. Raises `WorkloadError` without matplotlib, `OSError`."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise WorkloadError(f"the plot {path} needs matplotlib: {install_extra('kit')}") from error
    shown = [row for row in rows if not row.failure][::-1]
    figure = Figure(figsize=(9, 1.2 + 0.5 * len(shown)), layout="constrained")
    axes = figure.subplots()
    times = [row.figures["iteration_ms"] for row in shown]
    computing = [row.figures["compute_ms"] for row in shown]
    axes.barh([row.name for row in shown], times, color="#4c72b0", label="iteration")
    axes.barh(
        [row.name for row in shown], computing, color="#c7d3e8", label="of it the busiest device's computing"
    )
    for place, row in enumerate(shown):
        text = f" {times[place]:.1f} ms, {row.slowdown:.2f}x, {row.figures['cost_usd']:,} USD"
        axes.text(times[place], place, text, va="center", fontsize=8)
    axes.set_xlim(0, max(times, default=1.0) * 1.4)
    axes.set_xlabel("ms an iteration")
    axes.set_title(title, fontsize=10)
    axes.legend(loc="lower right", fontsize=8)
    save_figure(figure, path)
