"""`countaction build FILE -o DIR`: SystemVerilog, register map, tops for a board, and a template of a bench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fpga.cli.errors import print_message
from fpga.cli.options import AsJson, Parameters, SourceFile, parse_parameters

Folder = Annotated[
    Path, typer.Option("--output", "-o", metavar="DIR", help="Output folder; created if missing.")
]
Board = Annotated[str | None, typer.Option("--board", help="Add the scripts of a board, e.g. zcu111.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("build")(build)


def build(
    file: SourceFile,
    output: Folder,
    parameters: Parameters = None,
    board: Board = None,
    *,
    as_json: AsJson = False,
) -> int:
    """Generate all files that hardware and driver need."""
    from fpga.count_action import load
    from fpga.hdl.tools import HdlError
    from fpga.registers.build import build_files, read_board_files, write_files
    from fpga.registers.origin import collect_origin_files

    parameter_values = parse_parameters(parameters)
    checked_datapath = load(file, parameter_values)
    datapath = checked_datapath.datapath
    try:
        files = {
            **build_files(datapath),
            **collect_origin_files(checked_datapath, file, parameter_values),
            **(read_board_files(board) if board else {}),
        }
    except (HdlError, ValueError) as error:
        return print_message(str(error), as_json=as_json)
    write_files(files, output)
    if as_json:
        document = {
            "ok": True,
            "datapath": datapath.name,
            "hash": f"{datapath.digest:08x}",
            "folder": str(output),
        }
        print(json.dumps({**document, "files": sorted(files)}))
    else:
        print(f"{datapath.name}, hash {datapath.digest:08x}: {len(files)} files in {output}")
        print(
            f"Registers: {output / f'{datapath.name}.md'}. Bench: pytest {output / f'test_{datapath.name}.py'}"
        )
    return 0
