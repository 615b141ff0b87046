"""Stimuli from files (CSV, NPZ or a Python generator), and the comparison of a run with their expectations.

CSV has a line of names and a line for every cycle. NPZ has an array for every name. A Python file defines
`stimulus(ports)`, which yields a dictionary for every cycle. See `signals` for names. The prefix `expect:` names an
output that must have the value in that cycle. Defaults: ready is 1, the shadow bank holds the targets of the text,
everything else is 0. An empty cell means the default, or no expectation. A CSV may number its lines from 0 in a column
`cycle`; any other number in this column is an error.
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
from fpga.count_action.ports import Rows, make_ports
from fpga.count_action.simulate.reference import ReferenceSimulator
from fpga.count_action.simulate.signals import Wire, list_input_wires, list_output_wires
from fpga.count_action.simulate.stimuli.collector import (
    EXPECT_PREFIX,
    Expectation,
    NamedWire,
    Stimulus,
    StimulusCollector,
)

CYCLE_COLUMN = "cycle"
"""The column of a CSV that numbers its cycles."""


def load_stimulus(datapath: Datapath, path: Path, cycles: int | None = None) -> Stimulus:
    """Return the stimulus in a `.csv`, `.npz` or `.py` file, limited to its first `cycles` if given.

    Raise `CountActionError` with the location of every error, or if there are more than `MAX_CYCLES` cycles.
    """
    readers: dict[str, Callable[[StimulusCollector, Path, int | None], None]] = {
        ".csv": _read_csv,
        ".npz": _read_npz,
        ".py": _read_python,
    }
    collector = StimulusCollector(datapath, str(path))
    if path.suffix.lower() not in readers:
        hint = f"Use {', '.join(readers)}."
        raise collector.make_error(1, 1, f"unknown stimulus format {quote(path.suffix)}", hint)
    try:
        readers[path.suffix.lower()](collector, path, cycles)
    except OSError as error:
        raise collector.make_error(
            1, 1, f"cannot be read: {error.strerror or error}", "Check the path."
        ) from None
    return collector.make_stimulus()


# -------------------------------------------------------------------------------------------------- CSV


def _read_csv(collector: StimulusCollector, path: Path, cycles: int | None) -> None:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise collector.make_error(
            1, 1, f"is not text: byte {error.start} is not UTF-8", "Save it as UTF-8."
        ) from None
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        lines = [(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]
    except csv.Error as error:
        raise collector.make_error(
            reader.line_num, 1, f"is not valid CSV: {error}", "Save it as CSV with commas."
        ) from None
    if not lines:
        raise collector.make_error(1, 1, "is empty", "Write an example with --init.")
    (header_line, header), *data_lines = lines
    columns = _read_header(collector, header_line, header)
    collector.raise_errors()
    for cycle, (line, cells) in enumerate(data_lines[:cycles]):
        if len(cells) > len(header):
            collector.add_error(
                line, len(header) + 1, f"{len(cells)} cells under {len(header)} names", "Remove some."
            )
            continue
        # Every line is one cycle, so that numbers with gaps, or from another start, would be wrong.
        for column_index, (name, number_cell) in enumerate(zip(header, cells, strict=False)):
            if name.strip().lower() == CYCLE_COLUMN and number_cell.strip() not in {"", str(cycle)}:
                message = f"{quote(number_cell.strip())} under {quote(name.strip())}, but this line is cycle {cycle}"
                hint = "Write a line for every cycle, numbered from 0, or leave the column out."
                raise collector.make_error(line, column_index + 1, message, hint)
        collector.add_cycle(_read_cells(collector, columns, line, cells), line)


def _read_header(collector: StimulusCollector, line: int, names: list[str]) -> list[NamedWire]:
    columns: list[NamedWire] = []
    earlier_names: set[str] = set()
    for column_index, name in enumerate(column_name.strip() for column_name in names):
        is_duplicate = name in earlier_names
        if is_duplicate:
            collector.add_error(line, column_index + 1, f"column {quote(name)} appears twice", "Remove one.")
        earlier_names.add(name)
        is_ignored = is_duplicate or name.lower() in {CYCLE_COLUMN, "#", ""}
        columns.append(None if is_ignored else collector.find_wire(name, line, column_index + 1))
    collector.check_overlaps(zip(names, columns, strict=True), line, count(1))
    return columns


def _read_cells(
    collector: StimulusCollector, columns: list[NamedWire], line: int, cells: list[str]
) -> Iterator[tuple[Wire, bool, int, int]]:
    for column_index, (column, cell) in enumerate(zip(columns, cells, strict=False)):
        if column is None or not cell.strip():
            continue
        try:
            value = int(cell.strip(), 0)
        except ValueError:
            hint = "Write an integer (12, 0x1f, 0b101), or leave the cell empty."
            collector.add_error(line, column_index + 1, f"{quote(cell.strip())} is not a number", hint)
            continue
        yield (*column, value, column_index + 1)


# -------------------------------------------------------------------------------------------------- NPZ


def _read_npz(collector: StimulusCollector, path: Path, cycles: int | None) -> None:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: np.asarray(archive[name]) for name in archive.files}
    except (ValueError, zipfile.BadZipFile, EOFError):
        raise collector.make_error(
            1, 1, "is not an NPZ file", "Write it with numpy.savez(file, NAME=values)."
        ) from None
    columns = [(collector.find_wire(name, 1, 1), name, array) for name, array in arrays.items()]
    collector.check_overlaps(((name, wire) for wire, name, _ in columns), 1, repeat(1))
    collector.raise_errors()
    length = max((len(array) for array in arrays.values() if array.ndim), default=0)
    for name, array in arrays.items():
        if array.ndim != 1 or array.dtype.kind not in "iub" or len(array) != length:
            message = f"{quote(name)} is {array.dtype}{list(array.shape)}, not {length} integers"
            collector.add_error(1, 1, message, "All arrays need one integer per cycle.")
    collector.raise_errors()
    series = [(*wire, array[:cycles].tolist()) for wire, _, array in columns if wire is not None]
    for cycle in range(length)[:cycles]:
        collector.add_cycle(
            ((wire, is_expectation, int(values[cycle]), 1) for wire, is_expectation, values in series),
            cycle + 1,
        )


# ----------------------------------------------------------------------------------------------- Python


def _read_python(collector: StimulusCollector, path: Path, cycles: int | None) -> None:
    """Run the user's file. Its generator may be endless, so it is read one cycle at a time."""
    path.read_bytes()  # raises OSError here, so that an unreadable file is not reported as a failing program
    try:
        make_cycles = runpy.run_path(str(path)).get("stimulus")
        if not callable(make_cycles):
            raise collector.make_error(
                1, 1, "has no function `stimulus`", "Write `def stimulus(ports): yield {...}`."
            )
        cycles_of_file = make_cycles(make_ports(collector.datapath))
        for cycle, cells in enumerate(islice(cycles_of_file, cycles)):
            line = _find_current_line(path, cycles_of_file)
            collector.add_cycle(_read_cycle(collector, cycle, cells, line), line)
            collector.raise_errors()
    except CountActionError:
        raise
    except SyntaxError as error:
        position = (error.lineno or 1, error.offset or 1)
        raise collector.make_error(*position, f"is not valid Python: {error.msg}", "Fix it.") from None
    except (
        Exception,
        SystemExit,
    ) as error:  # `sys.exit(0)` in the file must not end this command successfully
        message = f"{type(error).__name__} in the stimulus: {error}"
        raise collector.make_error(_find_error_line(path, error), 1, message, "Fix the generator.") from error


