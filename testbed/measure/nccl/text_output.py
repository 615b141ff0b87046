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
    """Columns of a row: the leading names, the names of one half, and whether a timestamp ends the row.

    A row has two halves with the same columns: the timings out-of-place, then the timings in-place.
    """

    leading_columns: tuple[str, ...]
    half: tuple[str, ...]
    has_timestamp: bool = False

    def count_cells(self, half_count: Literal[1, 2] = 2) -> int:
        """Return the number of blank-separated cells of a complete row. A timestamp counts as two, date and time."""
        return len(self.leading_columns) + half_count * len(self.half) + (2 if self.has_timestamp else 0)

    @classmethod
    def from_header(cls, names: Sequence[str]) -> Columns | None:
        """Return the columns of a header line, or None if the line is not a complete header."""
        half_starts = [index for index, name in enumerate(names) if name in _TIME_NAMES]
        if len(half_starts) != 2 or tuple(names[:3]) != _LEADING_COLUMNS:
            return None
        first_half, second_half = (
            tuple(names[half_starts[0] : half_starts[1]]),
            tuple(names[half_starts[1] :]),
        )
        has_timestamp = second_half[-1] == "timestamp"
        if first_half != (second_half[:-1] if has_timestamp else second_half) or not {"algbw", "busbw"} < set(
            first_half
        ):
            return None
        return cls(tuple(names[: half_starts[0]]), first_half, has_timestamp)

    @classmethod
    def guess_from_cells(cls, cells: Sequence[str]) -> Columns | None:
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
        return next((columns for columns in candidates if columns.count_cells() == len(cells)), None)


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


def make_row(columns: Columns, cells: Sequence[str], half_count: Literal[1, 2] = 2) -> NcclRow:
    """Return a row from its cells. If there is only one half of timings (a replayed trace), it is in-place.

    Raises `ValueError` for a wrong number of cells or a cell that is not a number.
    """
    if len(cells) != columns.count_cells(half_count):
        raise ValueError(f"a row has {len(cells)} cells instead of {columns.count_cells(half_count)}")
    half_width, half_cells = len(columns.half), cells[len(columns.leading_columns) :]
    leading_cells = dict(zip(columns.leading_columns, cells[: len(columns.leading_columns)], strict=True))
    timings = [
        _parse_timing(columns.half, half_cells[start : start + half_width])
        for start in range(0, half_count * half_width, half_width)
    ]
    return NcclRow(
        size_bytes=int(leading_cells["size"]),
        count=int(leading_cells["count"]),
        type=leading_cells["type"],
        redop=leading_cells.get("redop"),
        root=int(leading_cells["root"]) if "root" in leading_cells else None,
        out_of_place=timings[0] if half_count > 1 else None,
        in_place=timings[-1],
        timestamp=" ".join(half_cells[half_count * half_width :]) if columns.has_timestamp else None,
    )


def _parse_timing(names: Sequence[str], cells: Sequence[str]) -> NcclTiming:
    cell_by_name = dict(zip(names, cells, strict=True))
    wrong_count = parse_number(cell_by_name.get("#wrong"))
    spread = [parse_number(cell_by_name[name]) for name in _SPREAD_COLUMNS if name in cell_by_name]
    return NcclTiming(
        time_us=parse_number(cells[0]),
        algbw_gbytes_per_s=parse_number(cell_by_name["algbw"]),
        busbw_gbytes_per_s=parse_number(cell_by_name["busbw"]),
        wrong=None if wrong_count is None else int(wrong_count),
        largest_error=parse_number(cell_by_name.get("error")),
        copy_gbytes_per_s=parse_number(cell_by_name.get("copybw")),
        spread=IterationSpread(*spread) if len(spread) == len(_SPREAD_COLUMNS) else None,
    )


_LABEL_PATTERN = re.compile(r"^(?:\[\d+,\d+\](?:<std(?:out|err)>)?:|\s{0,3}\d+: )")
# A log line starts with a host name. It may follow the last number of a row without a blank. The pattern therefore
# needs a host name that starts with a letter, or it would remove digits of that number.
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
    """State of the parser. `pending_cells` holds the cells of an interrupted row."""

    columns: Columns | None = None
    rows: list[NcclRow] = field(default_factory=list)
    devices: list[NcclDevice] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    text_by_fact: dict[str, str] = field(default_factory=dict)
    pending_cells: list[str] = field(default_factory=list)
    has_failed: bool = False


