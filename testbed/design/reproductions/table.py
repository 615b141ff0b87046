"""A table of results: named columns of words and numbers, as CSV and back."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Cell = str | float
Record = Mapping[str, Cell]

#: Digits that are kept: more would differ from machine to machine.
_DIGITS = 6


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
        rounded = tuple(tuple(_rounded(cell) for cell in row) for row in rows)
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
        writer.writerows([[_written(cell) for cell in row] for row in self.rows])
        return file.getvalue()

    @property
    def records(self) -> tuple[Record, ...]:
        """Each row by the names of the columns."""
        return tuple(dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def where(self, **wanted: Cell) -> Table:
        """Return the rows in which these columns have these values."""
        rows = [row for row, record in zip(self.rows, self.records, strict=True) if _fits(record, wanted)]
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
            raise ValueError(f"{len(found)} rows have {wanted}, where one was expected")
        return found[0]


def _fits(record: Record, wanted: Record) -> bool:
    return all(record[name] == value for name, value in wanted.items())


def _rounded(cell: Cell) -> Cell:
    return cell if isinstance(cell, str) else float(f"{cell:.{_DIGITS}g}")


def _written(cell: Cell) -> str:
    return cell if isinstance(cell, str) else f"{cell:.{_DIGITS}g}"


def _number_or_word(text: str) -> Cell:
    try:
        return float(text)
    except ValueError:
        return text
