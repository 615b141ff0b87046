"""Plots as data: panels of lines, bars or steps. `drawing` makes the file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from testbed.design.reproductions.table import Cell, Table

Kind = Literal["lines", "bars", "steps"]


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
