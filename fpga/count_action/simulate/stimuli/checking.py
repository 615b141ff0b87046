"""Check of a run against its expectations, and the eight cycles around the first that is not met."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fpga.count_action.model import Datapath
from fpga.count_action.ports import Rows
from fpga.count_action.simulate.signals import Wire, input_wires, output_wires
from fpga.count_action.simulate.stimuli.collector import Expectation, Stimulus

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
    table += _shown((wire, wire.series(inputs[span])) for wire in input_wires(datapath))
    table += _shown((wire, wire.series(outputs[span])) for wire in output_wires(datapath))
    expected = [str(failure.expected.value) if each == failure.expected.cycle else "" for each in cycles]
    table.append((f"{failure.expected.wire.name} (expected)", expected))
    return _aligned(table)


def _shown(series: Iterable[tuple[Wire, list[int]]]) -> list[tuple[str, list[str]]]:
    return [(wire.name, [str(each) for each in values]) for wire, values in series if any(values)]


def _aligned(table: list[tuple[str, list[str]]]) -> Iterator[str]:
    names = max(len(name) for name, _ in table)
    widths = [max(map(len, column)) for column in zip(*(cells for _, cells in table), strict=True)]
    for name, cells in table:
        row = "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        yield f"{name:<{names}}  {row}"