def parse_text(text: str, name: str = "output") -> NcclTable:
    """Parse the text. Error messages begin with `name`, the name of the file.

    Truncated or malformed parts become sentences in `problems`. Raises `ResultsError`, naming the line, if the text is
    not output of nccl-tests or has no complete row.
    """
    parser_state = _OutputReader()
    lines = text.split("\n")
    # The last line has no line end, so its last word may be truncated: drop it.
    lines[-1] = re.sub(r"\S+$", "", lines[-1])
    for line_number, line in enumerate(lines, start=1):
        _read_line(parser_state, line_number, line.rstrip("\r"))
    _drop_pending_cells(parser_state, len(lines))
    if not parser_state.rows:
        raise _make_no_rows_error(parser_state, name, lines)
    if "average" not in parser_state.text_by_fact:
        parser_state.problems.append("the footer is missing: the run was cut off, or had not finished")
    text_by_fact = parser_state.text_by_fact
    library, iterations = text_by_fact.get("library"), text_by_fact.get("iterations")
    wrong_ok, average_ok = (
        _RESULT_WORDS.get(text_by_fact.get("wrong_word", "")),
        _RESULT_WORDS.get(text_by_fact.get("average_word", "")),
    )
    is_cpu_time = parser_state.columns is not None and "cputime" in parser_state.columns.half
    return NcclTable(
        source="text",
        rows=tuple(
            replace(row, iterations=int(iterations) if iterations else None) for row in parser_state.rows
        ),
        version=text_by_fact.get("version"),
        nccl_version=format_nccl_version(int(library)) if library else None,
        collective=text_by_fact.get("collective"),
        devices=tuple(parser_state.devices),
        time_kind="cpu" if is_cpu_time else "gpu",
        average_busbw_gbytes_per_s=_parse_average(text_by_fact.get("average")),
        average_ok=average_ok,
        out_of_bounds=int(text_by_fact["wrong"]) if "wrong" in text_by_fact else None,
        out_of_bounds_ok=wrong_ok,
        complete="average" in text_by_fact,
        failed=parser_state.has_failed or wrong_ok is False or average_ok is False,
        problems=tuple(parser_state.problems),
        json_path=text_by_fact.get("json_path"),
    )


def find_json_output_path(text: str) -> str | None:
    r"""Return the JSON path in the output. It may differ from the requested path: nccl-tests overwrites no file.

    >>> find_json_output_path("#\n# Writing JSON output to out.json.1\n")
    'out.json.1'
    """
    match = re.search(r"^# Writing JSON output to (.*\S)\s*$", text, re.MULTILINE)
    return match[1] if match else None


def _read_line(parser_state: _OutputReader, line_number: int, line: str) -> None:
    line = _LABEL_PATTERN.sub("", line)
    failure_match = _FAILURE_PATTERN.search(line)
    if failure_match:
        _note_failure(parser_state, line_number, failure_match[0].strip())
        line = line[: failure_match.start()]
    if line.startswith("#"):
        _read_comment(parser_state, line_number, line)
        return
    line = _LOG_PATTERN.sub("", line)
    if line.strip():
        _read_cells(parser_state, line_number, line)


def _note_failure(parser_state: _OutputReader, line_number: int, message: str) -> None:
    parser_state.has_failed = True
    parser_state.problems.append(f"line {line_number}: {message}")


def _read_comment(parser_state: _OutputReader, line_number: int, line: str) -> None:
    columns = Columns.from_header(line.lstrip("#").split())
    device = _DEVICE_PATTERN.match(line)
    if columns:
        if parser_state.rows:
            parser_state.problems.append(
                f"line {line_number}: another test starts; the table has the rows of all tests"
            )
        parser_state.columns = columns
    elif device:
        parser_state.devices.append(
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
        _note_failure(parser_state, line_number, line[2:].strip())
    else:
        for pattern in _HEADER_LINES:
            match = pattern.match(line)
            if match:
                parser_state.text_by_fact.update(
                    {key: value for key, value in match.groupdict().items() if value}
                )


def _read_cells(parser_state: _OutputReader, line_number: int, line: str) -> None:
    """Read the cells of a whole row, or of its part before or after an interruption."""
    cells = line.split()
    if starts_row(cells):
        _drop_pending_cells(parser_state, line_number)
    elif parser_state.pending_cells and continues_row(cells):
        cells = [*parser_state.pending_cells, *cells]
        parser_state.pending_cells = []
    else:
        return
    if parser_state.columns is None:
        parser_state.columns = Columns.guess_from_cells(cells)
        if parser_state.columns is None:
            return
        parser_state.problems.append(
            f"line {line_number}: no header; the columns were guessed from their number"
        )
    is_one_half = _BLANK_HALF_PATTERN.search(line) is not None and len(
        cells
    ) == parser_state.columns.count_cells(half_count=1)
    if len(cells) < parser_state.columns.count_cells() and not is_one_half:
        parser_state.pending_cells = cells
        return
    try:
        parser_state.rows.append(make_row(parser_state.columns, cells, half_count=1 if is_one_half else 2))
    except ValueError as error:
        parser_state.problems.append(
            f"line {line_number}: a row was left out: {error} ({' '.join(cells)[:80]})"
        )


def _drop_pending_cells(parser_state: _OutputReader, line_number: int) -> None:
    if parser_state.pending_cells:
        size = parser_state.pending_cells[0]
        parser_state.problems.append(
            f"line {line_number}: the row of size {size} is incomplete and was skipped"
        )
        parser_state.pending_cells = []


def _parse_average(cell: str | None) -> float | None:
    try:
        return parse_number(cell)
    except ValueError:
        return None


def _make_no_rows_error(parser_state: _OutputReader, name: str, lines: Sequence[str]) -> ResultsError:
    if parser_state.columns or parser_state.devices or parser_state.text_by_fact or parser_state.has_failed:
        reason = "; ".join(parser_state.problems) or "the run ended before its first size"
        return ResultsError(f"{name}:{len(lines)}: no complete row of results: {reason}. Run the test again")
    first_line = next((line_number for line_number, line in enumerate(lines, start=1) if line.strip()), 1)
    return ResultsError(
        f"{name}:{first_line}: not output of nccl-tests: no line names the columns (`# size count type ...`). "
        f"Give the standard output of a test such as all_reduce_perf, or the file it wrote with -J"
    )
