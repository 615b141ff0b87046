"""All sources of a top, as a file list for simulators and for synthesis."""

from __future__ import annotations

from fpga.count_action.model import Datapath
from fpga.count_action.ports import Port, Ports
from fpga.hdl.design import Design, design_of
from fpga.registers.fragments import bit_range
from fpga.registers.peakrdl import emit_register_file
from fpga.registers.register_list import Streams
from fpga.registers.top import block_files, emit_top, top_name, top_table
from fpga.registers.wrapper import axi_signals


def top_sources(datapath: Datapath, streams: Streams) -> tuple[tuple[str, str], ...]:
    """Return the name and text of every file of which a top is made of; the top is the last. Raises HdlError."""
    table = top_table(datapath, streams)
    return (
        *design_of(datapath).sources,
        *((path.name, path.read_text(encoding="ascii")) for path in block_files(streams)),
        (f"{table.name}_registers.v", emit_register_file(table)),
        (f"{table.name}.sv", emit_top(datapath, streams)),
    )


def axi_design(datapath: Datapath) -> Design:
    """Return the AXI4-Lite top for the simulators of `fpga.hdl`: its clock is `clk_i`, its reset `rst_i`."""
    name = f"{top_name(datapath, Streams.REGISTERS)}_pins"
    sources = (*top_sources(datapath, Streams.REGISTERS), (f"{name}.sv", _pins(datapath, name)))
    return Design(name, sources, _ports(top_table(datapath, Streams.REGISTERS).address_bits))


def _pins(datapath: Datapath, name: str) -> str:
    top = top_table(datapath, Streams.REGISTERS)
    signals = axi_signals(top.address_bits)
    ports = [
        f"  {'output' if each.driven else 'input'} wire {bit_range(each.width)}{each.name}"
        for each in signals
    ]
    connections = [f".s_axi_{each.name}({each.name})" for each in signals]
    return "\n".join(
        [
            f"module {name} (",
            ",\n".join(["  input wire clk_i", "  input wire rst_i", *ports]),
            ");",
            f"  {top.name} top (.aclk(clk_i), .aresetn(!rst_i), {', '.join(connections)});",
            "endmodule",
            "",
        ]
    )


def _ports(address_bits: int) -> Ports:
    def side(*, driven: bool) -> tuple[Port, ...]:
        pins = (each for each in axi_signals(address_bits) if each.driven is driven)
        return tuple(Port(each.name, each.width, column) for column, each in enumerate(pins))

    return Ports(inputs=side(driven=False), outputs=side(driven=True))
