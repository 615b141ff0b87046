"""Everything that is made of a datapath, as files in one folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fpga.count_action.model import Datapath
from fpga.count_action.ports import Port, Ports
from fpga.hdl.design import Design, design_of
from fpga.registers.bench import emit_bench
from fpga.registers.ipxact import to_ipxact
from fpga.registers.peakrdl import emit_register_file
from fpga.registers.register_blocks import bit_range
from fpga.registers.register_list import Streams, register_map
from fpga.registers.text import to_header, to_ip_registers, to_json, to_markdown, to_rdl
from fpga.registers.top import block_files, emit_top, top_name, top_table
from fpga.registers.wrapper import axi_signals
from lightbed.output_file import write_output

_BOARDS = Path(__file__).resolve().parent.parent / "boards"


def build_files(datapath: Datapath) -> dict[str, str]:
    """Return the text of every file, by its name.

    Both tops with all their sources and a list of them in order (`NAME_axi.f`, `NAME_axis.f`), the registers of
    each as SystemRDL, C header and IP-XACT, those of the first as JSON and Markdown (those of the second are the
    beginning of the same map), the representation, and a cocotb bench. Raises ValueError for names that SystemVerilog
    cannot have, HdlError when a tool is missing or refuses.
    """
    return dict(_files(datapath))


def board_files(board: str) -> dict[str, str]:
    """Return the scripts that build a bitstream for a board, to lie with the files above. Raises ValueError."""
    folders = {each.name: each for each in _BOARDS.iterdir() if each.is_dir()}
    if board not in folders:
        raise ValueError(f"no board {board!r}; there are: {', '.join(sorted(folders))}.")
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folders[board].glob("*.tcl"))}


def write_files(files: dict[str, str], folder: Path) -> None:
    """Put them in `folder`, which is made; files of the same names are replaced. Raises OSError."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_output(path, text)


def _files(datapath: Datapath) -> Iterator[tuple[str, str]]:
    for streams in Streams:
        sources = top_sources(datapath, streams)
        yield from sources
        top = top_name(datapath, streams)
        yield f"{top}.f", "".join(f"{file}\n" for file, _ in sources)
    yield from document_files(datapath)


def document_files(datapath: Datapath) -> Iterator[tuple[str, str]]:
    """Return the names and texts of all that is no hardware: registers in several forms, and the bench."""
    name = datapath.name
    for streams in Streams:
        top, of_top = top_name(datapath, streams), top_table(datapath, streams)
        yield f"{top}_ip_registers.tcl", to_ip_registers(of_top)
        yield f"{top}.rdl", to_rdl(of_top)
        yield f"{top}.h", to_header(of_top)
        yield f"{top}.xml", to_ipxact(datapath, streams)
    table = register_map(datapath)
    yield f"{name}.rdl", to_rdl(table)
    yield f"{name}.registers.json", to_json(table)
    yield f"{name}.md", to_markdown(table)
    yield f"{name}.json", datapath.to_json() + "\n"
    yield f"test_{name}.py", emit_bench(datapath)


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
