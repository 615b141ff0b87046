"""All files that `countaction build` generates from a datapath."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from fpga.count_action.model import Datapath
from fpga.count_action.ports import Port, Ports
from fpga.hdl.design import Design, make_design
from fpga.registers.bench import emit_bench
from fpga.registers.ipxact import to_ipxact
from fpga.registers.register_blocks import format_bit_range
from fpga.registers.register_file import emit_register_file
from fpga.registers.register_list import StreamAccess
from fpga.registers.register_ports import list_axi_signals
from fpga.registers.text import to_header, to_ip_registers, to_json, to_markdown, to_rdl
from fpga.registers.top import Top
from lightbed.output_file import write_output

_BOARDS_FOLDER = Path(__file__).resolve().parent.parent / "boards"


def build_files(datapath: Datapath) -> dict[str, str]:
    """Return the text of every file, by name.

    The files are both tops with their sources and ordered lists (`NAME_axi.f`, `NAME_axis.f`), the registers of each
    top as SystemRDL, C header, Tcl and IP-XACT, the registers of the first top also as JSON and Markdown (the second
    top has a part of them), the datapath as JSON, and a cocotb bench. Raise ValueError for names that are not valid in
    SystemVerilog.
    """
    tops = [Top(datapath, stream_access) for stream_access in StreamAccess]
    files: dict[str, str] = {}
    for top in tops:
        sources = list_top_sources(top)
        files |= sources
        files[f"{top.name}.f"] = "".join(f"{file}\n" for file, _ in sources)
    return files | dict(write_document_texts(tops))


def read_board_files(board: str) -> dict[str, str]:
    """Return the scripts that build a bitstream for a board, by name. Raise ValueError for an unknown board."""
    folders = {path.name: path for path in _BOARDS_FOLDER.iterdir() if path.is_dir()}
    if board not in folders:
        raise ValueError(f"no board {board!r}; there are: {', '.join(sorted(folders))}.")
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folders[board].glob("*.tcl"))}


def write_files(files: dict[str, str], folder: Path) -> None:
    """Write files into `folder`, which is created if missing; existing files are replaced. Raise OSError."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_output(path, text)


def write_document_texts(tops: Sequence[Top]) -> Iterator[tuple[str, str]]:
    """Yield the name and text of every file that is not hardware: registers in several formats, and the bench.

    `tops` are the tops of one datapath. The first has all registers.
    """
    datapath = tops[0].datapath
    for top in tops:
        yield f"{top.name}_ip_registers.tcl", to_ip_registers(top.register_map)
        yield f"{top.name}.rdl", to_rdl(top.register_map)
        yield f"{top.name}.h", to_header(top.register_map)
        yield f"{top.name}.xml", to_ipxact(top)
    register_map = replace(tops[0].register_map, name=datapath.name)
    yield f"{datapath.name}.rdl", to_rdl(register_map)
    yield f"{datapath.name}.registers.json", to_json(register_map)
    yield f"{datapath.name}.md", to_markdown(register_map)
    yield f"{datapath.name}.json", datapath.to_json() + "\n"
    yield f"test_{datapath.name}.py", emit_bench(datapath)


def list_top_sources(top: Top) -> tuple[tuple[str, str], ...]:
    """Return the name and text of every source file of a top, with the top last."""
    return (
        *make_design(top.datapath).sources,
        *((path.name, path.read_text(encoding="ascii")) for path in top.block_files),
        (f"{top.name}_registers.sv", emit_register_file(top.register_map)),
        (f"{top.name}.sv", top.text),
    )


def make_axi_design(datapath: Datapath) -> Design:
    """Return the AXI4-Lite top as a design for `fpga.hdl`, with the clock `clk_i` and the reset `rst_i`."""
    top = Top(datapath, StreamAccess.REGISTERS)
    name = f"{top.name}_pins"
    sources = (*list_top_sources(top), (f"{name}.sv", _write_pins_top(top, name)))
    return Design(name, sources, _make_ports(top.register_map.address_width))


def _write_pins_top(top: Top, name: str) -> str:
    signals = list_axi_signals(top.register_map.address_width)
    ports = [
        f"  {'output' if signal.is_output else 'input'} wire {format_bit_range(signal.width)}{signal.name}"
        for signal in signals
    ]
    connections = [f".s_axi_{signal.name}({signal.name})" for signal in signals]
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


def _make_ports(address_bits: int) -> Ports:
    def list_ports_of_side(*, is_output: bool) -> tuple[Port, ...]:
        pins = (
            axi_signal for axi_signal in list_axi_signals(address_bits) if axi_signal.is_output is is_output
        )
        return tuple(Port(pin.name, pin.width, column) for column, pin in enumerate(pins))

    return Ports(inputs=list_ports_of_side(is_output=False), outputs=list_ports_of_side(is_output=True))