def _read_cycle(
    collector: StimulusCollector, cycle: int, cells: Any, line: int
) -> Iterator[tuple[Wire, bool, int, int]]:
    if not isinstance(cells, Mapping):
        message = f"cycle {cycle} is {quote(repr(cells))}, not a dictionary"
        collector.add_error(line, 1, message, "Yield {NAME: value}.")
        return
    named_wires = [(str(name), collector.find_wire(str(name), line, 1)) for name in cells]
    collector.check_overlaps(named_wires, line, repeat(1))
    for (name, named_wire), value in zip(named_wires, cells.values(), strict=True):
        try:
            integer = int(value.__index__())
        except (AttributeError, TypeError):
            message = f"{quote(name)} is {quote(repr(value))} in cycle {cycle}, not an integer"
            collector.add_error(line, 1, message, "Yield integers.")
            continue
        if named_wire is not None:
            yield (*named_wire, integer, 1)


def _find_current_line(path: Path, generator: object) -> int:
    """Return the current line of a generator; 1 if it is in another file, or not a generator."""
    frame = getattr(generator, "gi_frame", None)
    return frame.f_lineno if frame is not None and frame.f_code.co_filename == str(path) else 1


def _find_error_line(path: Path, error: BaseException) -> int:
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)
    ]
    return (lines[-1] if lines else None) or 1


