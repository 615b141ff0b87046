"""The registers of a datapath, and the record of one cycle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from fpga.count_action.actions import KINDS
from fpga.count_action.model import Datapath, Ref, Signal
from fpga.count_action.ports import list_buffer_ports
from fpga.count_action.simulate.bit_slices import PartOfModule, find_driven_streams

Beat: TypeAlias = tuple[int, ...]
"""The bits of each port of a beat: samples, `last` and `keep`."""
StreamElement: TypeAlias = tuple[str, int]
"""A stream and its index."""
Buffer: TypeAlias = tuple[tuple[Beat, ...], Beat]
"""The waiting beats, oldest first, and the beat at the output (the previous beat if none waits)."""

BUFFER_CAPACITY_BEATS = 2
"""Largest number of beats in a buffer."""


def find_buffered_streams(datapath: Datapath) -> Iterator[tuple[Signal, int]]:
    """Yield (signal, index) for every element of every buffered stream."""
    for signal in datapath.inputs:
        if signal.buffered:
            yield from ((signal, index) for index in range(signal.size))


def make_empty_buffers(datapath: Datapath) -> dict[StreamElement, Buffer]:
    """Return the buffers after reset."""
    buffers: dict[StreamElement, Buffer] = {}
    for signal, index in find_buffered_streams(datapath):
        buffers[signal.name, index] = ((), (0,) * sum(1 for _ in list_buffer_ports(datapath, signal)))
    return buffers


def apply_buffers(
    datapath: Datapath, buffers: Mapping[StreamElement, Buffer], inputs: Mapping[str, int]
) -> Mapping[str, int]:
    """Return the inputs with the ports of buffered streams replaced by the outputs of the buffers."""
    if not buffers:
        return inputs
    module_inputs = dict(inputs)
    for signal, index in find_buffered_streams(datapath):
        waiting_beats, beat = buffers[signal.name, index]
        ports = [(f"{signal.name}_valid_i", 1), *list_buffer_ports(datapath, signal)]
        for (port, width), value in zip(ports, (int(bool(waiting_beats)), *beat), strict=True):
            mask = (1 << width) - 1 << index * width
            module_inputs[port] = module_inputs.get(port, 0) & ~mask | value << index * width
    return module_inputs


def has_space(buffer: Buffer) -> bool:
    """Return whether a buffer can accept a beat."""
    return len(buffer[0]) < BUFFER_CAPACITY_BEATS


def compute_next_buffers(
    datapath: Datapath,
    buffers: Mapping[StreamElement, Buffer],
    inputs: Mapping[str, int],
    is_taken: Callable[[Ref], bool],
) -> dict[StreamElement, Buffer]:
    """Return the buffers after the clock edge; `is_taken` tells whether the modules take the first beat of a stream."""
    updated_buffers = {}
    for signal, index in find_buffered_streams(datapath):
        waiting_beats, beat = buffers[signal.name, index]
        has_arrival = inputs.get(f"{signal.name}_valid_i", 0) >> index & 1 and has_space(
            (waiting_beats, beat)
        )
        if is_taken(Ref(signal.name, index=index)):
            waiting_beats = waiting_beats[1:]
        if has_arrival:
            ports = list_buffer_ports(datapath, signal)
            waiting_beats += (
                tuple(inputs.get(port, 0) >> index * width & (1 << width) - 1 for port, width in ports),
            )
        updated_buffers[signal.name, index] = (waiting_beats, waiting_beats[0] if waiting_beats else beat)
    return updated_buffers


@dataclass(frozen=True, slots=True)
class State:
    """Every register, by module and name. Values are unsigned and fit their widths."""

    counts: Mapping[PartOfModule, int]
    overshoot_flags: Mapping[PartOfModule, bool]
    saturation_flags: Mapping[PartOfModule, bool]
    targets: Mapping[PartOfModule, int]
    """The targets in force."""
    action_states: Mapping[PartOfModule, Any]
    """State of actions besides their outputs, such as sums and extreme samples since the last fire."""
    valid_bits: Mapping[PartOfModule, bool]
    """True while a beat waits at the output."""
    outputs: Mapping[PartOfModule, int]
    """Beats, flags, pulses and numbers, by module and output."""
    buffers: Mapping[StreamElement, Buffer]
    """Buffers of buffered streams."""


@dataclass(frozen=True, slots=True)
class CountCycle:
    """One cycle of a count; `value` is compared with `target` (R1)."""

    module: str
    count: str
    is_enabled: bool
    is_stalled: bool
    start_value: int
    increment: int
    """0 if the count is not enabled or its module is stalled."""
    value: int
    target: int
    """The target in force."""
    fires: bool
    next_value: int
    """Value of the count after this cycle unless it is cleared (R2, R10, R16, R17)."""
    overshoots: bool
    saturates: bool


@dataclass(frozen=True, slots=True)
class Cycle:
    """One cycle before its clock edge: values of ports by name, and every count."""

    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    counts: tuple[CountCycle, ...]


def make_reset_state(datapath: Datapath, previous_state: State | None = None) -> State:
    """Return the registers after power-on, or after a reset in the state `previous_state` (R12, R25)."""
    counts = [(module.name, count.name) for module, count in datapath.list_counts()]
    actions_by_output = {
        (module.name, name): action
        for module in datapath.modules
        for name, action in module.map_outputs().items()
    }
    return State(
        counts=dict.fromkeys(counts, 0),
        overshoot_flags=dict.fromkeys(counts, False),
        saturation_flags=dict.fromkeys(counts, False),
        targets={(module.name, target.name): target.reset for module, target in datapath.list_targets()},
        action_states={
            key: previous_state.action_states[key]
            if previous_state is not None and KINDS[action.kind].count_array_words(action)
            else KINDS[action.kind].reset(action)
            for key, action in actions_by_output.items()
        },
        valid_bits=dict.fromkeys(
            (stream for module in datapath.modules for stream in find_driven_streams(module)), False
        ),
        outputs=dict.fromkeys(actions_by_output, 0),
        buffers=make_empty_buffers(datapath),
    )
