"""Cycles of an inference by layer and cause: calculated, and measured in a run.

Every cycle from `run` to `finished` is attributed to one cause in one layer. The measurement uses signals of the
datapath, independent of the formula, so that it can falsify the formula.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from fpga.photonic_mac.network import count_beats

MEMORY_CYCLES = 2
"""Cycles from an address to the converters: memory and scaling."""
MULTIPLIER_CYCLES = 1
"""Cycles of the register in the photonic core, without the delay of the light."""
DETECTION_CYCLES = 5
"""Cycles of the preamble detector: four stages of means, and the lock."""
ADDITION_CYCLES = 5
"""Cycles of the signs and of four stages of additions."""
ACCUMULATION_CYCLES = 1
"""Cycles from the last partial sum to the result."""
TURNAROUND_CYCLES = 2
"""Cycles from the last result to the next layer: count and compare; find the highest bit and commit targets."""
CLOCK_HZ = 253_440_000
"""Clock frequency: 4055.04 MS/s in sixteen lanes."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Settings of a run: cycles of preamble before every layer, and delay of the light in cycles."""

    preamble: int = 10
    delay: int = 7

    def __post_init__(self) -> None:
        """Raise ValueError unless the preamble is 1 to 255 cycles and the delay 0 to 15."""
        if not (0 < self.preamble < 256 and 0 <= self.delay < 16):
            raise ValueError(
                f"preamble must be 1 to 255 cycles and delay 0 to 15, not {self.preamble} and {self.delay}"
            )

    @property
    def fill(self) -> int:
        """Cycles of a beat in the pipeline, without detection."""
        return MEMORY_CYCLES + MULTIPLIER_CYCLES + self.delay + ADDITION_CYCLES + ACCUMULATION_CYCLES


@dataclass(frozen=True, slots=True)
class LayerCycles:
    """The cycles of one layer, by cause."""

    beats: int
    preamble: int
    detection: int
    fill: int
    turnaround: int

    @property
    def total(self) -> int:
        """The sum over all causes."""
        return sum(astuple(self))


CAUSE_LABELS = {
    "beats": "MAC beats",
    "preamble": "preamble",
    "detection": "detection",
    "fill": "pipeline fill",
    "turnaround": "turnaround and normalisation",
}
"""The causes in order, with their names in print."""


def calculate_cycles(
    shapes: Sequence[tuple[int, int]], timing: Timing | None = None
) -> tuple[LayerCycles, ...]:
    """Return the cycles of every layer; `shapes` are (outputs, inputs).

    >>> [each.beats for each in calculate_cycles([(300, 784), (100, 300), (10, 100)])]
    [14700, 1900, 70]
    """
    timing = timing or Timing()
    return tuple(
        LayerCycles(
            outputs * count_beats(inputs), timing.preamble, DETECTION_CYCLES, timing.fill, TURNAROUND_CYCLES
        )
        for outputs, inputs in shapes
    )


def sum_cycles(layers: Sequence[LayerCycles]) -> int:
    """Return the number of cycles from `run` to `finished`."""
    return sum(layer.total for layer in layers)


def list_light_cycles(layers: Sequence[LayerCycles]) -> Iterator[int]:
    """Yield, for each layer, the cycle (counted from `run`) that sends the light of its first product."""
    start = 0
    for layer in layers:
        yield start + 1 + layer.preamble + MEMORY_CYCLES
        start += layer.total


Bits = NDArray[np.bool_]


@dataclass(frozen=True)
class Trace:
    """Signals of a run, with one value per cycle; each is true in the cycles of the event in its name."""

    is_start: Bits
    is_preamble: Bits
    is_sending: Bits
    has_light: Bits
    is_detector_open: Bits
    has_partial_sum: Bits
    has_result: Bits
    is_finished: Bits

    def select_cycles(self, first_cycle: int, end_cycle: int) -> Trace:
        """Return the cycles `first_cycle` to `end_cycle` - 1."""
        return Trace(*(getattr(self, name)[first_cycle:end_cycle] for name in self.__dataclass_fields__))


def measure_layers(trace: Trace) -> tuple[LayerCycles, ...]:
    """Return the measured cycles of every layer. Raise ValueError if a layer did not end."""
    starts = np.flatnonzero(trace.is_start).tolist()
    end_cycles = [*starts[1:], *np.flatnonzero(trace.is_finished)[:1].tolist()]
    if len(end_cycles) != len(starts) or not len(starts):
        raise ValueError(
            f"{len(starts)} layers started, but {len(end_cycles)} ended. Was the run long enough?"
        )
    return tuple(
        _measure_layer(trace.select_cycles(first_cycle, end_cycle), end_cycle - first_cycle)
        for first_cycle, end_cycle in zip(starts, end_cycles, strict=True)
    )


def _measure_layer(trace: Trace, cycle_count: int) -> LayerCycles:
    """Return the measured cycles of one layer, from its start to the next."""
    preamble_begin_cycle, preamble_cycles = _find_first_set(trace.is_preamble), int(trace.is_preamble.sum())
    arrival_cycle = _find_first_set(trace.has_light)
    # Before `preamble_begin_cycle`, the detector may still be open from the previous layer.
    opening_cycle = preamble_begin_cycle + _find_first_set(trace.is_detector_open[preamble_begin_cycle:])
    light_cycles = arrival_cycle - preamble_begin_cycle
    adding_cycles = _find_first_set(trace.has_partial_sum) - opening_cycle
    accumulation_cycles = _find_last_set(trace.has_result) - _find_last_set(trace.has_partial_sum)
    return LayerCycles(
        beats=int(trace.is_sending.sum()),
        preamble=preamble_cycles,
        detection=opening_cycle - arrival_cycle - preamble_cycles,
        fill=light_cycles + adding_cycles + accumulation_cycles,
        turnaround=cycle_count
        - _find_last_set(trace.has_result)
        + preamble_begin_cycle
        - 1,  # a start is in the cycle before its preamble
    )


def _find_first_set(bits: Bits) -> int:
    indices = np.flatnonzero(bits)
    if not indices.size:
        raise ValueError("a signal of the run never rose: the layer did not end.")
    return int(indices[0])


def _find_last_set(bits: Bits) -> int:
    return len(bits) - 1 - _find_first_set(bits[::-1])
