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
from fpga.count_action.ports import WORD_BITS, make_ports
from fpga.photonic_mac.cycles import (
    ADDITION_CYCLES,
    DETECTION_CYCLES,
    MEMORY_CYCLES,
    MULTIPLIER_CYCLES,
    Timing,
    Trace,
    calculate_cycles,
    sum_cycles,
)
from fpga.photonic_mac.network import count_beats

_LIBRARY_FOLDER = Path(__file__).resolve().parents[1] / "library"


def load_library_datapath(name: str, parameters: Mapping[str, int] | None = None) -> Datapath:
    """Return a datapath of the library. Raise CountActionError if there is none of that name."""
    return load(_LIBRARY_FOLDER / f"{name}.ca", dict(parameters or {})).datapath


def simulate_trace(shapes: Sequence[tuple[int, int]], timing: Timing | None = None) -> Trace:
    """Return the signals of one inference. Raise ImportError if the fast simulator lacks numba."""
    timing = timing or Timing()
    loop = _ControlLoop(shapes, timing)
    cycles = sum_cycles(calculate_cycles(shapes, timing)) + 2
    rows = [loop.step() for _ in range(cycles)]
    return Trace(*np.array(rows, np.bool_).T)


class _DelayLine:
    """A delay line of one bit."""

    def __init__(self, cycle_count: int) -> None:
        self._bits = deque([False] * cycle_count)

    @property
    def output(self) -> bool:
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

        datapath = load_library_datapath(name)
        self._simulator = compile_datapath(datapath)
        self._ports = make_ports(datapath)
        self._row = np.zeros((1, self._ports.input_column_count), np.uint64)

    def step(self, inputs: Mapping[str, int]) -> dict[str, bool]:
        """Run one cycle, and return the outputs of one bit. Missing inputs keep their values."""
        for name, value in inputs.items():
            port = self._ports.find_input(name)
            for word in range(port.word_count):
                self._row[0, port.column + word] = value >> (WORD_BITS * word) & (1 << WORD_BITS) - 1
        row = self._simulator.run(self._row)[0].tolist()
        return {port.name: bool(row[port.column]) for port in self._ports.outputs if port.width == 1}


class _ControlLoop:
    """Both control datapaths, and the delays between them."""

    def __init__(self, shapes: Sequence[tuple[int, int]], timing: Timing) -> None:
        self._control, self._detector = (
            _RunningDatapath("photonic_mac_control"),
            _RunningDatapath("preamble_control"),
        )
        self._targets = deque(_pack_control_targets(shape, len(shapes), timing.preamble) for shape in shapes)
        self._preamble_length = timing.preamble
        light_delay = MEMORY_CYCLES + MULTIPLIER_CYCLES + timing.delay
        self._light_delay, self._match_delay = (
            _DelayLine(light_delay),
            _DelayLine(light_delay + DETECTION_CYCLES),
        )
        self._send_delay, self._partial_sum_delay = _DelayLine(MEMORY_CYCLES), _DelayLine(ADDITION_CYCLES)
        self._waiting_beat_count = 0
        self._has_layer_ended = True

    def step(self) -> tuple[bool, ...]:
        """Run one cycle. Return start, heading, sending, light, open, partial, result and finished, as in `Trace`."""
        is_start = self._has_layer_ended and bool(self._targets)
        has_partial_sum, has_light = self._partial_sum_delay.output, self._light_delay.output
        outputs = self._control.step({**self._start_layer(is_start), "partial_valid_i": has_partial_sum})
        is_heading, is_sending = outputs["sequencer_heading_o"], outputs["sequencer_sending_o"]
        is_open = self._detect(is_start)
        self._light_delay.push(is_heading or is_sending)
        self._match_delay.push(is_heading)
        self._queue_beat(is_open, is_start)
        self._send_delay.push(is_sending)
        self._has_layer_ended = outputs["sequencer_layer_done_o"]
        has_result, is_finished = outputs["accumulator_result_valid_o"], outputs["layers_finished_o"]
        return is_start, is_heading, is_sending, has_light, is_open, has_partial_sum, has_result, is_finished

    def _start_layer(self, is_start: bool) -> dict[str, int]:
        """Return the inputs for the start of a layer, whose targets take effect in the next cycle."""
        shadow = {"target_shadow_i": self._targets.popleft()} if is_start else {}
        return {"start_i": is_start, "commit_i": is_start, **shadow}

    def _detect(self, is_start: bool) -> bool:
        """Return whether the detector is open. The preamble is at position 0."""
        packed_targets = self._preamble_length << 24 | self._preamble_length << 16 | 1
        inputs = {
            "match_i": self._match_delay.output,
            "restart_i": is_start,
            "commit_i": is_start,
            "target_shadow_i": packed_targets,
        }
        return self._detector.step(inputs)["preamble_control_locked_o"]

    def _queue_beat(self, is_open: bool, is_start: bool) -> None:
        """Queue sent beats until the detector is open, and then pass on one per cycle."""
        has_departure = is_open and self._waiting_beat_count > 0
        self._partial_sum_delay.push(has_departure)
        self._waiting_beat_count = (
            0 if is_start else self._waiting_beat_count + self._send_delay.output - has_departure
        )


def _pack_control_targets(shape: tuple[int, int], layer_count: int, preamble_cycles: int) -> int:
    """Return the concatenated targets of `photonic_mac_control` for a layer, as in `photonic_inference.sv`."""
    output_count, beat_count = shape[0], count_beats(shape[1])
    fields = (
        *(
            (1, 16),
            (preamble_cycles, 16),
            (beat_count, 16),
            (output_count * beat_count, 24),
            (output_count, 16),
        ),
        *((beat_count, 16), (1, 16), (layer_count, 16), (1, 16), (0, 32)),
    )
    packed_targets, low_bit = 0, 0
    for value, width in fields:
        packed_targets |= value << low_bit
        low_bit += width
    return packed_targets
