"""The cells of a stimulus, one cycle after another: rows of inputs, expectations, and what is wrong with them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fpga.count_action.diagnostics import CountActionError, Diagnostic, did_you_mean, quote
from fpga.count_action.model import Datapath
from fpga.count_action.ports import Rows, ports_of
from fpga.count_action.simulate.port_values import row_of
from fpga.count_action.simulate.signals import Wire, by_name

EXPECT = "expect:"
MAX_CYCLES = 10_000_000

Found = tuple[Wire, bool] | None
"""The meaning of a name, and whether it is an expectation; None when it means nothing."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """A value that an output must carry in a cycle; `line` is where the file says so."""

    cycle: int
    wire: Wire
    value: int
    line: int


@dataclass(frozen=True)
class Stimulus:
    """Inputs of a run, and what is expected of it."""

    rows: Rows
    expectations: tuple[Expectation, ...] = ()


def _idle_inputs(datapath: Datapath) -> dict[str, int]:
    """Return the inputs by port when nothing is said about them."""
    shadow = low = 0
    for _, target in datapath.targets():
        shadow |= target.reset << low
        low += target.width
    ready = {port.name: 1 for port in ports_of(datapath).inputs if port.name.endswith("_ready_i")}
    return {"target_shadow_i": shadow, **ready}


def idle_rows(datapath: Datapath, cycles: int) -> Rows:
    """Return cycles in which nothing comes in."""
    row = row_of(ports_of(datapath).inputs, _idle_inputs(datapath))
    return np.tile(np.array(row, np.uint64), (cycles, 1))


class Collector:
    """Takes cells one after another, and notes what is wrong with them."""

    def __init__(self, datapath: Datapath, file: str) -> None:
        self.datapath, self.file = datapath, file
        self._inputs = by_name(datapath, inputs=True)
        self._outputs = by_name(datapath, inputs=False)
        self._ports = ports_of(datapath).inputs
        self._idle = _idle_inputs(datapath)
        self._words = array("Q")
        self._cycles = 0
        self._expectations: list[Expectation] = []
        self._errors: list[Diagnostic] = []

    def error(self, line: int, column: int, message: str, hint: str = "") -> CountActionError:
        """Return an error of the file that ends the reading."""
        return CountActionError([*self._errors, Diagnostic(self.file, line, column, message, hint)])

    def note(self, line: int, column: int, message: str, hint: str = "") -> None:
        """Note an error after which reading goes on."""
        self._errors.append(Diagnostic(self.file, line, column, message, hint))
        if len(self._errors) >= 20:
            raise CountActionError(self._errors)

    def settle(self) -> None:
        """Raise the errors that were noted."""
        if self._errors:
            raise CountActionError(self._errors)

    def wire(self, name: str, line: int, column: int) -> Found:
        """Return what a name means; note an error when it means nothing."""
        expected = name.startswith(EXPECT)
        plain = name.removeprefix(EXPECT).strip()
        known = self._outputs if expected else self._inputs
        if plain in known:
            return known[plain], expected
        other = self._inputs if expected else self._outputs
        what = "output" if expected else "input"
        hint = did_you_mean(plain, (each for each in known if not each.endswith(("_i", "_o"))))
        if plain in other and not expected:
            hint = f"It is an output: write {quote(EXPECT + plain)} to say what it must be."
        self.note(line, column, f"there is no {what} {quote(plain)}", hint)
        return None

    def check_overlaps(self, named: Iterable[tuple[str, Found]], line: int, columns: Iterable[int]) -> None:
        """Note inputs that are given twice: by their port and by themselves, or by two names of one port."""
        given: dict[str, list[tuple[str, int]]] = {}
        taken: dict[str, int] = {}
        for (name, found), column in zip(named, columns, strict=False):
            if found is None or found[1]:
                continue  # two expectations of one output are both looked at
            port, mask = found[0].port.name, found[0].mask
            if taken.get(port, 0) & mask:
                other = next(label for label, bits in given[port] if bits & mask)
                message = f"{quote(other)} and {quote(name)} give the same bits of {quote(port)}"
                self.note(line, column, message, "Keep one of them.")
            given.setdefault(port, []).append((name, mask))
            taken[port] = taken.get(port, 0) | mask

    def cycle(self, cells: Iterable[tuple[Wire, bool, int, int]], line: int) -> None:
        """Add one cycle: wires, whether expected, values, and their columns in the file."""
        values = dict(self._idle)
        for wire, expected, value, column in cells:
            if not wire.fits(value):
                message = f"{value} does not fit in {quote(wire.name)}, which has {wire.width} bits"
                self.note(line, column, message, f"Write {wire.range}.")
                continue
            bits = value & (1 << wire.width) - 1
            if expected:
                self._expectations.append(Expectation(self._cycles, wire, bits, line))
            else:
                values[wire.port.name] = values.get(wire.port.name, 0) & ~wire.mask | bits << wire.low
        if self._cycles == MAX_CYCLES:
            hint = "Cut it with --cycles, or use numpy rows and `simulate` instead."
            raise self.error(line, 1, f"more than {MAX_CYCLES} cycles", hint)
        self._words.extend(row_of(self._ports, values))
        self._cycles += 1

    def stimulus(self) -> Stimulus:
        """Return what was collected. Raises `CountActionError`."""
        self.settle()
        columns = ports_of(self.datapath).input_columns
        rows = np.array(self._words, np.uint64).reshape(self._cycles, columns)
        return Stimulus(rows, tuple(self._expectations))
