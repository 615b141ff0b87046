"""The text output of nccl-tests, with every set of columns since 2019, complete or truncated.

    columns                          since
    error                            2019, without redop or root if the collective has none
    #wrong in place of error         2022-08, always with redop and root
    cputime in place of time         2022-09 (`-C 1`)
    copybw after busbw               2024-07 until 2025-09
    timestamp at the end             2025-10 (`-S 1`)
    i_min i_max i_p99 i_cv%          2026-06 (`-I 1`), after #wrong

The header names the columns. Rows are split on blanks, because widths have changed over the years and wide numbers
shift their neighbours. The parser removes output of other programs (NCCL's log, labels of `mpirun` and `srun`), even in
the middle of a row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from testbed.errors import ResultsError
from testbed.measure.nccl.table import (
    IterationSpread,
    NcclDevice,
    NcclRow,
    NcclTable,
    NcclTiming,
    format_nccl_version,
)

_TIME_NAMES = ("time", "cputime")
_LEADING_COLUMNS = ("size", "count", "type")
_HALF_COLUMNS = ("time", "algbw", "busbw", "#wrong")
_SPREAD_COLUMNS = ("i_min", "i_max", "i_p99", "i_cv%")
_ERROR_CELL = re.compile(r"\de[+-]\d\d")  # nccl-tests printed `error` with `%5.0le`
_DATE_PATTERN = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of a row: names before the times, names of one half, and True if a timestamp ends the row."""

    leading: tuple[str, ...]
    half: tuple[str, ...]
    has_timestamp: bool = False

    def cells(self, halves: Literal[1, 2] = 2) -> int:
        """Return the number of blank-separated cells of a complete row. A timestamp counts as two, date and time."""
        return len(self.leading) + halves * len(self.half) + (2 if self.has_timestamp else 0)

    @classmethod
    def from_header(cls, names: Sequence[str]) -> Columns | None:
        """Return the columns of a header line, or None if the line is not a complete header."""
        starts = [index for index, name in enumerate(names) if name in _TIME_NAMES]
        if len(starts) != 2 or tuple(names[:3]) != _LEADING_COLUMNS:
            return None
        first_half, remainder = tuple(names[starts[0] : starts[1]]), tuple(names[starts[1] :])
        has_timestamp = remainder[-1] == "timestamp"
        if first_half != (remainder[:-1] if has_timestamp else remainder) or not {"algbw", "busbw"} < set(
            first_half
        ):
            return None
        return cls(tuple(names[: starts[0]]), first_half, has_timestamp)

    @classmethod
    def guess(cls, cells: Sequence[str]) -> Columns | None:
        """Guess the columns of a row without a header from the number of its cells. Return None if none match."""
        if len(cells) < len(_LEADING_COLUMNS) + 2 * len(_HALF_COLUMNS):
            return None
        both_columns = (*_LEADING_COLUMNS, "redop", "root")
        one_column = (*_LEADING_COLUMNS, "root" if is_integer(cells[3]) else "redop")
        has_timestamp = _DATE_PATTERN.fullmatch(cells[-2]) is not None
        candidates = (
            *(
                cls(leading_columns, _guess_half(cells, len(leading_columns)), has_timestamp)
                for leading_columns in (_LEADING_COLUMNS, one_column, both_columns)
            ),
            cls(both_columns, (*_HALF_COLUMNS[:3], "copybw", "#wrong"), has_timestamp),
            cls(both_columns, (*_HALF_COLUMNS, *_SPREAD_COLUMNS), has_timestamp),
        )
        return next((columns for columns in candidates if columns.cells() == len(cells)), None)


def _guess_half(cells: Sequence[str], leading_count: int) -> tuple[str, ...]:
    """Return the columns of one half, with `error` if its cell looks like an error, else with `#wrong`."""
    cell = cells[leading_count + 3] if len(cells) > leading_count + 3 else ""
    is_error = _ERROR_CELL.fullmatch(cell) is not None and float(cell) < 1e5
    return (*_HALF_COLUMNS[:3], "error") if is_error else _HALF_COLUMNS


def starts_row(cells: Sequence[str]) -> bool:
    """Return whether the cells start a row: size, count and the name of a type."""
    return len(cells) >= 3 and is_integer(cells[0]) and is_integer(cells[1]) and cells[2][0].isalpha()


def continues_row(cells: Sequence[str]) -> bool:
    """Return whether the cells can be the rest of an interrupted row."""
    try:
        parse_number(cells[0])
    except ValueError:
        return False
    return not starts_row(cells)


def is_integer(cell: str) -> bool:
    """Return whether a cell is a whole number."""
    return re.fullmatch(r"-?[0-9]{1,20}", cell) is not None


def parse_number(cell: str | None) -> float | None:
    """Return the number in a cell, or None for `N/A`, infinity, not-a-number and a missing cell.

    Raises `ValueError` for anything else.
    """
    if cell is None or cell == "N/A":
        return None
    value = float(cell)
    return value if math.isfinite(value) else None


