"""Traffic between servers as a heat map: who sends how much to whom in an iteration. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lightbed.output_file import save_figure
from lightbed.wording import install_extra

_DECADES = 4
"""Below the largest value; what is smaller has the darkest colour, and nothing at all is white."""


def draw_heat_map(matrix: NDArray[np.float64], path: str | Path, *, title: str = "") -> Path:
    """Write the picture of bytes from row to column, as of `Traffic.matrix`; the ending of the name says the format.

    Sources run downwards, targets to the right; colours are logarithmic. A matrix in which nothing is sent gives
    an empty picture. Raises `ModuleNotFoundError` that names the hint when matplotlib is missing.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the heat map needs matplotlib: {install_extra('testbed')}", name=error.name
        ) from error
    path = Path(path)
    with mpl.rc_context({"svg.hashsalt": "lightbed", "font.size": 10}):
        figure = Figure(figsize=(5.6, 4.8), layout="constrained")
        axis = figure.subplots()
        _paint(figure, axis, np.asarray(matrix, dtype=np.float64))
        axis.set(title=title, xlabel="target server", ylabel="source server")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.yaxis.set_major_locator(MaxNLocator(integer=True))
        save_figure(figure, path, dpi=150)
    return path


def _paint(figure: Any, axis: Any, matrix: NDArray[np.float64]) -> None:
    from matplotlib.colors import LogNorm

    largest = matrix.max(initial=0.0) or 1.0
    sent = matrix[matrix > 0]
    smallest = max(sent.min(initial=largest), largest / 10**_DECADES)
    norm = LogNorm(min(smallest, largest / 10), largest)
    shown = np.ma.masked_less_equal(matrix, 0.0)
    image = axis.imshow(shown, norm=norm, cmap="viridis", interpolation="nearest")
    figure.colorbar(image, ax=axis, label="bytes an iteration")
