"""Meaning of the columns of nccl-tests' text, and a row made from its cells.

    columns                          since
    error                            2019, without redop or root where the collective has none
    #wrong in place of error         2022-08, always with redop and root
    cputime in place of time         2022-09 (`-C 1`)
    copybw after busbw               2024-07 until 2025-09
    timestamp at the end             2025-10 (`-S 1`)
    i_min i_max i_p99 i_cv%          2026-06 (`-I 1`), after #wrong

The header names the columns, and rows are split on blanks: widths have changed over the years, and wide
numbers push their neighbours aside.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from testbed.measure.nccl.table import IterationSpread, NcclRow, NcclTiming

_TIME_NAMES = ("time", "cputime")
_LEADING = ("size", "count", "type")
_HALF = ("time", "algbw", "busbw", "#wrong")
_SPREAD = ("i_min", "i_max", "i_p99", "i_cv%")
_ERROR_CELL = re.compile(r"\de[+-]\d\d")  # `%5.0le`, as `error` was printed
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True, slots=True)
class Columns:
    """The names before the times, the names of one half, and whether a timestamp ends the row."""

    leading: tuple[str, ...]
    half: tuple[str, ...]
    has_timestamp: bool = False

    def cells(self, halves: Literal[1, 2] = 2) -> int:
        """Return blank-separated cells of a whole row; a timestamp is a date and a time."""
        return len(self.leading) + halves * len(self.half) + (2 if self.has_timestamp else 0)

    @classmethod
    def of_header(cls, names: Sequence[str]) -> Columns | None:
        """Return the columns that a header line names, or None when it is no whole header line."""
        starts = [place for place, name in enumerate(names) if name in _TIME_NAMES]
        if len(starts) != 2 or tuple(names[:3]) != _LEADING:
            return None
        first, rest = tuple(names[starts[0] : starts[1]]), tuple(names[starts[1] :])
        has_timestamp = rest[-1] == "timestamp"
        if first != (rest[:-1] if has_timestamp else rest) or not {"algbw", "busbw"} < set(first):
            return None
        return cls(tuple(names[: starts[0]]), first, has_timestamp)

    @classmethod
    def guessed(cls, cells: Sequence[str]) -> Columns | None:
        """Return the columns of a row without a header, by their number; None when no set has so many."""
        if len(cells) < len(_LEADING) + 2 * len(_HALF):
            return None
        both = (*_LEADING, "redop", "root")
        one = (*_LEADING, "root" if is_whole(cells[3]) else "redop")
        has_timestamp = _DATE.fullmatch(cells[-2]) is not None
        candidates = (
            *(cls(leading, _older(cells, len(leading)), has_timestamp) for leading in (_LEADING, one, both)),
            cls(both, (*_HALF[:3], "copybw", "#wrong"), has_timestamp),
            cls(both, (*_HALF, *_SPREAD), has_timestamp),
        )
        return next((columns for columns in candidates if columns.cells() == len(cells)), None)


def _older(cells: Sequence[str], leading: int) -> tuple[str, ...]:
    """Return the half with `error` when its cell is printed as an error was, else with `#wrong`."""
    cell = cells[leading + 3] if len(cells) > leading + 3 else ""
    is_error = _ERROR_CELL.fullmatch(cell) is not None and float(cell) < 1e5
    return (*_HALF[:3], "error") if is_error else _HALF


def starts_row(cells: Sequence[str]) -> bool:
    """Return whether the cells begin a row: size, count and the name of a type."""
    return len(cells) >= 3 and is_whole(cells[0]) and is_whole(cells[1]) and cells[2][0].isalpha()


def continues_row(cells: Sequence[str]) -> bool:
    """Return whether the cells can be figures that belong to a row begun before."""
    try:
        number(cells[0])
    except ValueError:
        return False
    return not starts_row(cells)


def is_whole(cell: str) -> bool:
    """Return whether a cell is a whole number."""
    return re.fullmatch(r"-?[0-9]{1,20}", cell) is not None


def number(cell: str | None) -> float | None:
    """Return the number of a cell; None for `N/A`, for what is no finite number, and for no cell.

    Raises `ValueError` for anything else.
    """
    if cell is None or cell == "N/A":
        return None
    value = float(cell)
    return value if math.isfinite(value) else None


def make_row(columns: Columns, cells: Sequence[str], halves: Literal[1, 2] = 2) -> NcclRow:
    """Return a row from exactly its cells; with one half it is the in-place one (a replayed trace).

    Raises `ValueError` when there are too many cells or a number is none.
    """
    if len(cells) != columns.cells(halves):
        raise ValueError(f"{len(cells)} cells where {columns.cells(halves)} were announced")
    width, rest = len(columns.half), cells[len(columns.leading) :]
    before = dict(zip(columns.leading, cells[: len(columns.leading)], strict=True))
    timings = [
        _timing(columns.half, rest[start : start + width]) for start in range(0, halves * width, width)
    ]
    return NcclRow(
        size_bytes=int(before["size"]),
        count=int(before["count"]),
        type=before["type"],
        redop=before.get("redop"),
        root=int(before["root"]) if "root" in before else None,
        out_of_place=timings[0] if halves > 1 else None,
        in_place=timings[-1],
        timestamp=" ".join(rest[halves * width :]) if columns.has_timestamp else None,
    )


def _timing(names: Sequence[str], cells: Sequence[str]) -> NcclTiming:
    by_name = dict(zip(names, cells, strict=True))
    wrong = number(by_name.get("#wrong"))
    spread = [number(by_name[name]) for name in _SPREAD if name in by_name]
    return NcclTiming(
        time_us=number(cells[0]),
        algbw_gbytes_per_s=number(by_name["algbw"]),
        busbw_gbytes_per_s=number(by_name["busbw"]),
        wrong=None if wrong is None else int(wrong),
        largest_error=number(by_name.get("error")),
        copy_gbytes_per_s=number(by_name.get("copybw")),
        spread=IterationSpread(*spread) if len(spread) == len(_SPREAD) else None,
    )
