"""The text that nccl-tests print, every set of columns since 2019 (`nccl_columns`), whole or cut off.

What other programs print in between (NCCL's own log, labels of `mpirun` and `srun`) is set apart, also in
the middle of a row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from testbed.errors import ResultsError
from testbed.measure.nccl.columns import Columns, continues_row, make_row, number, starts_row
from testbed.measure.nccl.table import NcclDevice, NcclRow, NcclTable, nccl_version_text

_LABEL = re.compile(r"^(?:\[\d+,\d+\](?:<std(?:out|err)>)?:|\s{0,3}\d+: )")
# A log line may follow a row's last number without a blank, so a host name begins with a letter here.
_LOG = re.compile(r"(?:\[[^\]]*\] )?[A-Za-z][\w.-]*:\d+:\d+ (?:\[-?\d+\] )?\S.*$")
_FAILURE = re.compile(r"\S*: Test (?:NCCL failure|CUDA failure|timeout).*| \.\. \S+ pid \d+: Test failure.*")
_BLANK_HALF = re.compile(r"\S {30,}\S")
_DEVICE = re.compile(
    r"#\s+Rank\s+(?P<rank>\d+)\s+(?:Group\s+(?P<group>\d+)\s+)?Pid\s+(?P<pid>\d+)\s+on\s+(?P<host>\S+)\s+"
    r"device\s+(?P<device>\d+)\s+\[(?P<bus>[^\]]*)\]\s*(?P<name>.*)"
)
_FACTS = (
    re.compile(r"# nccl-tests version (?P<version>\S+)(?: nccl-headers=\d+ nccl-library=(?P<library>\d+))?"),
    re.compile(r"# Collective test starting: (?P<collective>.*\S)"),
    re.compile(r"# nThread .*?(?<!warmup )\biters: (?P<iterations>\d+)"),
    re.compile(r"# Writing JSON output to (?P<json_path>.*\S)"),
    re.compile(r"#\s*Out of bounds values\s*:\s*(?P<wrong>\d+)\s*(?P<wrong_word>OK|FAILED)?"),
    re.compile(r"#\s*Avg bus bandwidth\s*:\s*(?P<average>\S+)\s*(?P<average_word>OK|FAILED)?"),
)
_WORDS = {"OK": True, "FAILED": False}


@dataclass(slots=True)
class _Reading:
    """State of the reader; `pending` are the cells of a row that something else interrupted."""

    columns: Columns | None = None
    rows: list[NcclRow] = field(default_factory=list)
    devices: list[NcclDevice] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    failed: bool = False


def parse_text(text: str, name: str = "output") -> NcclTable:
    """Return the table that the text holds; `name` (a file) begins messages.

    What is cut off or broken becomes a sentence in `problems`, as long as there is one whole row.
    Raises `ResultsError`, naming the line, when the text is not output of nccl-tests or has no row.
    """
    reading = _Reading()
    lines = text.split("\n")
    # The last line has no end, so its last word may be cut short and does not count.
    lines[-1] = re.sub(r"\S+$", "", lines[-1])
    for line_number, line in enumerate(lines, start=1):
        _read_line(reading, line_number, line.rstrip("\r"))
    _drop_pending(reading, len(lines))
    if not reading.rows:
        raise _no_rows(reading, name, lines)
    if "average" not in reading.facts:
        reading.problems.append("the footer is missing: the run was cut off, or had not finished")
    return _table(reading)


def json_output_path(text: str) -> str | None:
    r"""Return where nccl-tests say they write their JSON: not always as asked, since no file is overwritten.

    >>> json_output_path("#\n# Writing JSON output to out.json.1\n")
    'out.json.1'
    """
    found = re.search(r"^# Writing JSON output to (.*\S)\s*$", text, re.MULTILINE)
    return found[1] if found else None


def _read_line(reading: _Reading, line_number: int, line: str) -> None:
    line = _LABEL.sub("", line)
    failure = _FAILURE.search(line)
    if failure:
        _note_failure(reading, line_number, failure[0].strip())
        line = line[: failure.start()]
    if line.startswith("#"):
        _read_comment(reading, line_number, line)
        return
    line = _LOG.sub("", line)
    if line.strip():
        _read_cells(reading, line_number, line)


def _note_failure(reading: _Reading, line_number: int, what: str) -> None:
    reading.failed = True
    reading.problems.append(f"line {line_number}: {what}")


def _read_comment(reading: _Reading, line_number: int, line: str) -> None:
    columns = Columns.of_header(line.lstrip("#").split())
    device = _DEVICE.match(line)
    if columns:
        if reading.rows:
            reading.problems.append(f"line {line_number}: another test begins; rows of all are given")
        reading.columns = columns
    elif device:
        reading.devices.append(_device(device))
    elif line.startswith("# error: "):
        _note_failure(reading, line_number, line[2:].strip())
    else:
        for fact in _FACTS:
            found = fact.match(line)
            if found:
                reading.facts.update({key: word for key, word in found.groupdict().items() if word})


def _read_cells(reading: _Reading, line_number: int, line: str) -> None:
    """Read cells of a row: all of it, or the part before or after an interruption."""
    cells = line.split()
    if starts_row(cells):
        _drop_pending(reading, line_number)
    elif reading.pending and continues_row(cells):
        cells = [*reading.pending, *cells]
        reading.pending = []
    else:
        return
    if reading.columns is None:
        reading.columns = Columns.guessed(cells)
        if reading.columns is None:
            return
        reading.problems.append(f"line {line_number}: no header; the columns were guessed from their number")
    one_half = _BLANK_HALF.search(line) is not None and len(cells) == reading.columns.cells(halves=1)
    if len(cells) < reading.columns.cells() and not one_half:
        reading.pending = cells
        return
    try:
        reading.rows.append(make_row(reading.columns, cells, halves=1 if one_half else 2))
    except ValueError as error:
        reading.problems.append(f"line {line_number}: a row was left out: {error} ({' '.join(cells)[:80]})")


def _drop_pending(reading: _Reading, line_number: int) -> None:
    if reading.pending:
        size = reading.pending[0]
        reading.problems.append(f"line {line_number}: the row of size {size} is not whole and was left out")
        reading.pending = []


def _device(match: re.Match[str]) -> NcclDevice:
    return NcclDevice(
        rank=int(match["rank"]),
        group=int(match["group"]) if match["group"] else None,
        pid=int(match["pid"]),
        host=match["host"],
        device=int(match["device"]),
        bus_id=match["bus"],
        name=match["name"].strip(),
    )


def _table(reading: _Reading) -> NcclTable:
    facts = reading.facts
    library, iterations = facts.get("library"), facts.get("iterations")
    wrong_ok, average_ok = _WORDS.get(facts.get("wrong_word", "")), _WORDS.get(facts.get("average_word", ""))
    is_cpu_time = reading.columns is not None and "cputime" in reading.columns.half
    return NcclTable(
        source="text",
        rows=tuple(replace(row, iterations=int(iterations) if iterations else None) for row in reading.rows),
        version=facts.get("version"),
        nccl_version=nccl_version_text(int(library)) if library else None,
        collective=facts.get("collective"),
        devices=tuple(reading.devices),
        time_kind="cpu" if is_cpu_time else "gpu",
        average_busbw_gbytes_per_s=_average(facts.get("average")),
        average_ok=average_ok,
        out_of_bounds=int(facts["wrong"]) if "wrong" in facts else None,
        out_of_bounds_ok=wrong_ok,
        complete="average" in facts,
        failed=reading.failed or wrong_ok is False or average_ok is False,
        problems=tuple(reading.problems),
        json_path=facts.get("json_path"),
    )


def _average(word: str | None) -> float | None:
    try:
        return number(word)
    except ValueError:
        return None


def _no_rows(reading: _Reading, name: str, lines: Sequence[str]) -> ResultsError:
    if reading.columns or reading.devices or reading.facts or reading.failed:
        why = "; ".join(reading.problems) or "the run ended before its first size"
        return ResultsError(f"{name}:{len(lines)}: no whole row of results: {why}. Run the test again")
    first = next((place for place, line in enumerate(lines, start=1) if line.strip()), 1)
    return ResultsError(
        f"{name}:{first}: not output of nccl-tests: no line names the columns (`# size count type ...`). "
        f"Give the standard output of a test such as all_reduce_perf, or the file it wrote with -J"
    )
