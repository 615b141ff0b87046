"""Drawing of plots with matplotlib. Equal data give identical files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightbed.output_file import save_figure
from lightbed.wording import describe_extra
from testbed.design.reproductions.figure import Panel, Plot

_COLOURS = ("#4c72b0", "#dd8452", "#55a868", "#c44e52", "#8172b3", "#937860", "#8c8c8c")
_MARKERS = "osD^vXP"


def draw_plot(plot: Plot, path: Path) -> Path:
    """Draw a plot to a file and return its path; the suffix (`.svg`, `.png`) selects the format.

    Raises `ModuleNotFoundError` with a hint if matplotlib is missing.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"drawing needs matplotlib: {describe_extra('testbed')}", name=error.name
        ) from error
    columns = min(plot.max_columns, len(plot.panels))
    rows = -(-len(plot.panels) // columns)
    with mpl.rc_context({"svg.hashsalt": "lightbed", "font.size": 9}):
        figure = Figure(figsize=(3.6 * columns + 0.4, 2.9 * rows + 0.5), layout="constrained")
        figure.suptitle(plot.title)
        axes = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axis, panel in zip(axes, plot.panels, strict=False):
            _DRAW_FUNCTION_BY_KIND[panel.kind](axis, panel)
            from matplotlib.ticker import LogLocator

            axis.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
            if "y" in panel.logarithmic:
                axis.set_yscale("log")
                axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
                axis.yaxis.set_major_formatter("{x:g}")
                axis.yaxis.set_minor_formatter("")
            elif panel.kind not in _MAP_KINDS:
                axis.set_ylim(bottom=0)
            if panel.kind not in _MAP_KINDS:
                axis.grid(alpha=0.3)
        for axis in axes[len(plot.panels) :]:
            axis.set_axis_off()
        _draw_legend(figure, plot, rows)
        save_figure(figure, path)
    return path


def _get_colour(index: int) -> str:
    return _COLOURS[index % len(_COLOURS)]


def _draw_lines(axis: Any, panel: Panel) -> None:
    for index, series in enumerate(panel.series):
        marker = _MARKERS[index % len(_MARKERS)]
        style = {"color": _get_colour(index), "marker": marker, "markersize": 4, "alpha": 0.85}
        axis.plot(series.x_values, series.y_values, label=series.name, linewidth=1.3, **style)
    ticks = sorted({value for series in panel.series for value in series.x_values})
    if "x" in panel.logarithmic:
        axis.set_xscale("log")
        if len(ticks) <= 8:
            axis.set_xticks(ticks, [f"{value:g}" for value in ticks])
            axis.set_xticks([], minor=True)


def _draw_bars(axis: Any, panel: Panel) -> None:
    names = list(dict.fromkeys(name for series in panel.series for name in series.x_values))
    width = 0.8 / len(panel.series)
    for index, series in enumerate(panel.series):
        shift = (index - (len(panel.series) - 1) / 2) * width
        positions = [names.index(name) + shift for name in series.x_values]
        axis.bar(positions, series.y_values, width, label=series.name, color=_get_colour(index))
    axis.set_xticks(range(len(names)), [name if isinstance(name, str) else f"{name:g}" for name in names])


def _draw_steps(axis: Any, panel: Panel) -> None:
    for index, series in enumerate(panel.series):
        style = {"color": _get_colour(index), "linestyle": ("-", "--", ":")[index % 3]}
        axis.step(series.x_values, series.y_values, where="post", label=series.name, linewidth=1.4, **style)
    axis.set_xlim(left=0)


def _draw_heat(axis: Any, panel: Panel) -> None:
    """Draw one row of cells per series, on a logarithmic colour scale. Cells of 0 stay white."""
    from matplotlib.colors import LogNorm

    rows = [[value or float("nan") for value in series.y_values] for series in panel.series]
    image = axis.imshow(rows, norm=LogNorm(), cmap="viridis", interpolation="nearest")
    axis.figure.colorbar(image, ax=axis, shrink=0.8, label="bytes")


def _draw_tiles(axis: Any, panel: Panel) -> None:
    """Colour each area of equal numbers and write the number at its centre. Cells of 0 stay white."""
    cells_by_number: dict[float, list[tuple[int, int]]] = {}
    for y, series in enumerate(panel.series):
        for x, number in enumerate(series.y_values):
            cells_by_number.setdefault(number, []).append((x, y))
    rows = [
        [(number - 1) % 10 if number else float("nan") for number in series.y_values]
        for series in panel.series
    ]
    axis.imshow(rows, cmap="tab10", vmin=0, vmax=9, alpha=0.7, interpolation="nearest", aspect="auto")
    for number, cells in cells_by_number.items():
        if number:
            x, y = (sum(values) / len(cells) for values in zip(*cells, strict=True))
            axis.text(x, y, f"{number:g}", ha="center", va="center", fontsize=8)


_DRAW_FUNCTION_BY_KIND = {
    "lines": _draw_lines,
    "bars": _draw_bars,
    "steps": _draw_steps,
    "heat": _draw_heat,
    "tiles": _draw_tiles,
}
_MAP_KINDS = ("heat", "tiles")


def _draw_legend(figure: Any, plot: Plot, rows: int) -> None:
    """Draw one legend below all panels if they show the same series, otherwise one per panel."""
    name_sets = {tuple(series.name for series in panel.series) for panel in plot.panels}
    if len(name_sets) == 1:
        handles, labels = figure.axes[0].get_legend_handles_labels()
        entry_inches = 0.6 + 0.075 * max(
            map(len, labels)
        )  # key, gaps, and letters of the font that `draw_plot` sets
        columns = max(1, min(len(labels), int(figure.get_figwidth() / entry_inches)))
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
        return
    for axis, panel in zip(figure.axes, plot.panels, strict=False):
        if panel.kind in _MAP_KINDS:
            continue
        axis.legend(frameon=False, fontsize=8 if rows == 1 else 7)
