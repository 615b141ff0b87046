"""The page of a figure, in Markdown."""

from __future__ import annotations

from typing import TypeVar

from testbed.design.reproductions.comparison import markdown, of_small_sizes
from testbed.design.reproductions.figure import Figure
from testbed.design.reproductions.table import Table

Scale = TypeVar("Scale")


def page(figure: Figure[Scale], table: Table, plot: str, *, quick: bool = False) -> str:
    """Return the page: title, plot (a file beside the page) and comparison; the numbers are in the CSV beside it.

    A `quick` one says that its sizes are small, and its numbers not comparable.
    """
    comparisons = figure.compare(table)
    if quick:
        comparisons = of_small_sizes(comparisons)
    return (
        f"# Figure {figure.number}: {figure.title}\n\n"
        f"![{figure.title}]({plot})\n\n"
        f"{markdown(comparisons)}\n"
        f"All numbers: [figure{figure.number}.csv](figure{figure.number}.csv).\n"
    )
