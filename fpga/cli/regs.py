"""`countaction regs FILE`: print the registers through which a driver controls a datapath."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fpga.cli.options import AsJson, Parameters, SourceFile, parse_parameters

if TYPE_CHECKING:
    from fpga.registers import RegisterMap

AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print Markdown.")]
AsRdl = Annotated[bool, typer.Option("--rdl", help="Print SystemRDL 2.0.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("regs")(regs)


def regs(
    file: SourceFile,
    parameters: Parameters = None,
    *,
    as_json: AsJson = False,
    markdown: AsMarkdown = False,
    rdl: AsRdl = False,
) -> int:
    """Print the register map as a table, or in another format."""
    from fpga.count_action import load
    from fpga.registers import make_register_map, to_json, to_markdown, to_rdl

    if as_json + markdown + rdl > 1:
        raise typer.BadParameter("--json, --markdown and --rdl exclude each other: choose one")
    register_map = make_register_map(load(file, parse_parameters(parameters)).datapath)
    format_map = to_json if as_json else to_markdown if markdown else to_rdl if rdl else _format_table
    typer.echo(format_map(register_map), nl=False)
    return 0


def _format_table(register_map: RegisterMap) -> str:
    max_name_width = max(len(register.name) for register in register_map)
    lines = [f"{register_map.name}, hash {register_map.digest:08x}, {register_map.size_bytes} bytes"]
    for register in register_map:
        words_text = f"x{register.word_count}" if register.word_count > 1 else ""
        lines.append(
            f"0x{register.offset:03X} {register.name:<{max_name_width}} {register.width:>2} {words_text:<4}"
            f" {register.access.value:<17} {register.description}"
        )
    return "\n".join(lines) + "\n"
