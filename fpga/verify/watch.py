"""Checks for cocotb tests: recorded ports of a datapath are compared with its source text. Also random inputs.

recorder = PortRecorder(dut.datapath, dut.aclk, datapath)
...
assert not recorder.find_differences()
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fpga.beats import Beats
from fpga.count_action.model import Datapath, SignalKind
from fpga.count_action.ports import make_ports
from fpga.formal.replay import Difference, find_element_differences


class PortRecorder:
    """Recorder of the ports of an instance of the datapath at every clock edge, from the first reset on."""

    def __init__(self, instance: Any, clock: Any, datapath: Datapath) -> None:
        import cocotb

        ports = make_ports(datapath)
        names = ["rst_i", *(port.name for port in (*ports.inputs, *ports.outputs))]
        self._datapath = datapath
        self._handles = {name: getattr(instance, name) for name in names}
        self._series: dict[str, list[int]] = {name: [] for name in names}
        cocotb.start_soon(self._record_cycles(clock))

    async def _record_cycles(self, clock: Any) -> None:
        from cocotb.triggers import RisingEdge

        while True:
            await RisingEdge(clock)
            values = {name: handle.value for name, handle in self._handles.items()}
            if not self._series["rst_i"] and not (values["rst_i"].is_resolvable and int(values["rst_i"])):
                continue  # registers have no value before the first reset
            for name, value in values.items():
                self._series[name].append(int(value) if value.is_resolvable else 0)

    @property
    def cycles(self) -> int:
        """Number of recorded cycles."""
        return len(self._series["rst_i"])

    @property
    def fires(self) -> int:
        """Total number of fires of all counts."""
        return sum(value.bit_count() for value in self._series["fire_o"])

    def find_differences(self) -> tuple[Difference, ...]:
        """Return, for every element of a port, the first cycle in which it differs from the source text."""
        return find_element_differences(
            self._datapath, {name: tuple(values) for name, values in self._series.items()}
        )


def draw_beats(datapath: Datapath, random: np.random.Generator, beat_count: int) -> Mapping[str, Beats]:
    """Return random beats for every input stream. If streams share a name, each is valid in 80 % of the beats."""
    beats_by_stream = {}
    for signal in datapath.inputs:
        if signal.kind is SignalKind.STREAM:
            low = -(1 << signal.width - 1) if signal.signed else 0
            shape = (beat_count, signal.size, signal.lanes)
            samples = random.integers(low, low + (1 << signal.width), shape)
            is_valid = random.random((beat_count, signal.size)) < 0.8
            beats_by_stream[signal.name] = Beats(samples, is_valid | (signal.size == 1))
    return beats_by_stream


def draw_flags_and_numbers(datapath: Datapath, random: np.random.Generator) -> Mapping[tuple[str, int], int]:
    """Return random values for the input flags and numbers, by name and index; flags are mostly 1."""
    values = {}
    for signal in datapath.inputs:
        is_flag_or_number = signal.kind is not SignalKind.STREAM and not signal.loads_memory
        for index in range(signal.size if is_flag_or_number else 0):
            is_flag = signal.kind is SignalKind.FLAG
            values[signal.name, index] = int(
                random.random() < 0.7 if is_flag else random.integers(0, 1 << min(signal.width, 31))
            )
    return values
