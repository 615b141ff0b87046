"""The ports of a datapath, in one order for every simulator, the RTL and the register map.

A run is two arrays of 64-bit words, inputs and outputs, with one row per cycle. A port of `width` bits takes
`word_count` columns, least significant word first. Outputs are sampled in the cycle in which the inputs are applied,
just before the clock edge. Every simulator uses exactly these arrays, so that they can be compared byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fpga.count_action.model import Action, Datapath, Module, Signal, SignalKind

WORD_BITS = 64

Rows = NDArray[np.uint64]
"""Cycles × columns."""


@dataclass(frozen=True, slots=True)
class Port:
    """A port of the generated top: its name, its width in bits, and its first column."""

    name: str
    width: int
    column: int

    @property
    def word_count(self) -> int:
        """Number of 64-bit columns the port takes."""
        return -(-self.width // WORD_BITS)


@dataclass(frozen=True)
class Ports:
    """Inputs and outputs of a datapath, except clock and reset."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    @cached_property
    def input_column_count(self) -> int:
        """Number of columns of the input array."""
        return sum(port.word_count for port in self.inputs)

    @cached_property
    def output_column_count(self) -> int:
        """Number of columns of the output array."""
        return sum(port.word_count for port in self.outputs)

    def find_input(self, name: str) -> Port:
        """Return the input port of that name. Raise KeyError if there is none."""
        return _find_port(self.inputs, name)

    def find_output(self, name: str) -> Port:
        """Return the output port of that name. Raise KeyError if there is none."""
        return _find_port(self.outputs, name)


def make_ports(datapath: Datapath) -> Ports:
    """Return the ports of the generated top, in the order of its declaration."""
    return Ports(inputs=_place_ports(_list_inputs(datapath)), outputs=_place_ports(_list_outputs(datapath)))


def split_targets(datapath: Datapath, packed_targets: int) -> dict[tuple[str, str], int]:
    """Return the value of each target, by module and name, from the concatenation `packed_targets` of all targets."""
    values, low = {}, 0
    for module, target in datapath.list_targets():
        values[module.name, target.name] = packed_targets >> low & (1 << target.width) - 1
        low += target.width
    return values


def list_buffer_ports(datapath: Datapath, stream: Signal) -> Iterator[tuple[str, int]]:
    """Yield the ports that the buffer of a stream holds, each with its number of bits per beat (R20)."""
    yield f"{stream.name}_data_i", stream.lanes * stream.width
    yield from (
        (f"{signal.name}_i", signal.size) for signal in datapath.inputs if signal.part_of == stream.name
    )


def list_end_signal_actions(module: Module, stream: str) -> tuple[tuple[str, Action], ...]:
    """Return (`last` or `keep`, action) for each action that stores such a field of a stream.

    The stored numbers of an arbitrating count (`NAME_turn`, R19) have a `part_of`, too, but are left out.
    """
    kind_of_output = {f"{stream}_{kind}": kind for kind in ("last", "keep")}
    candidates = (action for action in module.actions if action.part_of == stream)
    return tuple((kind_of_output[part.output], part) for part in candidates if part.output in kind_of_output)


def _list_inputs(datapath: Datapath) -> Iterator[tuple[str, int]]:
    for signal in datapath.inputs:
        if signal.kind is SignalKind.STREAM:
            yield f"{signal.name}_valid_i", signal.size
            yield f"{signal.name}_data_i", signal.size * signal.lanes * signal.width
        else:
            yield f"{signal.name}_i", signal.size * signal.width
    consumed_streams = datapath.consumed
    for module in datapath.modules:
        for action in module.list_streams():
            if (module.name, action.output) not in consumed_streams:
                yield f"{module.name}_{action.output}_ready_i", 1
    yield "target_shadow_i", sum(target.width for _, target in datapath.list_targets())
    yield "commit_i", 1
    yield "clear_status_i", 1


def _list_outputs(datapath: Datapath) -> Iterator[tuple[str, int]]:
    for signal in datapath.inputs:
        if signal.kind is SignalKind.STREAM:
            yield f"{signal.name}_ready_o", signal.size
    for module in datapath.modules:
        for output, action in module.map_outputs().items():
            name = f"{module.name}_{output}"
            if action.kind.drives is SignalKind.STREAM:
                yield f"{name}_valid_o", 1
                yield f"{name}_data_o", action.lanes * action.width
            else:
                yield f"{name}_o", action.width
    number_of_counts = sum(1 for _ in datapath.list_counts())
    yield "fire_o", number_of_counts
    yield "count_o", sum(count.width for _, count in datapath.list_counts())
    yield "overshoot_o", number_of_counts
    yield "saturated_o", number_of_counts


def _place_ports(widths: Iterator[tuple[str, int]]) -> tuple[Port, ...]:
    ports: list[Port] = []
    column = 0
    for name, width in widths:
        ports.append(Port(name, width, column))
        column += ports[-1].word_count
    return tuple(ports)


def _find_port(ports: tuple[Port, ...], name: str) -> Port:
    for port in ports:
        if port.name == name:
            return port
    raise KeyError(f"no port {name!r}; there are: {', '.join(port.name for port in ports)}")
