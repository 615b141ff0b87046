"""Stimuli from files: CSV, NPZ, or a Python generator; and what is expected of the outputs.

CSV has a line of names and a line for every cycle. NPZ has an array for every name. A Python file defines
`stimulus(ports)`, which yields a dictionary for every cycle. Names are those of `signals`; with `expect:` before it
an output is named, which must then carry the value in that cycle. What is not named: ready is 1, the shadow bank
holds the targets of the text, everything else is 0. An empty cell is 0, and expects nothing. A column `cycle` of a
CSV numbers the lines from 0, for the reader; one that says anything else is refused.
"""

from __future__ import annotations

import csv
import io
import runpy
import traceback
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, islice, repeat
from pathlib import Path
from typing import Any

import numpy as np

from fpga.count_action.diagnostics import CountActionError, quote
from fpga.count_action.model import Datapath
from fpga.count_action.ports import Rows, ports_of
from fpga.count_action.simulate.reference import Reference
from fpga.count_action.simulate.signals import Wire, input_wires, output_wires
from fpga.count_action.simulate.stimuli.collector import EXPECT, Collector, Expectation, Found, Stimulus

CYCLE = "cycle"
"""The column of a CSV that numbers its lines."""


def load_stimulus(datapath: Datapath, path: Path, cycles: int | None = None) -> Stimulus:
    """Return the stimulus in a `.csv`, `.npz` or `.py` file; with `cycles`, no more of it is read than so many.

    Raises `CountActionError` with the place of every error, and when there are more than `MAX_CYCLES`.
    """
    readers: dict[str, Callable[[Collector, Path, int | None], None]] = {
        ".csv": _csv,
        ".npz": _npz,
        ".py": _python,
    }
    collector = Collector(datapath, str(path))
    if path.suffix.lower() not in readers:
        hint = f"There are: {', '.join(readers)}."
        raise collector.error(1, 1, f"unknown stimulus format {quote(path.suffix)}", hint)
    try:
        readers[path.suffix.lower()](collector, path, cycles)
    except OSError as error:
        raise collector.error(1, 1, f"cannot be read: {error.strerror or error}", "Check the path.") from None
    return collector.stimulus()


# -------------------------------------------------------------------------------------------------- CSV


def _csv(collector: Collector, path: Path, cycles: int | None) -> None:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise collector.error(
            1, 1, f"is not text: byte {error.start} is not UTF-8", "Save it as UTF-8."
        ) from None
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        lines = [(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]
    except csv.Error as error:
        raise collector.error(
            reader.line_num, 1, f"is not valid CSV: {error}", "Save it as CSV with commas."
        ) from None
    if not lines:
        raise collector.error(1, 1, "is empty", "Write an example with --init.")
    (first, header), *rest = lines
    columns = _header(collector, first, header)
    collector.settle()
    for number, (line, cells) in enumerate(rest[:cycles]):
        if len(cells) > len(header):
            collector.note(
                line, len(header) + 1, f"{len(cells)} cells under {len(header)} names", "Remove some."
            )
            continue
        # Every line is one cycle: a number that leaves some out, or begins elsewhere, is another run.
        for place, (name, said) in enumerate(zip(header, cells, strict=False)):
            if name.strip().lower() == CYCLE and said.strip() not in {"", str(number)}:
                message = (
                    f"{quote(said.strip())} under {quote(name.strip())}, but this line is cycle {number}"
                )
                hint = "Write a line for every cycle, numbered from 0, or leave the column out."
                raise collector.error(line, place + 1, message, hint)
        collector.cycle(_cells(collector, columns, line, cells), line)


def _header(collector: Collector, line: int, names: list[str]) -> list[Found]:
    columns: list[Found] = []
    seen: set[str] = set()
    for place, name in enumerate(each.strip() for each in names):
        twice = name in seen
        if twice:
            collector.note(line, place + 1, f"{quote(name)} stands twice", "Remove one.")
        seen.add(name)
        ignored = twice or name.lower() in {CYCLE, "#", ""}
        columns.append(None if ignored else collector.wire(name, line, place + 1))
    collector.check_overlaps(zip(names, columns, strict=True), line, count(1))
    return columns


def _cells(
    collector: Collector, columns: list[Found], line: int, cells: list[str]
) -> Iterator[tuple[Wire, bool, int, int]]:
    for place, (column, cell) in enumerate(zip(columns, cells, strict=False)):
        if column is None or not cell.strip():
            continue
        try:
            value = int(cell.strip(), 0)
        except ValueError:
            hint = "Write a whole number, also as 0x1f or 0b101, or nothing."
            collector.note(line, place + 1, f"{quote(cell.strip())} is not a number", hint)
            continue
        yield (*column, value, place + 1)


# -------------------------------------------------------------------------------------------------- NPZ


def _npz(collector: Collector, path: Path, cycles: int | None) -> None:
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: np.asarray(stored[name]) for name in stored.files}
    except (ValueError, zipfile.BadZipFile, EOFError):
        raise collector.error(
            1, 1, "is not an NPZ file", "Write it with numpy.savez(file, NAME=values)."
        ) from None
    known = [(collector.wire(name, 1, 1), name, array) for name, array in arrays.items()]
    collector.check_overlaps(((name, wire) for wire, name, _ in known), 1, repeat(1))
    collector.settle()
    length = max((len(array) for array in arrays.values() if array.ndim), default=0)
    for name, array in arrays.items():
        if array.ndim != 1 or array.dtype.kind not in "iub" or len(array) != length:
            message = f"{quote(name)} is {array.dtype}{list(array.shape)}; {length} whole numbers are needed"
            collector.note(1, 1, message, "All arrays have one value a cycle.")
    collector.settle()
    series = [(*wire, array[:cycles].tolist()) for wire, _, array in known if wire is not None]
    for cycle in range(length)[:cycles]:
        collector.cycle(
            ((wire, expected, int(values[cycle]), 1) for wire, expected, values in series), cycle + 1
        )


