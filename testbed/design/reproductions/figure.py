"""A figure of a paper: its table, its plot as data, published numbers beside ours, and its page in Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar

Kind = Literal["lines", "bars", "steps"]

Cell = str | float
Record = Mapping[str, Cell]
#: Digits that are kept: more would differ from machine to machine.
_DIGITS = 6
Source = Literal["S", "C", "A", "mem"]
"""Where a published number is from: the authors' slides, their released code or data, the paper's abstract, or memory
of the paper."""
HEADER = ("quantity", "published", "ours", "difference", "note")
Scale = TypeVar("Scale")
Progress = Callable[[int, int, str], None]
"""Steps done, steps in all, what was done."""


@dataclass(frozen=True, slots=True)
class Series:
    """A line, or the bars of one colour; `across` are numbers, or words under bars."""

    name: str
    across: tuple[Cell, ...]
    up: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes. `logarithmic` names those of `"x"` and `"y"` that are."""

    title: str
    across: str
    up: str
    series: tuple[Series, ...]
    kind: Kind = "lines"
    logarithmic: str = ""


@dataclass(frozen=True, slots=True)
class Plot:
    """Panels side by side, at most `wide` in a row."""

    title: str
    panels: tuple[Panel, ...]
    wide: int = 3


def series_of(table: Table, name: str, across: str, up: str) -> tuple[Series, ...]:
    """Return a series for each value of the column `name`."""
    parts = [(str(value), table.where(**{name: value})) for value in table.values(name)]
    return tuple(
        Series(title, tuple(record[across] for record in part.records), part.numbers(up))
        for title, part in parts
    )


@dataclass(frozen=True, slots=True)
class Table:
    r"""Rows of `columns`; numbers are rounded to six digits when the table is made, so CSV loses nothing.

    >>> Table.of(("n", "ms"), [(2, 1 / 3)]).csv
    'n,ms\n2,0.333333\n'
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @classmethod
    def of(cls, columns: Iterable[str], rows: Iterable[Iterable[Cell]]) -> Table:
        """Return the table, numbers rounded. Raises `ValueError` for a row of another length."""
        names = tuple(columns)
        rounded = tuple(
            tuple((cell if isinstance(cell, str) else float(f"{cell:.{_DIGITS}g}")) for cell in row)
            for row in rows
        )
        wrong = next((row for row in rounded if len(row) != len(names)), None)
        if wrong is not None:
            raise ValueError(f"the row {wrong} does not have the {len(names)} columns {names}")
        return cls(names, rounded)

    @classmethod
    def from_csv(cls, text: str) -> Table:
        """Return what `csv` wrote; whatever reads as a number is one. Raises `ValueError` as `of`."""
        columns, *rows = csv.reader(io.StringIO(text))
        return cls.of(columns, [[_number_or_word(cell) for cell in row] for row in rows])

    @property
    def csv(self) -> str:
        """As comma-separated values, a header first."""
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
        """Each row by the names of the columns."""
        return tuple(dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def where(self, **wanted: Cell) -> Table:
        """Return the rows in which these columns have these values."""
        rows = [
            row
            for row, record in zip(self.rows, self.records, strict=True)
            if all(record[name] == value for name, value in wanted.items())
        ]
        return Table(self.columns, tuple(rows))

    def numbers(self, column: str) -> tuple[float, ...]:
        """Return a column as numbers. Raises `ValueError` where it holds words."""
        return tuple(float(record[column]) for record in self.records)

    def values(self, column: str) -> tuple[Cell, ...]:
        """Return the different values of a column, in the order of their first appearance."""
        return tuple(dict.fromkeys(record[column] for record in self.records))

    def number(self, column: str, **wanted: Cell) -> float:
        """Return the one number of a column where others have these values. Raises `ValueError` unless it is one."""
        found = self.where(**wanted).numbers(column)
        if len(found) != 1:
            raise ValueError(f"{len(found)} rows match {wanted} instead of one")
        return found[0]


def _number_or_word(text: str) -> Cell:
    try:
        return float(text)
    except ValueError:
        return text


@dataclass(frozen=True, slots=True)
class Published:
    """A published figure. `value` is None where only a direction or nothing is known; `told` says it in words."""

    told: str
    source: Source | None = None
    value: float | None = None


NOTHING = Published("—")
"""No number of this is known to us."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One line: the quantity, what was published, ours, and what one should know about the difference."""

    quantity: str
    published: Published
    ours: float
    note: str = ""
    unit: str = ""
    comparable: bool = True

    @property
    def difference(self) -> str:
        """Ours beside the published value, in per cent of it.

        >>> Comparison("tax", Published("1.11", "S", 1.11), 1.0989).difference
        '-1.0 %'
        """
        value = self.published.value
        if not self.comparable:
            return "not comparable"
        return f"{100 * (self.ours / value - 1):+.1f} %" if value else "—"

    @property
    def cells(self) -> tuple[str, ...]:
        """Quantity, published, ours, difference, note, as words."""
        source = f" [{self.published.source}]" if self.published.source else ""
        ours = f"{self.ours:.4g}{self.unit}"
        return self.quantity, self.published.told + source, ours, self.difference, self.note


def of_small_sizes(comparisons: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """Return the lines with a mark: sizes are not the paper's, so that numbers are not to be compared with its."""
    return tuple(
        replace(line, comparable=False, note=("small sizes" + (f"; {line.note}" if line.note else "")))
        for line in comparisons
    )


def markdown(comparisons: Sequence[Comparison]) -> str:
    """Return the lines as a table in Markdown."""
    rows = [HEADER, ("---",) * len(HEADER), *(line.cells for line in comparisons)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


@dataclass(frozen=True, slots=True)
class Figure(Generic[Scale]):
    """`make` runs the models at a scale; `compare` and `draw` need nothing but its table."""

    number: int
    title: str
    make: Callable[[Scale, Progress], Table]
    compare: Callable[[Table], tuple[Comparison, ...]]
    draw: Callable[[Table], Plot]


def silent(_done: int, _total: int, _text: str) -> None:
    """Ignore progress."""


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
