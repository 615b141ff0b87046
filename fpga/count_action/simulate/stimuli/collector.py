"""Collector of the cells of a stimulus into input rows, expectations and errors."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fpga.count_action.diagnostics import CountActionError, Diagnostic, quote, suggest_name
from fpga.count_action.model import Datapath
from fpga.count_action.ports import Rows, make_ports
from fpga.count_action.simulate.port_values import pack_row
from fpga.count_action.simulate.signals import Wire, map_wires_by_name

EXPECT_PREFIX = "expect:"
MAX_CYCLES = 10_000_000

NamedWire = tuple[Wire, bool] | None
"""The wire of a name, and whether the name is an expectation; None for an unknown name."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """The required value of an output in a cycle; `line` is its line in the file."""

    cycle: int
    wire: Wire
    value: int
    line: int


@dataclass(frozen=True)
class Stimulus:
    """Inputs of a run, and the expectations about its outputs."""

    rows: Rows
    expectations: tuple[Expectation, ...] = ()


def _make_idle_inputs(datapath: Datapath) -> dict[str, int]:
    """Return the default values of inputs by port: ready is 1, targets have their reset values, others are 0."""
    shadow_bank = low = 0
    for _, target in datapath.list_targets():
        shadow_bank |= target.reset << low
        low += target.width
    ready_inputs = {port.name: 1 for port in make_ports(datapath).inputs if port.name.endswith("_ready_i")}
    return {"target_shadow_i": shadow_bank, **ready_inputs}


def make_idle_rows(datapath: Datapath, cycles: int) -> Rows:
    """Return rows of default inputs, in which no beat arrives."""
    row = pack_row(make_ports(datapath).inputs, _make_idle_inputs(datapath))
    return np.tile(np.array(row, np.uint64), (cycles, 1))


class StimulusCollector:
    """Collects cycles in order, and records their errors."""

    def __init__(self, datapath: Datapath, file: str) -> None:
        self.datapath, self.file = datapath, file
        self._input_wires = map_wires_by_name(datapath, is_input=True)
        self._output_wires = map_wires_by_name(datapath, is_input=False)
        self._input_ports = make_ports(datapath).inputs
        self._idle_values = _make_idle_inputs(datapath)
        self._input_words = array("Q")
        self._cycle_count = 0
        self._expectations: list[Expectation] = []
        self._errors: list[Diagnostic] = []

    def make_error(self, line: int, column: int, message: str, hint: str = "") -> CountActionError:
        """Return a fatal error of the file, together with the recorded errors."""
        return CountActionError([*self._errors, Diagnostic(self.file, line, column, message, hint)])

    def add_error(self, line: int, column: int, message: str, hint: str = "") -> None:
        """Record an error. Raise `CountActionError` at the 20th; before that, reading continues."""
        self._errors.append(Diagnostic(self.file, line, column, message, hint))
        if len(self._errors) >= 20:
            raise CountActionError(self._errors)

    def raise_errors(self) -> None:
        """Raise `CountActionError` if errors were recorded."""
        if self._errors:
            raise CountActionError(self._errors)

    def find_wire(self, name: str, line: int, column: int) -> NamedWire:
        """Return the wire of a name, or None after recording an error if the name is unknown."""
        is_expectation = name.startswith(EXPECT_PREFIX)
        plain_name = name.removeprefix(EXPECT_PREFIX).strip()
        wires = self._output_wires if is_expectation else self._input_wires
        if plain_name in wires:
            return wires[plain_name], is_expectation
        other_wires = self._input_wires if is_expectation else self._output_wires
        direction = "output" if is_expectation else "input"
        hint = suggest_name(plain_name, (wire for wire in wires if not wire.endswith(("_i", "_o"))))
        if plain_name in other_wires and not is_expectation:
            hint = f"It is an output: write {quote(EXPECT_PREFIX + plain_name)} to expect a value."
        self.add_error(line, column, f"there is no {direction} {quote(plain_name)}", hint)
        return None

    def check_overlaps(
        self, names: Iterable[tuple[str, NamedWire]], line: int, columns: Iterable[int]
    ) -> None:
        """Record an error for each input that is set twice, for example by its port and by an element."""
        assignments_by_port: dict[str, list[tuple[str, int]]] = {}
        masks: dict[str, int] = {}
        for (name, named_wire), column in zip(names, columns, strict=False):
            if named_wire is None or named_wire[1]:
                continue  # two expectations of one output are both checked
            port, mask = named_wire[0].port.name, named_wire[0].mask
            if masks.get(port, 0) & mask:
                earlier_name = next(label for label, bits in assignments_by_port[port] if bits & mask)
                message = f"{quote(earlier_name)} and {quote(name)} set the same bits of {quote(port)}"
                self.add_error(line, column, message, "Keep one of them.")
            assignments_by_port.setdefault(port, []).append((name, mask))
            masks[port] = masks.get(port, 0) | mask

    def add_cycle(self, cells: Iterable[tuple[Wire, bool, int, int]], line: int) -> None:
        """Add one cycle. A cell is (wire, whether it is an expectation, value, column in the file)."""
        values = dict(self._idle_values)
        for wire, is_expectation, value, column in cells:
            if not wire.can_hold(value):
                message = f"{value} does not fit in {quote(wire.name)}, which has {wire.width} bits"
                self.add_error(line, column, message, f"Write {wire.range_text}.")
                continue
            bits = value & (1 << wire.width) - 1
            if is_expectation:
                self._expectations.append(Expectation(self._cycle_count, wire, bits, line))
            else:
                values[wire.port.name] = values.get(wire.port.name, 0) & ~wire.mask | bits << wire.low
        if self._cycle_count == MAX_CYCLES:
            hint = "Cut it with --cycles, or use numpy rows and `simulate` instead."
            raise self.make_error(line, 1, f"the stimulus has more than {MAX_CYCLES} cycles", hint)
        self._input_words.extend(pack_row(self._input_ports, values))
        self._cycle_count += 1

    def make_stimulus(self) -> Stimulus:
        """Return the stimulus. Raise `CountActionError` if errors were recorded."""
        self.raise_errors()
        column_count = make_ports(self.datapath).input_column_count
        rows = np.array(self._input_words, np.uint64).reshape(self._cycle_count, column_count)
        return Stimulus(rows, tuple(self._expectations))
