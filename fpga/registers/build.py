"""Everything that is made of a datapath, as files in one folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fpga.count_action.model import Datapath
from fpga.registers.bench import emit_bench
from fpga.registers.design import top_sources
from fpga.registers.header import to_header
from fpga.registers.ipxact import to_ipxact
from fpga.registers.register_list import Streams, register_map
from fpga.registers.text import to_ip_registers, to_json, to_markdown, to_rdl
from fpga.registers.top import top_name, top_table
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
