"""Figures of papers: tables, plots as data, comparisons with published numbers, and Markdown pages."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar

Kind = Literal["lines", "bars", "steps", "heat", "tiles"]

Cell = str | float
Record = Mapping[str, Cell]
#: Significant digits of numbers in tables: further digits differ between machines.
_DIGITS = 6
Source = Literal["S", "C", "A", "mem"]
"""Source of a published number: the authors' slides (S), their released code or data (C), the paper's abstract (A), or
memory of the paper (mem)."""
HEADER = ("quantity", "published", "ours", "difference", "note")
Scale = TypeVar("Scale")
Progress = Callable[[int, int, str], None]
"""Callback with the steps done, the total number of steps, and a text about the last step."""


@dataclass(frozen=True, slots=True)
class Series:
    """A line, the bars of one colour, or a row of a heat map or tile map (where 0 means empty).

    `x_values` holds numbers or the labels of bars.
    """

    name: str
    x_values: tuple[Cell, ...]
    y_values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes. `logarithmic` lists the logarithmic axes: "", "x", "y" or "xy"."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    kind: Kind = "lines"
    logarithmic: str = ""


@dataclass(frozen=True, slots=True)
class Plot:
    """Panels side by side, at most `max_columns` per row."""

    title: str
    panels: tuple[Panel, ...]
    max_columns: int = 3


def make_series(table: Table, name_column: str, x_column: str, y_column: str) -> tuple[Series, ...]:
    """Return a series for each value of the column `name_column`."""
    tables_by_title = [
        (str(value), table.select_rows(**{name_column: value})) for value in table.list_values(name_column)
    ]
    return tuple(
        Series(
            title,
            tuple(record[x_column] for record in series_table.records),
            series_table.get_numbers(y_column),
        )
        for title, series_table in tables_by_title
    )


@dataclass(frozen=True, slots=True)
class Table:
    r"""Table with named columns. `from_rows` rounds numbers to six significant digits, which CSV keeps.

    >>> Table.from_rows(("n", "ms"), [(2, 1 / 3)]).csv
    'n,ms\n2,0.333333\n'
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @classmethod
    def from_rows(cls, columns: Iterable[str], rows: Iterable[Iterable[Cell]]) -> Table:
        """Return the table with rounded numbers. Raises `ValueError` for a row of the wrong length."""
        names = tuple(columns)
        rounded_rows = tuple(
            tuple((cell if isinstance(cell, str) else float(f"{cell:.{_DIGITS}g}")) for cell in row)
            for row in rows
        )
        invalid_row = next((row for row in rounded_rows if len(row) != len(names)), None)
        if invalid_row is not None:
            raise ValueError(f"the row {invalid_row} does not have the {len(names)} columns {names}")
        return cls(names, rounded_rows)

    @classmethod
    def from_csv(cls, text: str) -> Table:
        """Parse the text that `csv` returns. Numeric cells become numbers. Raises as `from_rows`."""
        columns, *rows = csv.reader(io.StringIO(text))
        return cls.from_rows(columns, [[_parse_cell(cell) for cell in row] for row in rows])

    @property
    def csv(self) -> str:
        """Table as comma-separated values, with a header."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(
            [
                [(cell if isinstance(cell, str) else f"{cell:.{_DIGITS}g}") for cell in row]
                for row in self.rows
            ]
        )
        return file.getvalue()

    @property
    def records(self) -> tuple[Record, ...]:
        """Rows as mappings from column to cell."""
        return tuple(dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def select_rows(self, **criteria: Cell) -> Table:
        """Return a table of the rows whose cells equal `criteria`, column by column."""
        rows = [
            row
            for row, record in zip(self.rows, self.records, strict=True)
            if all(record[name] == value for name, value in criteria.items())
        ]
        return Table(self.columns, tuple(rows))

    def get_numbers(self, column: str) -> tuple[float, ...]:
        """Return a column as numbers. Raises `ValueError` if a cell is not numeric."""
        return tuple(float(record[column]) for record in self.records)

    def list_values(self, column: str) -> tuple[Cell, ...]:
        """Return the distinct values of a column, in order of first appearance."""
        return tuple(dict.fromkeys(record[column] for record in self.records))

    def get_number(self, column: str, **criteria: Cell) -> float:
        """Return a column's number in the row that matches `criteria`. Raises `ValueError` unless one row matches."""
        numbers = self.select_rows(**criteria).get_numbers(column)
        if len(numbers) != 1:
            raise ValueError(f"{len(numbers)} rows match {criteria} instead of one")
        return numbers[0]