def make_row(columns: Columns, cells: Sequence[str], halves: Literal[1, 2] = 2) -> NcclRow:
    """Return a row from its cells. A single half is in-place (a replayed trace).

    Raises `ValueError` for a wrong number of cells or a cell that is not a number.
    """
    if len(cells) != columns.cells(halves):
        raise ValueError(f"{len(cells)} cells instead of {columns.cells(halves)}")
    width, half_cells = len(columns.half), cells[len(columns.leading) :]
    leading_cells = dict(zip(columns.leading, cells[: len(columns.leading)], strict=True))
    timings = [
        _parse_timing(columns.half, half_cells[start : start + width])
        for start in range(0, halves * width, width)
    ]
    return NcclRow(
        size_bytes=int(leading_cells["size"]),
        count=int(leading_cells["count"]),
        type=leading_cells["type"],
        redop=leading_cells.get("redop"),
        root=int(leading_cells["root"]) if "root" in leading_cells else None,
        out_of_place=timings[0] if halves > 1 else None,
        in_place=timings[-1],
        timestamp=" ".join(half_cells[halves * width :]) if columns.has_timestamp else None,
    )


def _parse_timing(names: Sequence[str], cells: Sequence[str]) -> NcclTiming:
    by_name = dict(zip(names, cells, strict=True))
    wrong_count = parse_number(by_name.get("#wrong"))
    spread = [parse_number(by_name[name]) for name in _SPREAD_COLUMNS if name in by_name]
    return NcclTiming(
        time_us=parse_number(cells[0]),
        algbw_gbytes_per_s=parse_number(by_name["algbw"]),
        busbw_gbytes_per_s=parse_number(by_name["busbw"]),
        wrong=None if wrong_count is None else int(wrong_count),
        largest_error=parse_number(by_name.get("error")),
        copy_gbytes_per_s=parse_number(by_name.get("copybw")),
        spread=IterationSpread(*spread) if len(spread) == len(_SPREAD_COLUMNS) else None,
    )


_LABEL_PATTERN = re.compile(r"^(?:\[\d+,\d+\](?:<std(?:out|err)>)?:|\s{0,3}\d+: )")
# A log line may follow a row's last number without a blank, so only host names that start with a letter are removed.
_LOG_PATTERN = re.compile(r"(?:\[[^\]]*\] )?[A-Za-z][\w.-]*:\d+:\d+ (?:\[-?\d+\] )?\S.*$")
_FAILURE_PATTERN = re.compile(
    r"\S*: Test (?:NCCL failure|CUDA failure|timeout).*| \.\. \S+ pid \d+: Test failure.*"
)
_BLANK_HALF_PATTERN = re.compile(r"\S {30,}\S")
_DEVICE_PATTERN = re.compile(
    r"#\s+Rank\s+(?P<rank>\d+)\s+(?:Group\s+(?P<group>\d+)\s+)?Pid\s+(?P<pid>\d+)\s+on\s+(?P<host>\S+)\s+"
    r"device\s+(?P<device>\d+)\s+\[(?P<bus>[^\]]*)\]\s*(?P<name>.*)"
)
_HEADER_LINES = (
    re.compile(r"# nccl-tests version (?P<version>\S+)(?: nccl-headers=\d+ nccl-library=(?P<library>\d+))?"),
    re.compile(r"# Collective test starting: (?P<collective>.*\S)"),
    re.compile(r"# nThread .*?(?<!warmup )\biters: (?P<iterations>\d+)"),
    re.compile(r"# Writing JSON output to (?P<json_path>.*\S)"),
    re.compile(r"#\s*Out of bounds values\s*:\s*(?P<wrong>\d+)\s*(?P<wrong_word>OK|FAILED)?"),
    re.compile(r"#\s*Avg bus bandwidth\s*:\s*(?P<average>\S+)\s*(?P<average_word>OK|FAILED)?"),
)
_RESULT_WORDS = {"OK": True, "FAILED": False}


@dataclass(slots=True)
class _OutputReader:
    """State of the parser. `pending` holds the cells of an interrupted row."""

    columns: Columns | None = None
    rows: list[NcclRow] = field(default_factory=list)
    devices: list[NcclDevice] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    has_failed: bool = False


