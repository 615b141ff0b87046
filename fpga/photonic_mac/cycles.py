"""Cost of an inference in cycles, line by line: a formula, and the same lines measured in a run.

From the cycle of `run` to that of `finished` every cycle belongs to one line of one layer. The measured lines come
from signals of the datapath, so that the formula can be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from fpga.photonic_mac.network import beats_of

MEMORY = 2
"""Cycles from an address to the converters: memory, scaling."""
MULTIPLIER = 1
"""The photonic core's own register, without delay."""
DETECTION = 5
"""Four stages of means, and the lock."""
SIGNS_AND_TREE = 5
"""Signs, and four stages of additions."""
ACCUMULATION = 1
"""From the last partial sum to the result."""
TURNAROUND = 2
"""From the last result to the next layer: counted and compared; highest bit found and targets committed."""
CLOCK_HZ = 253_440_000
"""4055.04 MS/s in sixteen lanes."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Settings of a run: cycles of preamble before every layer, and whole cycles that light is under way."""

    preamble: int = 10
    delay: int = 7

    def __post_init__(self) -> None:
        """Raise ValueError for a preamble that cannot be counted, or a delay the simulated optics do not have."""
        if not (0 < self.preamble < 256 and 0 <= self.delay < 16):
            raise ValueError(
                f"preamble must be 1 to 255 cycles and delay 0 to 15, not {self.preamble} and {self.delay}"
            )

    @property
    def fill(self) -> int:
        """Cycles for which a beat is in the pipeline, apart from detection."""
        return MEMORY + MULTIPLIER + self.delay + SIGNS_AND_TREE + ACCUMULATION


@dataclass(frozen=True, slots=True)
class LayerCycles:
    """The cycles of one layer."""

    beats: int
    preamble: int
    detection: int
    fill: int
    turnaround: int

    @property
    def total(self) -> int:
        """All of them."""
        return sum(astuple(self))


LINES = {
    "beats": "MAC beats",
    "preamble": "preamble",
    "detection": "detection",
    "fill": "pipeline fill",
    "turnaround": "turnaround and normalisation",
}
"""The lines in their order, and how they are called in print."""


def cycles_of(shapes: Sequence[tuple[int, int]], timing: Timing | None = None) -> tuple[LayerCycles, ...]:
    """Return what every layer costs; `shapes` are outputs and inputs.

    >>> [each.beats for each in cycles_of([(300, 784), (100, 300), (10, 100)])]
    [14700, 1900, 70]
    """
    timing = timing or Timing()
    return tuple(
        LayerCycles(outputs * beats_of(inputs), timing.preamble, DETECTION, timing.fill, TURNAROUND)
        for outputs, inputs in shapes
    )


def total_cycles(layers: Sequence[LayerCycles]) -> int:
    """Return the cycles from run to finished."""
    return sum(layer.total for layer in layers)


def first_lit(layers: Sequence[LayerCycles]) -> Iterator[int]:
    """Return the cycles, counted from `run`, in which the first product of each layer is lit."""
    start = 0
    for layer in layers:
        yield start + 1 + layer.preamble + MEMORY
        start += layer.total


Bits = NDArray[np.bool_]


@dataclass(frozen=True)
class Trace:
    """Signals of a run, cycle by cycle. Each is 1 when what it is called happens."""

    start: Bits
    heading: Bits
    sending: Bits
    light: Bits
    open: Bits
    partial: Bits
    result: Bits
    finished: Bits

    def layer(self, first: int, last: int) -> Trace:
        """Return the cycles `first` to `last` - 1."""
        return Trace(*(getattr(self, name)[first:last] for name in self.__dataclass_fields__))


def measure_layers(trace: Trace) -> tuple[LayerCycles, ...]:
    """Return the lines of every layer, from what happened. Raises ValueError when a layer never ended."""
    starts = np.flatnonzero(trace.start).tolist()
    ends = [*starts[1:], *np.flatnonzero(trace.finished)[:1].tolist()]
    if len(ends) != len(starts) or not len(starts):
        raise ValueError(f"{len(starts)} layers started, but {len(ends)} ended. Was the run long enough?")
    return tuple(
        _layer(trace.layer(first, last), last - first) for first, last in zip(starts, ends, strict=True)
    )


def _layer(trace: Trace, cycles: int) -> LayerCycles:
    """Return the lines from a start to the next one."""
    head, preamble = _first(trace.heading), int(trace.heading.sum())
    arrival = _first(trace.light)
    opened = head + _first(
        trace.open[head:]
    )  # until the restart has come through it is open from the layer before
    there_and_back = arrival - head
    adding = _first(trace.partial) - opened
    accumulation = _last(trace.result) - _last(trace.partial)
    return LayerCycles(
        beats=int(trace.sending.sum()),
        preamble=preamble,
        detection=opened - arrival - preamble,
        fill=there_and_back + adding + accumulation,
        turnaround=cycles - _last(trace.result) + head - 1,  # a start is in the cycle before its preamble
    )


def _first(bits: Bits) -> int:
    found = np.flatnonzero(bits)
    if not found.size:
        raise ValueError("a signal of the run never rose: the layer did not end.")
    return int(found[0])


def _last(bits: Bits) -> int:
    return len(bits) - 1 - _first(bits[::-1])
