"""The tops for a board: a datapath with its registers on AXI4-Lite, and its streams.

Streams are behind a portal of registers (`NAME_axi`) or on AXI-Stream ports (`NAME_axis`). Ports have the names that
block-design tools expect: `aclk`, `aresetn`, `s_axi_*`, `s_axis_*`, `m_axis_*`. Inside, `dp_*` are the ports of the
datapath, and `REGISTER_i`, `REGISTER_o` the ports of the register file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from fpga.count_action.model import Datapath
from fpga.count_action.ports import make_ports
from fpga.count_action.verilog.text import fold_line
from fpga.hdl.design import find_instances
from fpga.registers.axi_stream import OUTPUT_BLOCK, make_axi_stream_fragments
from fpga.registers.model import Access, BlockPin, PortBits, Register, RegisterMap
from fpga.registers.register_blocks import (
    BLOCKS,
    STREAM_BLOCKS,
    Fragment,
    concatenate,
    format_bit_range,
    join_fragments,
    write_instance,
)
from fpga.registers.register_list import COMMIT, HOLD, RESET, StreamAccess, make_register_map
from fpga.registers.register_ports import list_axi_signals, list_vectors
from fpga.registers.text import CORE_RESET_SIGNAL, HELD, RESET_SIGNAL

HOLD_BLOCK = "datapath_hold"
"""The hand-written block that keeps a datapath in reset."""
_RTL_FOLDER = Path(__file__).resolve().parent.parent / "rtl"


def list_block_files(stream_access: StreamAccess) -> tuple[Path, ...]:
    """Return the files of the hand-written blocks that tops can need in addition to the blocks of their datapaths."""
    block_kinds = set(BLOCKS) if stream_access is StreamAccess.REGISTERS else BLOCKS.keys() - STREAM_BLOCKS
    modules = [HOLD_BLOCK] + [BLOCKS[block].module for block in sorted(block_kinds)]
    if stream_access is StreamAccess.AXI_STREAM:
        modules.append(OUTPUT_BLOCK)
    return tuple(_RTL_FOLDER / f"{module}.sv" for module in modules)


@dataclass(frozen=True)
class Top:
    """A top of a datapath. Its parts are computed once, so pass the same object on."""

    datapath: Datapath
    stream_access: StreamAccess

    @property
    def name(self) -> str:
        """The name of the module."""
        return f"{self.datapath.name}_{'axi' if self.stream_access is StreamAccess.REGISTERS else 'axis'}"

    @cached_property
    def register_map(self) -> RegisterMap:
        """The register map, with the name of the top."""
        return replace(make_register_map(self.datapath, self.stream_access), name=self.name)

    @cached_property
    def ports(self) -> list[str]:
        """The declarations of the ports, in order."""
        return [
            "input  wire aclk",
            "input  wire aresetn",
            *_declare_axi_ports(self.register_map),
            *self._stream_fragment.ports,
        ]

    @cached_property
    def block_files(self) -> tuple[Path, ...]:
        """The files of the hand-written blocks that the top instantiates."""
        used_names = find_instances(self.text)
        return tuple(path for path in list_block_files(self.stream_access) if path.stem in used_names)

    @cached_property
    def text(self) -> str:
        """The SystemVerilog text. It needs the datapath, its blocks, `block_files` and the register file.

        Raise ValueError if two of its ports would have the same name.
        """
        _check_distinct(self.name, self.ports)
        unread_outputs = frozenset(_list_unread_outputs(self.datapath, self.register_map))
        sections = (
            _write_wires(self.datapath, self.register_map, unread_outputs),
            join_fragments(_write_connections(self.register_map)).body,
            self._stream_fragment.body,
            _instantiate_register_file(self.register_map),
            _instantiate_datapath(self.datapath, unread_outputs),
            _write_unread_bits(self._stream_fragment.unread_bits),
        )
        lines = [
            (
                f"// {self.datapath.name} (hash {self.register_map.digest:08x}) with its registers on AXI4-Lite."
                " Generated."
            ),
            f"module {self.name} (",
            ",\n".join(f"  {port}" for port in self.ports),
            ");",
            *(
                line
                for lines in map(list, sections)
                if lines
                for line in ("", *(part for long_line in lines for part in fold_line(long_line)))
            ),
            "",
            "endmodule",
        ]
        return "\n".join(lines) + "\n"

    @cached_property
    def _stream_fragment(self) -> Fragment:
        uses_registers = self.stream_access is StreamAccess.REGISTERS
        return join_fragments(
            _instantiate_portal(self.register_map)
            if uses_registers
            else make_axi_stream_fragments(self.datapath)
        )


def _check_distinct(top: str, ports: list[str]) -> None:
    for name, occurrences in Counter(port.split()[-1] for port in ports).items():
        if occurrences > 1:
            raise ValueError(
                f"{top} would have two ports {name}, because streams under one name are numbered. Rename a stream."
            )


def _declare_axi_ports(register_map: RegisterMap) -> Iterator[str]:
    for signal in list_axi_signals(register_map.address_width):
        direction = "output" if signal.is_output else "input "
        yield f"{direction} wire {format_bit_range(signal.width)}s_axi_{signal.name}"


def _write_wires(
    datapath: Datapath, register_map: RegisterMap, unread_outputs: Collection[str]
) -> Iterator[str]:
    for register in register_map:
        for register_port in list_vectors(register):
            yield f"wire {format_bit_range(register_port.width)}{register_port.name};"
    ports = make_ports(datapath)
    for port in (*ports.inputs, *ports.outputs):
        attribute = "(* maybe_unused *) " if port.name in unread_outputs else ""
        yield f"{attribute}wire {format_bit_range(port.width)}{_name_wire(port.name, unread_outputs)};"
    yield "wire reset = !aresetn;"
    # CONTROL.RESET resets all that aresetn resets, except the bus.
    control_wire = f"{register_map['CONTROL',].name}_o"
    yield f"wire {RESET_SIGNAL} = reset || {control_wire}[{RESET.bit_length() - 1}];"
    # CONTROL.HOLD keeps only the datapath in reset until COMMIT; beats for it wait meanwhile.
    yield f"wire {HELD};"
    yield f"wire {CORE_RESET_SIGNAL} = {RESET_SIGNAL} || {HELD};"
    yield from write_instance(
        HOLD_BLOCK,
        "hold",
        {
            "clk_i": "aclk",
            "rst_i": "reset",
            "hold_i": f"{control_wire}[{HOLD.bit_length() - 1}]",
            "commit_i": f"{control_wire}[{COMMIT.bit_length() - 1}]",
            "held_o": HELD,
        },
    )


def _write_connections(register_map: RegisterMap) -> Iterator[Fragment]:
    """Yield the connections between registers and the datapath; ports that several registers set come first."""
    shared_ports, pins_by_block = register_map.find_shared_ports(), register_map.find_blocks()
    for port, port_registers in shared_ports.items():
        if port_registers[0].access is Access.WRITE:
            value = concatenate(f"{register.name}_o" for register in port_registers)
            yield Fragment(body=(f"assign dp_{port} = {value};",))
    for register in register_map:
        for bit_field in register.fields:
            if bit_field.port:
                yield Fragment(
                    body=(f"assign dp_{bit_field.port} = {register.name}_o[{bit_field.low_bit}];",)
                )
        match register.signal:
            case PortBits(low_bit=None) as signal:
                yield _connect_port(register, signal)
            case PortBits(port, low_bit=0) if register.access is Access.READ:
                register_wires = concatenate(
                    f"{shared_register.name}_i" for shared_register in shared_ports[port]
                )
                yield Fragment(body=(f"assign {register_wires} = dp_{port};",))
            case BlockPin(block, name) if block not in STREAM_BLOCKS:
                pins = pins_by_block[block, name]
                if register is next(iter(pins.values())):
                    yield BLOCKS[block].instantiate(name, pins)


def _connect_port(register: Register, signal: PortBits) -> Fragment:
    """Return the connection of a register to a complete port."""
    if register.access is Access.READ:
        return Fragment(body=(f"assign {register.name}_i = dp_{signal.port};",))
    return Fragment(body=(f"assign dp_{signal.port} = {register.name}_o;",))


def _instantiate_portal(register_map: RegisterMap) -> Iterator[Fragment]:
    """Yield the blocks between registers and streams."""
    for (block_kind, name), pins in register_map.find_blocks().items():
        if block_kind in STREAM_BLOCKS:
            yield BLOCKS[block_kind].instantiate(name, pins)


def _list_unread_outputs(datapath: Datapath, register_map: RegisterMap) -> Iterator[str]:
    """Yield the outputs of the datapath that neither a register nor a stream port shows."""
    visible_ports = {
        register.signal.port for register in register_map if isinstance(register.signal, PortBits)
    }
    streams = (
        f"{module}_{name}_{part}_o"
        for module, name in sorted(datapath.consumed)
        for part in ("valid", "data")
    )
    return (port for port in ("fire_o", *streams) if port not in visible_ports)


def _name_wire(port: str, unread_outputs: Collection[str]) -> str:
    """Return the wire at a port of the datapath. Verilator accepts that nothing reads a wire named unused."""
    return f"unused_{port}" if port in unread_outputs else f"dp_{port}"


def _instantiate_register_file(register_map: RegisterMap) -> Iterator[str]:
    ports = {"clk_i": "aclk", "rst_i": "reset", f"{RESET_SIGNAL}_i": RESET_SIGNAL}
    ports |= {
        f"s_axil_{axi_signal.name}": f"s_axi_{axi_signal.name}"
        for axi_signal in list_axi_signals(register_map.address_width)
    }
    ports |= {
        register_port.name: register_port.name
        for register in register_map
        for register_port in list_vectors(register)
    }
    return write_instance(f"{register_map.name}_registers", "registers", ports)


def _instantiate_datapath(datapath: Datapath, unread_outputs: Collection[str]) -> Iterator[str]:
    ports = make_ports(datapath)
    wires_by_port = {
        port.name: _name_wire(port.name, unread_outputs) for port in (*ports.inputs, *ports.outputs)
    }
    return write_instance(
        datapath.name, "datapath", {"clk_i": "aclk", "rst_i": CORE_RESET_SIGNAL, **wires_by_port}
    )


def _write_unread_bits(bits: Collection[str]) -> Iterator[str]:
    """Yield the statements that name the bits of ports that nothing reads, if there are any."""
    if bits:
        yield "// Bits that fill the bytes of AXI-Stream, and tkeep of all but the lowest byte of a lane (R18)."
        yield "(* maybe_unused *) wire unused;"
        yield f"assign unused = ^{{{', '.join(bits)}}};"
