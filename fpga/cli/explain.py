"""`countaction explain FILE`: draw counts, targets, actions, what triggers what, and latencies in cycles."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fpga.cli.options import AsJson, Parameters, SourceFile, parse_parameters
from lightbed.output_file import write_output

if TYPE_CHECKING:
    from fpga.count_action import CheckedDatapath

SvgFile = Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write the drawing as SVG, too.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("explain")(explain)


def explain(
    file: SourceFile, parameters: Parameters = None, svg: SvgFile = None, *, as_json: AsJson = False
) -> None:
    """Draw a datapath: counts, targets, actions, what triggers what, latency in cycles."""
    from fpga.count_action import load
    from fpga.count_action.explanation.explain import explain as explain_datapath
    from fpga.count_action.explanation.svg import draw, draw_svg

    checked_datapath = load(file, parse_parameters(parameters))
    explanation = explain_datapath(checked_datapath.datapath)
    if svg is not None:
        write_output(svg, draw_svg(explanation))
    if as_json:
        diagnostics_by_kind = {
            "warnings": checked_datapath.warnings,
            "inferences": checked_datapath.inferences,
        }
        documents_by_kind = {
            kind: [note.as_dict() for note in notes_of_kind]
            for kind, notes_of_kind in diagnostics_by_kind.items()
        }
        print(json.dumps({**explanation.as_dict(), **documents_by_kind}))
        return
    print(
        draw(
            explanation,
            shutil.get_terminal_size((100, 24)).columns,
            ascii_only=not _can_encode_line_drawing(),
        ),
        end="",
    )
    if any(signal.size > 1 for signal in checked_datapath.datapath.inputs):
        print("\nElements are numbered as in the hardware, from 0.")
    _print_notes(checked_datapath)


def _can_encode_line_drawing() -> bool:
    """Return whether standard output can encode the characters of the drawing that are not ASCII."""
    try:
        "╭▶".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _print_notes(checked_datapath: CheckedDatapath) -> None:
    for title, notes in (
        ("Assumptions", checked_datapath.inferences),
        ("Warnings", checked_datapath.warnings),
    ):
        if notes:
            print(f"\n{title}:")
        for note in notes:
            print(f"  {note}")