def make_example_stimulus(datapath: Datapath, cycles: int = 16) -> str:
    """Return an example stimulus in CSV: all inputs are active, and the simulated fires are the expectations."""
    load_prefixes = tuple(f"{signal.name}_i" for signal in datapath.inputs if signal.loads_memory)
    omitted_prefixes = ("target_shadow", "clear_status", *load_prefixes)
    wires = [wire for wire in list_input_wires(datapath) if not wire.name.startswith(omitted_prefixes)]
    rows = [_make_example_row(wires, cycle) for cycle in range(cycles)]
    collector = StimulusCollector(datapath, "<example>")
    for row in rows:
        collector.add_cycle(((wire, False, value, 1) for wire, value in zip(wires, row, strict=True)), 1)
    cycle_states = list(ReferenceSimulator(datapath).iterate_cycles(collector.make_stimulus().rows))
    fires = [
        f"{EXPECT_PREFIX}fire[{count_cycle.module}.{count_cycle.count}]"
        for count_cycle in cycle_states[0].counts
    ]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["cycle", *(_shorten_port_name(wire.name) for wire in wires), *fires])
    for cycle, (row, cycle_state) in enumerate(zip(rows, cycle_states, strict=True)):
        writer.writerow([cycle, *row, *(int(count_cycle.fires) for count_cycle in cycle_state.counts)])
    return buffer.getvalue()


def _shorten_port_name(name: str) -> str:
    port, bracket, suffix = name.partition("[")
    return f"{port[:-2]}{bracket}{suffix}"


def _make_example_row(wires: list[Wire], cycle: int) -> list[int]:
    """Return a row of example inputs: every other element pauses now and then, and so does ready."""
    row = []
    for column_index, wire in enumerate(wires):
        is_paused = wire.low % 2 and cycle % 8 == 0
        if "_data_i" in wire.name:
            row.append((10 * cycle + column_index) % (1 << wire.width - 1) if wire.width > 1 else cycle & 1)
        elif wire.name.endswith("_ready_i"):
            row.append(int(cycle % 6 != 5))
        else:
            row.append(int(wire.name != "commit_i" and not is_paused))
    return row


_WINDOW_CYCLES = 8
"""Cycles in the table around a failure."""


@dataclass(frozen=True, slots=True)
class UnmetExpectation:
    """An expectation that a run does not meet."""

    expectation: Expectation
    actual_value: int

    def __str__(self) -> str:
        wire, cycle = self.expectation.wire, self.expectation.cycle
        return f"cycle {cycle}: {wire.name} is {self.actual_value}, expected {self.expectation.value}"


def find_failures(stimulus: Stimulus, outputs: Rows) -> tuple[UnmetExpectation, ...]:
    """Return every unmet expectation, in the order of cycles."""
    values_by_wire: dict[Wire, list[int]] = {}
    failures = []
    for expectation in stimulus.expectations:
        if expectation.wire not in values_by_wire:
            values_by_wire[expectation.wire] = expectation.wire.read_series(outputs)
        actual_value = values_by_wire[expectation.wire][expectation.cycle] & (1 << expectation.wire.width) - 1
        if actual_value != expectation.value:
            failures.append(UnmetExpectation(expectation, actual_value))
    return tuple(sorted(failures, key=lambda failure: failure.expectation.cycle))


def tabulate_window(
    datapath: Datapath, inputs: Rows, outputs: Rows, failure: UnmetExpectation
) -> Iterator[str]:
    """Yield the table of the eight cycles around a failure: wires that are not always 0, and the expected value."""
    first_cycle = max(0, min(failure.expectation.cycle - _WINDOW_CYCLES // 2, len(inputs) - _WINDOW_CYCLES))
    cycle_slice = slice(first_cycle, first_cycle + _WINDOW_CYCLES)
    cycles = range(first_cycle, min(first_cycle + _WINDOW_CYCLES, len(inputs)))
    table = [
        ("cycle", [f"*{cycle}" if cycle == failure.expectation.cycle else str(cycle) for cycle in cycles])
    ]
    table += _tabulate((wire, wire.read_series(inputs[cycle_slice])) for wire in list_input_wires(datapath))
    table += _tabulate((wire, wire.read_series(outputs[cycle_slice])) for wire in list_output_wires(datapath))
    expected_cells = [
        str(failure.expectation.value) if cycle == failure.expectation.cycle else "" for cycle in cycles
    ]
    table.append((f"{failure.expectation.wire.name} (expected)", expected_cells))
    return _align_columns(table)


def _tabulate(series: Iterable[tuple[Wire, list[int]]]) -> list[tuple[str, list[str]]]:
    return [(wire.name, [str(value) for value in values]) for wire, values in series if any(values)]


def _align_columns(table: list[tuple[str, list[str]]]) -> Iterator[str]:
    name_width = max(len(name) for name, _ in table)
    widths = [max(map(len, column)) for column in zip(*(cells for _, cells in table), strict=True)]
    for name, cells in table:
        row = "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        yield f"{name:<{name_width}}  {row}"