# ----------------------------------------------------------------------------------------------- Python


def _python(collector: Collector, path: Path, cycles: int | None) -> None:
    """Run the user's file: it is a program, and may never end by itself."""
    path.read_bytes()  # a file that cannot be read is reported as such
    try:
        make = runpy.run_path(str(path)).get("stimulus")
        if not callable(make):
            raise collector.error(
                1, 1, "has no function `stimulus`", "Write `def stimulus(ports): yield {...}`."
            )
        made = make(ports_of(collector.datapath))
        for number, cells in enumerate(islice(made, cycles)):
            line = _line_of(path, made)
            collector.cycle(_read_cycle(collector, number, cells, line), line)
            collector.settle()
    except CountActionError:
        raise
    except SyntaxError as error:
        place = (error.lineno or 1, error.offset or 1)
        raise collector.error(*place, f"is not valid Python: {error.msg}", "Fix it.") from None
    except (
        Exception,
        SystemExit,
    ) as error:  # `sys.exit(0)` there must not end the command as if all were well
        message = f"{type(error).__name__} in the stimulus: {error}"
        raise collector.error(_line_in(path, error), 1, message, "Fix the generator.") from error


def _read_cycle(
    collector: Collector, cycle: int, cells: Any, line: int
) -> Iterator[tuple[Wire, bool, int, int]]:
    if not isinstance(cells, Mapping):
        message = f"cycle {cycle} is {quote(repr(cells))}, no dictionary"
        collector.note(line, 1, message, "Yield {NAME: value}.")
        return
    named = [(str(name), collector.wire(str(name), line, 1)) for name in cells]
    collector.check_overlaps(named, line, repeat(1))
    for (name, wire), value in zip(named, cells.values(), strict=True):
        try:
            whole = int(value.__index__())
        except (AttributeError, TypeError):
            message = f"{quote(name)} is {quote(repr(value))} in cycle {cycle}"
            collector.note(line, 1, message, "Yield integers.")
            continue
        if wire is not None:
            yield (*wire, whole, 1)


def _line_of(path: Path, made: object) -> int:
    """Return the line of a generator; 1 when that is in another file, or not a generator."""
    frame = getattr(made, "gi_frame", None)
    return frame.f_lineno if frame is not None and frame.f_code.co_filename == str(path) else 1


def _line_in(path: Path, error: BaseException) -> int:
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)
    ]
    return (lines[-1] if lines else None) or 1


