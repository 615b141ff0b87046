"""Stimuli from files: CSV, NPZ, or a Python generator; and what is expected of the outputs.

CSV has a line of names and a line for every cycle. NPZ has an array for every name. A Python file defines
`stimulus(ports)`, which yields a dictionary for every cycle. Names are those of `signals`; with `expect:` before it
an output is named, which must then carry the value in that cycle. What is not named: ready is 1, the shadow bank
holds the targets of the text, everything else is 0. An empty cell is 0, and expects nothing.
"""

from __future__ import annotations

import csv
import io
import runpy
import traceback
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fpga.count_action.diagnostics import CountActionError, Diagnostic, did_you_mean, quoted
from fpga.count_action.model import Datapath
from fpga.count_action.ports import Rows, ports_of
from fpga.count_action.simulate.signals import Wire, by_name
from fpga.count_action.simulate.words import row_of

EXPECT = "expect:"
MAX_CYCLES = 10_000_000

Cells = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Expectation:
    """What an output must carry in a cycle; `line` is where the file says so."""

    cycle: int
    wire: Wire
    value: int
    line: int


@dataclass(frozen=True)
class Stimulus:
    """Inputs of a run, and what is expected of it."""

    rows: Rows
    expectations: tuple[Expectation, ...] = ()


def load_stimulus(datapath: Datapath, path: Path) -> Stimulus:
    """The stimulus in a `.csv`, `.npz` or `.py` file. Raises `CountActionError` with the place of every error."""
    readers: dict[str, Callable[[Collector, Path], None]] = {".csv": _csv, ".npz": _npz, ".py": _python}
    collector = Collector(datapath, str(path))
    if path.suffix.lower() not in readers:
        hint = f"There are: {', '.join(readers)}."
        raise collector.error(1, 1, f"a stimulus of the kind {quoted(path.suffix)} is not known", hint)
    try:
        readers[path.suffix.lower()](collector, path)
    except OSError as error:
        raise collector.error(1, 1, f"cannot be read: {error.strerror or error}", "Check the path.") from None
    return collector.stimulus()


def idle_inputs(datapath: Datapath) -> dict[str, int]:
    """Inputs by port when nothing is said about them."""
    shadow = low = 0
    for _, target in datapath.targets():
        shadow |= target.reset << low
        low += target.width
    ready = {port.name: 1 for port in ports_of(datapath).inputs if port.name.endswith("_ready_i")}
    return {"target_shadow_i": shadow, **ready}


def idle_rows(datapath: Datapath, cycles: int) -> Rows:
    """Cycles in which nothing comes in."""
    row = row_of(ports_of(datapath).inputs, idle_inputs(datapath))
    return np.tile(np.array(row, np.uint64), (cycles, 1))


class Collector:
    """Takes cells one after another, and notes what is wrong with them."""

    def __init__(self, datapath: Datapath, file: str) -> None:
        self.datapath, self.file = datapath, file
        self._inputs = by_name(datapath, inputs=True)
        self._outputs = by_name(datapath, inputs=False)
        self._ports = ports_of(datapath).inputs
        self._idle = idle_inputs(datapath)
        self._rows: list[list[int]] = []
        self._expectations: list[Expectation] = []
        self._errors: list[Diagnostic] = []

    def error(self, line: int, column: int, message: str, hint: str = "") -> CountActionError:
        """An error of the file that ends the reading."""
        return CountActionError([*self._errors, Diagnostic(self.file, line, column, message, hint)])

    def note(self, line: int, column: int, message: str, hint: str = "") -> None:
        """An error after which reading goes on."""
        self._errors.append(Diagnostic(self.file, line, column, message, hint))
        if len(self._errors) >= 20:
            raise CountActionError(self._errors)

    def settle(self) -> None:
        """Raises what was noted."""
        if self._errors:
            raise CountActionError(self._errors)

    def wire(self, name: str, line: int, column: int) -> tuple[Wire, bool] | None:
        """What a name means, and whether it is an expectation; notes an error when nothing."""
        expected = name.startswith(EXPECT)
        plain = name.removeprefix(EXPECT).strip()
        known = self._outputs if expected else self._inputs
        if plain in known:
            return known[plain], expected
        other = self._inputs if expected else self._outputs
        what = "output" if expected else "input"
        cure = did_you_mean(plain, (each for each in known if not each.endswith(("_i", "_o"))))
        if plain in other and not expected:
            cure = f"It is an output: write {quoted(EXPECT + plain)} to say what it must be."
        self.note(line, column, f"there is no {what} {quoted(plain)}", cure)
        return None

    def cycle(self, cells: Iterable[tuple[Wire, bool, int, int]], line: int) -> None:
        """One cycle: wires, whether expected, values, and their columns in the file."""
        values = dict(self._idle)
        for wire, expected, value, column in cells:
            if not wire.fits(value):
                message = f"{value} does not fit in {quoted(wire.name)}, which has {wire.width} bits"
                self.note(line, column, message, f"Write {wire.range}.")
                continue
            bits = value & (1 << wire.width) - 1
            if expected:
                self._expectations.append(Expectation(len(self._rows), wire, bits, line))
            else:
                mask = (1 << wire.width) - 1 << wire.low
                values[wire.port.name] = values.get(wire.port.name, 0) & ~mask | bits << wire.low
        self._rows.append(row_of(self._ports, values))
        if len(self._rows) > MAX_CYCLES:
            raise self.error(
                line, 1, f"more than {MAX_CYCLES} cycles", "Use numpy rows and `simulate` instead."
            )

    def stimulus(self) -> Stimulus:
        """What was collected. Raises `CountActionError`."""
        self.settle()
        columns = ports_of(self.datapath).input_columns
        rows = np.array(self._rows, np.uint64).reshape(len(self._rows), columns)
        return Stimulus(rows, tuple(self._expectations))