def make_plot_by_model(table: Table, title: str, x_label: str, name_column: str, x_column: str) -> Plot:
    """Return one panel per model, with one line per value of the column `name_column`.

    The x axis shows the column `x_column` and carries `x_label`; the y axis shows the iteration time in ms.
    """
    panels = [
        Panel(
            str(model),
            x_label,
            "iteration (ms)",
            make_series(table.select_rows(model=model), name_column, x_column, "iteration_ms"),
            logarithmic="xy",
        )
        for model in table.list_values("model")
    ]
    return Plot(title, tuple(panels))


def _parse_cell(text: str) -> Cell:
    try:
        return float(text)
    except ValueError:
        return text


@dataclass(frozen=True, slots=True)
class PublishedValue:
    """A published number and its text. `value` is None if only a direction, or nothing, is known."""

    text: str
    source: Source | None = None
    value: float | None = None


UNPUBLISHED = PublishedValue("—")
"""Placeholder for a quantity without a known published number."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One line of a comparison: the quantity, the published number, our number, and a note on the difference."""

    quantity: str
    published: PublishedValue
    ours: float
    note: str = ""
    unit: str = ""
    comparable: bool = True

    @property
    def difference(self) -> str:
        """Difference of our number from the published number, in per cent of the published number.

        >>> Comparison("tax", PublishedValue("1.11", "S", 1.11), 1.0989).difference
        '-1.0 %'
        """
        value = self.published.value
        if not self.comparable:
            return "not comparable"
        return f"{100 * (self.ours / value - 1):+.1f} %" if value else "—"

    @property
    def cells(self) -> tuple[str, ...]:
        """Texts of the line in a table: quantity, published, ours, difference, note."""
        source = f" [{self.published.source}]" if self.published.source else ""
        ours = f"{self.ours:.4g}{self.unit}"
        return self.quantity, self.published.text + source, ours, self.difference, self.note


def mark_small_sizes(comparisons: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """Mark all lines as not comparable because our sizes are smaller than the paper's."""
    return tuple(
        replace(line, comparable=False, note=("small sizes" + (f"; {line.note}" if line.note else "")))
        for line in comparisons
    )


def format_markdown(comparisons: Sequence[Comparison]) -> str:
    """Return the comparisons as a Markdown table."""
    rows = [HEADER, ("---",) * len(HEADER), *(line.cells for line in comparisons)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


@dataclass(frozen=True, slots=True)
class Figure(Generic[Scale]):
    """A figure of a paper. `make_table` runs the models; `compare_with_paper` and `make_plot` need only that table."""

    number: int
    title: str
    make_table: Callable[[Scale, Progress], Table]
    compare_with_paper: Callable[[Table], tuple[Comparison, ...]]
    make_plot: Callable[[Table], Plot]


def ignore_progress(_step: int, _total: int, _text: str) -> None:
    """Ignore progress."""


def format_page(figure: Figure[Scale], table: Table, image_name: str, *, is_quick: bool = False) -> str:
    """Return the Markdown page of a figure: title, plot, comparison, and a link to the CSV.

    `image_name` is the name of the image, which lies beside the page like the CSV. A quick page marks its numbers as
    not comparable, because sizes are small.
    """
    comparisons = figure.compare_with_paper(table)
    if is_quick:
        comparisons = mark_small_sizes(comparisons)
    return (
        f"# Figure {figure.number}: {figure.title}\n\n"
        f"![{figure.title}]({image_name})\n\n"
        f"{format_markdown(comparisons)}\n"
        f"All numbers: [figure{figure.number}.csv](figure{figure.number}.csv).\n"
    )