def example_stimulus(datapath: Datapath, cycles: int = 16) -> str:
    """Return a stimulus in CSV for this datapath: all that counts comes in, and what then fires is expected."""
    wires = [
        wire for wire in input_wires(datapath) if not wire.name.startswith(("target_shadow", "clear_status"))
    ]
    rows = [_example_row(wires, cycle) for cycle in range(cycles)]
    collector = Collector(datapath, "<example>")
    for row in rows:
        collector.cycle(((wire, False, value, 1) for wire, value in zip(wires, row, strict=True)), 1)
    run = list(Reference(datapath).cycles(collector.stimulus().rows))
    fires = [f"{EXPECT}fire[{each.module}.{each.count}]" for each in run[0].counts]
    written = io.StringIO()
    table = csv.writer(written, lineterminator="\n")
    table.writerow(["cycle", *(_short(wire.name) for wire in wires), *fires])
    for cycle, (row, seen) in enumerate(zip(rows, run, strict=True)):
        table.writerow([cycle, *row, *(int(count.fires) for count in seen.counts)])
    return written.getvalue()


def _short(name: str) -> str:
    port, bracket, rest = name.partition("[")
    return f"{port[:-2]}{bracket}{rest}"


def _example_row(wires: list[Wire], cycle: int) -> list[int]:
    """Return a row: every other stream begins a cycle later, and outputs are not ready now and then."""
    row = []
    for place, wire in enumerate(wires):
        late = wire.low % 2 and cycle % 8 == 0
        if "_data_i" in wire.name:
            row.append((10 * cycle + place) % (1 << wire.width - 1) if wire.width > 1 else cycle & 1)
        elif wire.name.endswith("_ready_i"):
            row.append(int(cycle % 6 != 5))
        else:
            row.append(int(wire.name != "commit_i" and not late))
    return row


_AROUND = 8
"""Cycles that are shown."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An expectation that a run does not meet."""

    expected: Expectation
    actual: int

    def __str__(self) -> str:
        wire, cycle = self.expected.wire, self.expected.cycle
        return f"cycle {cycle}: {wire.name} is {self.actual}, expected {self.expected.value}"


def failures(stimulus: Stimulus, outputs: Rows) -> tuple[Failure, ...]:
    """Return every expectation that is not met, in the order of the cycles."""
    series: dict[Wire, list[int]] = {}
    failed = []
    for expected in stimulus.expectations:
        if expected.wire not in series:
            series[expected.wire] = expected.wire.series(outputs)
        actual = series[expected.wire][expected.cycle] & (1 << expected.wire.width) - 1
        if actual != expected.value:
            failed.append(Failure(expected, actual))
    return tuple(sorted(failed, key=lambda each: each.expected.cycle))


def window(datapath: Datapath, inputs: Rows, outputs: Rows, failure: Failure) -> Iterator[str]:
    """Return the eight cycles around a failure as a table: what is not always 0, and what was expected."""
    first = max(0, min(failure.expected.cycle - _AROUND // 2, len(inputs) - _AROUND))
    span = slice(first, first + _AROUND)
    cycles = range(first, min(first + _AROUND, len(inputs)))
    table = [("cycle", [f"*{each}" if each == failure.expected.cycle else str(each) for each in cycles])]
    table += _tabulate((wire, wire.series(inputs[span])) for wire in input_wires(datapath))
    table += _tabulate((wire, wire.series(outputs[span])) for wire in output_wires(datapath))
    expected = [str(failure.expected.value) if each == failure.expected.cycle else "" for each in cycles]
    table.append((f"{failure.expected.wire.name} (expected)", expected))
    return _align(table)


def _tabulate(series: Iterable[tuple[Wire, list[int]]]) -> list[tuple[str, list[str]]]:
    return [(wire.name, [str(each) for each in values]) for wire, values in series if any(values)]


def _align(table: list[tuple[str, list[str]]]) -> Iterator[str]:
    names = max(len(name) for name, _ in table)
    widths = [max(map(len, column)) for column in zip(*(cells for _, cells in table), strict=True)]
    for name, cells in table:
        row = "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        yield f"{name:<{names}}  {row}"
