"""The signals within a datapath's ports, with their names in stimuli, expectations and waveforms.

A port has its hardware name, with or without `_i` or `_o`. `port[k]` is its flag, number, valid bit or sample k, from
0. `target_shadow[module.target]`, `fire[module.count]`, `count[module.count]` and so on belong to one target or count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fpga.count_action.model import Datapath, SignalKind
from fpga.count_action.ports import Port, Rows, make_ports
from fpga.count_action.simulate.port_values import read_series


@dataclass(frozen=True, slots=True)
class Wire:
    """A signal: `width` bits of a port, from bit `low` on."""

    name: str
    port: Port
    low: int
    width: int
    signed: bool = False
    module_name: str = ""
    """The module of the output, count or target; empty for external inputs."""
    is_port: bool = False
    """True if the signal is a complete port."""

    def read_series(self, rows: Rows) -> list[int]:
        """Return the value of the signal in every cycle."""
        values = [value >> self.low & (1 << self.width) - 1 for value in read_series(self.port, rows)]
        sign_bit = 1 << (self.width - 1)
        return [(value ^ sign_bit) - sign_bit for value in values] if self.signed else values

    def can_hold(self, value: int) -> bool:
        """Return whether a value fits in the signal; negative values are encoded as two's complement."""
        return -(1 << (self.width - 1)) <= value < 1 << self.width

    @property
    def mask(self) -> int:
        """The mask of the signal's bits in the port."""
        return (1 << self.width) - 1 << self.low

    @property
    def range_text(self) -> str:
        """The range of values that fit, as text."""
        return f"{-(1 << (self.width - 1))} to {(1 << self.width) - 1}"


def list_input_wires(datapath: Datapath) -> tuple[Wire, ...]:
    """Return the input signals, in the order of the ports."""
    return tuple(_list_inputs(datapath))


def list_output_wires(datapath: Datapath) -> tuple[Wire, ...]:
    """Return the output signals, in the order of the ports."""
    return tuple(_list_outputs(datapath))


def map_wires_by_name(datapath: Datapath, *, is_input: bool) -> dict[str, Wire]:
    """Return signals and complete ports by all their names."""
    ports, wires = (
        make_ports(datapath),
        list_input_wires(datapath) if is_input else list_output_wires(datapath),
    )
    wires_by_name: dict[str, Wire] = {}
    for port in ports.inputs if is_input else ports.outputs:
        wires_by_name |= dict.fromkeys(
            _list_names(port.name), Wire(port.name, port, 0, port.width, is_port=True)
        )
    for wire in wires:
        wires_by_name |= dict.fromkeys(_list_names(wire.name), wire)
    return wires_by_name


def find_changes(wire: Wire, rows: Rows) -> NDArray[np.bool_]:
    """Return, for each cycle from the second on, whether a wire changes."""
    values = np.array(wire.read_series(rows), object)
    return np.asarray(values[1:] != values[:-1], np.bool_)


def _list_names(name: str) -> tuple[str, str]:
    port, bracket, suffix = name.partition("[")
    return name, f"{port[:-2]}{bracket}{suffix}"


def _list_inputs(datapath: Datapath) -> Iterator[Wire]:
    ports = make_ports(datapath)
    for signal in datapath.inputs:
        if signal.kind is SignalKind.STREAM:
            yield from _split_port(ports.find_input(f"{signal.name}_valid_i"), 1, signed=False)
            yield from _split_port(
                ports.find_input(f"{signal.name}_data_i"), signal.width, signed=signal.signed
            )
        else:
            yield from _split_port(ports.find_input(f"{signal.name}_i"), signal.width, signed=False)
    yield from (
        Wire(port.name, port, 0, 1, is_port=True) for port in ports.inputs if port.name.endswith("_ready_i")
    )
    port, low = ports.find_input("target_shadow_i"), 0
    for module, target in datapath.list_targets():
        yield Wire(
            f"{port.name}[{module.name}.{target.name}]", port, low, target.width, module_name=module.name
        )
        low += target.width
    yield from (
        Wire(name, ports.find_input(name), 0, 1, is_port=True) for name in ("commit_i", "clear_status_i")
    )


def _list_outputs(datapath: Datapath) -> Iterator[Wire]:
    ports = make_ports(datapath)
    for signal in datapath.inputs:
        if signal.kind is SignalKind.STREAM:
            yield from _split_port(ports.find_output(f"{signal.name}_ready_o"), 1, signed=False)
    bit_positions = dict.fromkeys(_COUNT_PORTS, 0)
    for module in datapath.modules:
        for count in module.counts:
            for name in _COUNT_PORTS:
                width = count.width if name == "count_o" else 1
                label = f"{name}[{module.name}.{count.name}]"
                yield Wire(
                    label, ports.find_output(name), bit_positions[name], width, module_name=module.name
                )
                bit_positions[name] += width
        for action in module.map_outputs().values():
            name = f"{module.name}_{action.output}"
            if action.kind.drives is SignalKind.STREAM:
                yield Wire(
                    f"{name}_valid_o",
                    ports.find_output(f"{name}_valid_o"),
                    0,
                    1,
                    module_name=module.name,
                    is_port=True,
                )
                data_port, signed = ports.find_output(f"{name}_data_o"), action.signed
                yield from _split_port(data_port, action.width, signed=signed, module_name=module.name)
            else:
                port = ports.find_output(f"{name}_o")
                yield Wire(port.name, port, 0, port.width, module_name=module.name, is_port=True)


_COUNT_PORTS = ("count_o", "fire_o", "overshoot_o", "saturated_o")


def _split_port(port: Port, width: int, *, signed: bool, module_name: str = "") -> Iterator[Wire]:
    """Yield the elements of a port, or the port itself if it has only one."""
    if port.width == width:
        yield Wire(port.name, port, 0, width, signed, module_name, is_port=True)
        return
    for index in range(port.width // width):
        yield Wire(f"{port.name}[{index}]", port, index * width, width, signed, module_name)
