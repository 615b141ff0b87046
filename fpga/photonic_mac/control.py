"""Simulation of the control of an inference with the count-action simulator: the cycles of the RTL, without RTL.

`preamble_control` and `photonic_mac_control` of the library run unchanged. The hand-written blocks between them are
modelled as delays: memories and converters, light, means, signs and additions. Values are not computed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fpga.count_action.load import load
from fpga.count_action.model import Datapath
from fpga.count_action.ports import WORD_BITS, ports_of
from fpga.photonic_mac.cycles import (
    DETECTION,
    MEMORY,
    MULTIPLIER,
    SIGNS_AND_TREE,
    Timing,
    Trace,
    cycles_of,
    total_cycles,
)
from fpga.photonic_mac.network import count_beats

_LIBRARY = Path(__file__).resolve().parents[1] / "library"


def library_datapath(name: str, parameters: Mapping[str, int] | None = None) -> Datapath:
    """Return a datapath of the library. Raise CountActionError if there is none of that name."""
    return load(_LIBRARY / f"{name}.ca", dict(parameters or {})).datapath


def simulate_trace(shapes: Sequence[tuple[int, int]], timing: Timing | None = None) -> Trace:
    """Return the signals of one inference. Raise ImportError if the fast simulator lacks numba."""
    timing = timing or Timing()
    loop = _Loop(shapes, timing)
    cycles = total_cycles(cycles_of(shapes, timing)) + 2
    rows = [loop.step() for _ in range(cycles)]
    return Trace(*np.array(rows, np.bool_).T)


class _Delay:
    """A delay line of one bit."""

    def __init__(self, cycles: int) -> None:
        self._bits = deque([False] * cycles)

    @property
    def out(self) -> bool:
        """The output in this cycle."""
        return self._bits[0]

    def push(self, bit: bool) -> None:
        """Set the input of this cycle, and end the cycle."""
        self._bits.append(bit)
        self._bits.popleft()


class _RunningDatapath:
    """A datapath in the simulator, with inputs and outputs by port name, run cycle by cycle."""

    def __init__(self, name: str) -> None:
        from fpga.count_action.simulate import compile_datapath

        datapath = library_datapath(name)
        self._simulator = compile_datapath(datapath)
        self._ports = ports_of(datapath)
        self._row = np.zeros((1, self._ports.input_columns), np.uint64)

    def step(self, inputs: Mapping[str, int]) -> dict[str, bool]:
        """Run one cycle, and return the outputs of one bit. Missing inputs keep their values."""
        for name, value in inputs.items():
            port = self._ports.input(name)
            for word in range(port.words):
                self._row[0, port.column + word] = value >> (WORD_BITS * word) & (1 << WORD_BITS) - 1
        row = self._simulator.run(self._row)[0].tolist()
        return {port.name: bool(row[port.column]) for port in self._ports.outputs if port.width == 1}


class _Loop:
    """Both control datapaths, and the delays between them."""

    def __init__(self, shapes: Sequence[tuple[int, int]], timing: Timing) -> None:
        self._control, self._detector = (
            _RunningDatapath("photonic_mac_control"),
            _RunningDatapath("preamble_control"),
        )
        self._targets = deque(_pack_control_targets(shape, len(shapes), timing.preamble) for shape in shapes)
        self._preamble_length = timing.preamble
        light_delay = MEMORY + MULTIPLIER + timing.delay
        self._light, self._match = _Delay(light_delay), _Delay(light_delay + DETECTION)
        self._sent, self._partial = _Delay(MEMORY), _Delay(SIGNS_AND_TREE)
        self._waiting = 0
        self._layer_ended = True

    def step(self) -> tuple[bool, ...]:
        """Run one cycle, and return start, heading, sending, light, open, partial, result, finished (as `Trace`)."""
        start = self._layer_ended and bool(self._targets)
        partial, light = self._partial.out, self._light.out
        outputs = self._control.step({**self._start_layer(start), "partial_valid_i": partial})
        heading, sending = outputs["sequencer_heading_o"], outputs["sequencer_sending_o"]
        is_open = self._detect(start)
        self._light.push(heading or sending)
        self._match.push(heading)
        self._queue_beat(is_open, start)
        self._sent.push(sending)
        self._layer_ended = outputs["sequencer_layer_done_o"]
        result, finished = outputs["accumulator_result_valid_o"], outputs["layers_finished_o"]
        return start, heading, sending, light, is_open, partial, result, finished

    def _start_layer(self, start: bool) -> dict[str, int]:
        """Return the inputs for the start of a layer, whose targets take effect in the next cycle."""
        shadow = {"target_shadow_i": self._targets.popleft()} if start else {}
        return {"start_i": start, "commit_i": start, **shadow}

    def _detect(self, start: bool) -> bool:
        """Return whether the detector is open. The preamble is at position 0."""
        targets = self._preamble_length << 24 | self._preamble_length << 16 | 1
        inputs = {
            "match_i": self._match.out,
            "restart_i": start,
            "commit_i": start,
            "target_shadow_i": targets,
        }
        return self._detector.step(inputs)["preamble_control_locked_o"]

    def _queue_beat(self, is_open: bool, start: bool) -> None:
        """Queue sent beats until the detector is open, and then pass on one per cycle."""
        leaves = is_open and self._waiting > 0
        self._partial.push(leaves)
        self._waiting = 0 if start else self._waiting + self._sent.out - leaves


def _pack_control_targets(shape: tuple[int, int], layers: int, preamble: int) -> int:
    """Return the concatenated targets of `photonic_mac_control` for a layer, as in `photonic_inference.sv`."""
    outputs, beats = shape[0], count_beats(shape[1])
    fields = (
        *((1, 16), (preamble, 16), (beats, 16), (outputs * beats, 24), (outputs, 16)),
        *((beats, 16), (1, 16), (layers, 16), (1, 16), (0, 32)),
    )
    packed, low_bit = 0, 0
    for value, width in fields:
        packed |= value << low_bit
        low_bit += width
    return packed