# -------------------------------------------------------------------------------------------------- CSV


def _csv(collector: Collector, path: Path) -> None:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise collector.error(
            1, 1, f"is no text: byte {error.start} is not UTF-8", "Save it as UTF-8."
        ) from None
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        lines = [(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]
    except csv.Error as error:
        raise collector.error(
            reader.line_num, 1, f"is no CSV: {error}", "Save it as CSV with commas."
        ) from None
    if not lines:
        raise collector.error(1, 1, "is empty", "Write an example with --init.")
    (first, header), *rest = lines
    columns = _header(collector, first, header)
    collector.settle()
    for line, cells in rest:
        if len(cells) > len(header):
            collector.note(
                line, len(header) + 1, f"{len(cells)} cells under {len(header)} names", "Remove some."
            )
            continue
        collector.cycle(_cells(collector, columns, line, cells), line)


def _header(collector: Collector, line: int, names: list[str]) -> list[tuple[Wire, bool] | None]:
    columns: list[tuple[Wire, bool] | None] = []
    seen: set[str] = set()
    for place, name in enumerate(each.strip() for each in names):
        if name in seen:
            collector.note(line, place + 1, f"{quoted(name)} stands twice", "Remove one.")
        seen.add(name)
        ignored = name.lower() in {"cycle", "#", ""}
        columns.append(None if ignored else collector.wire(name, line, place + 1))
    return columns


def _cells(
    collector: Collector, columns: list[tuple[Wire, bool] | None], line: int, cells: list[str]
) -> Iterator[tuple[Wire, bool, int, int]]:
    for place, (column, cell) in enumerate(zip(columns, cells, strict=False)):
        if column is None or not cell.strip():
            continue
        try:
            value = int(cell.strip(), 0)
        except ValueError:
            hint = "Write a whole number, also as 0x1f or 0b101, or nothing."
            collector.note(line, place + 1, f"{quoted(cell.strip())} is no number", hint)
            continue
        yield (*column, value, place + 1)


# -------------------------------------------------------------------------------------------------- NPZ


def _npz(collector: Collector, path: Path) -> None:
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: np.asarray(stored[name]) for name in stored.files}
    except (ValueError, zipfile.BadZipFile, EOFError):
        raise collector.error(
            1, 1, "is no NPZ file", "Write it with numpy.savez(file, NAME=values)."
        ) from None
    known = [(collector.wire(name, 1, 1), name, array) for name, array in arrays.items()]
    collector.settle()
    cycles = max((len(array) for array in arrays.values() if array.ndim), default=0)
    for name, array in arrays.items():
        if array.ndim != 1 or array.dtype.kind not in "iub" or len(array) != cycles:
            message = f"{quoted(name)} is {array.dtype}{list(array.shape)}; {cycles} whole numbers are needed"
            collector.note(1, 1, message, "All arrays have one value a cycle.")
    collector.settle()
    series = [(*wire, array.tolist()) for wire, _, array in known if wire is not None]
    for cycle in range(cycles):
        collector.cycle(
            ((wire, expected, int(values[cycle]), 1) for wire, expected, values in series), cycle + 1
        )


# ----------------------------------------------------------------------------------------------- Python


def _python(collector: Collector, path: Path) -> None:
    """Runs the user's file: it is a program."""
    path.read_bytes()  # a file that cannot be read is told as such
    try:
        make = runpy.run_path(str(path)).get("stimulus")
        if not callable(make):
            raise collector.error(
                1, 1, "has no function `stimulus`", "Write `def stimulus(ports): yield {...}`."
            )
        for number, cells in enumerate(make(ports_of(collector.datapath))):
            collector.cycle(_yielded(collector, number, cells), 1)
            collector.settle()
    except CountActionError:
        raise
    except SyntaxError as error:
        place = (error.lineno or 1, error.offset or 1)
        raise collector.error(*place, f"is no Python: {error.msg}", "Mend it.") from None
    except Exception as error:
        message = f"{type(error).__name__} in the stimulus: {error}"
        raise collector.error(_line_in(path, error), 1, message, "Mend the generator.") from error


def _yielded(collector: Collector, cycle: int, cells: Any) -> Iterator[tuple[Wire, bool, int, int]]:
    if not isinstance(cells, Mapping):
        collector.note(1, 1, f"cycle {cycle} is {quoted(repr(cells))}, no dictionary", "Yield {NAME: value}.")
        return
    for name, value in cells.items():
        wire = collector.wire(str(name), 1, 1)
        try:
            whole = int(value.__index__())
        except (AttributeError, TypeError):
            collector.note(
                1, 1, f"{quoted(str(name))} is {quoted(repr(value))} in cycle {cycle}", "Yield whole numbers."
            )
            continue
        if wire is not None:
            yield (*wire, whole, 1)


def _line_in(path: Path, error: Exception) -> int:
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)
    ]
    return (lines[-1] if lines else None) or 1