def parse_text(text: str, name: str = "output") -> NcclTable:
    """Parse the text. `name` (a file) starts all messages.

    Truncated or malformed parts become sentences in `problems`. Raises `ResultsError`, naming the line, if the text is
    not output of nccl-tests or has no complete row.
    """
    reading = _OutputReader()
    lines = text.split("\n")
    # The last line has no line end, so its last word may be truncated: drop it.
    lines[-1] = re.sub(r"\S+$", "", lines[-1])
    for line_number, line in enumerate(lines, start=1):
        _read_line(reading, line_number, line.rstrip("\r"))
    _drop_pending(reading, len(lines))
    if not reading.rows:
        raise _make_no_rows_error(reading, name, lines)
    if "average" not in reading.facts:
        reading.problems.append("the footer is missing: the run was cut off, or had not finished")
    facts = reading.facts
    library, iterations = facts.get("library"), facts.get("iterations")
    wrong_ok, average_ok = (
        _RESULT_WORDS.get(facts.get("wrong_word", "")),
        _RESULT_WORDS.get(facts.get("average_word", "")),
    )
    is_cpu_time = reading.columns is not None and "cputime" in reading.columns.half
    return NcclTable(
        source="text",
        rows=tuple(replace(row, iterations=int(iterations) if iterations else None) for row in reading.rows),
        version=facts.get("version"),
        nccl_version=format_nccl_version(int(library)) if library else None,
        collective=facts.get("collective"),
        devices=tuple(reading.devices),
        time_kind="cpu" if is_cpu_time else "gpu",
        average_busbw_gbytes_per_s=_parse_average(facts.get("average")),
        average_ok=average_ok,
        out_of_bounds=int(facts["wrong"]) if "wrong" in facts else None,
        out_of_bounds_ok=wrong_ok,
        complete="average" in facts,
        failed=reading.has_failed or wrong_ok is False or average_ok is False,
        problems=tuple(reading.problems),
        json_path=facts.get("json_path"),
    )


def find_json_output_path(text: str) -> str | None:
    r"""Return the JSON path that the output names. It may differ from the requested path, lest a file is overwritten.

    >>> find_json_output_path("#\n# Writing JSON output to out.json.1\n")
    'out.json.1'
    """
    match = re.search(r"^# Writing JSON output to (.*\S)\s*$", text, re.MULTILINE)
    return match[1] if match else None


def _read_line(reading: _OutputReader, line_number: int, line: str) -> None:
    line = _LABEL_PATTERN.sub("", line)
    failure = _FAILURE_PATTERN.search(line)
    if failure:
        _note_failure(reading, line_number, failure[0].strip())
        line = line[: failure.start()]
    if line.startswith("#"):
        _read_comment(reading, line_number, line)
        return
    line = _LOG_PATTERN.sub("", line)
    if line.strip():
        _read_cells(reading, line_number, line)


def _note_failure(reading: _OutputReader, line_number: int, message: str) -> None:
    reading.has_failed = True
    reading.problems.append(f"line {line_number}: {message}")


def _read_comment(reading: _OutputReader, line_number: int, line: str) -> None:
    columns = Columns.from_header(line.lstrip("#").split())
    device = _DEVICE_PATTERN.match(line)
    if columns:
        if reading.rows:
            reading.problems.append(
                f"line {line_number}: another test starts; the table has the rows of all tests"
            )
        reading.columns = columns
    elif device:
        reading.devices.append(
            NcclDevice(
                rank=int(device["rank"]),
                group=int(device["group"]) if device["group"] else None,
                pid=int(device["pid"]),
                host=device["host"],
                device=int(device["device"]),
                bus_id=device["bus"],
                name=device["name"].strip(),
            )
        )
    elif line.startswith("# error: "):
        _note_failure(reading, line_number, line[2:].strip())
    else:
        for pattern in _HEADER_LINES:
            match = pattern.match(line)
            if match:
                reading.facts.update({key: value for key, value in match.groupdict().items() if value})


def _read_cells(reading: _OutputReader, line_number: int, line: str) -> None:
    """Read the cells of a whole row, or of its part before or after an interruption."""
    cells = line.split()
    if starts_row(cells):
        _drop_pending(reading, line_number)
    elif reading.pending and continues_row(cells):
        cells = [*reading.pending, *cells]
        reading.pending = []
    else:
        return
    if reading.columns is None:
        reading.columns = Columns.guess(cells)
        if reading.columns is None:
            return
        reading.problems.append(f"line {line_number}: no header; the columns were guessed from their number")
    one_half = _BLANK_HALF_PATTERN.search(line) is not None and len(cells) == reading.columns.cells(halves=1)
    if len(cells) < reading.columns.cells() and not one_half:
        reading.pending = cells
        return
    try:
        reading.rows.append(make_row(reading.columns, cells, halves=1 if one_half else 2))
    except ValueError as error:
        reading.problems.append(f"line {line_number}: a row was left out: {error} ({' '.join(cells)[:80]})")


def _drop_pending(reading: _OutputReader, line_number: int) -> None:
    if reading.pending:
        size = reading.pending[0]
        reading.problems.append(f"line {line_number}: the row of size {size} is incomplete and was skipped")
        reading.pending = []


def _parse_average(cell: str | None) -> float | None:
    try:
        return parse_number(cell)
    except ValueError:
        return None


def _make_no_rows_error(reading: _OutputReader, name: str, lines: Sequence[str]) -> ResultsError:
    if reading.columns or reading.devices or reading.facts or reading.has_failed:
        reason = "; ".join(reading.problems) or "the run ended before its first size"
        return ResultsError(f"{name}:{len(lines)}: no complete row of results: {reason}. Run the test again")
    first_line = next((line_number for line_number, line in enumerate(lines, start=1) if line.strip()), 1)
    return ResultsError(
        f"{name}:{first_line}: not output of nccl-tests: no line names the columns (`# size count type ...`). "
        f"Give the standard output of a test such as all_reduce_perf, or the file it wrote with -J"
    )
