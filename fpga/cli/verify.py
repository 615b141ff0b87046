"""`countaction verify DIR`: verify the files of a built folder against the source text in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fpga.cli.errors import print_message
from fpga.cli.options import AsJson
from fpga.cli.prove import Depth

if TYPE_CHECKING:
    from fpga.formal.verdicts import Result
    from fpga.verify.verify import Verification

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Output folder of `countaction build`.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("verify")(verify)


def verify(folder: Folder, depth: Depth = 5, *, as_json: AsJson = False) -> int:
    """Verify the files in DIR against the source text in it: prove the datapath, simulate its tops."""
    from fpga.hdl.tools import HdlError
    from fpga.verify.verify import verify as verify_folder

    try:
        verification = verify_folder(folder, depth=depth)
    except (HdlError, ValueError) as error:
        if hasattr(error, "errors"):
            raise
        return print_message(str(error), as_json=as_json)
    print(json.dumps(_make_document(verification)) if as_json else "\n".join(_format_lines(verification)))
    return 0 if verification.ok else 1


def _make_document(verification: Verification) -> dict[str, Any]:
    """Return the result as a JSON document."""
    return {
        "ok": verification.ok,
        "datapath": verification.datapath,
        "files": [
            {"path": file.path, "sha256": file.sha256, "verdict": file.verdict} for file in verification.files
        ],
        "properties": [
            {
                "module": result.module,
                "property": result.property,
                "verdict": result.verdict.value,
                "part": result.part_name,
                "cycle": result.cycle,
                "element": result.element,
                "expected": result.expected,
                "seen": result.actual,
            }
            for result in verification.properties
        ],
    }


def _format_lines(verification: Verification) -> list[str]:
    """Return a line for every property and for every file that is not verified."""
    lines = []
    for module in dict.fromkeys(result.module for result in verification.properties):
        lines.append(module)
        lines += [
            line
            for result in verification.properties
            if result.module == module
            for line in _describe_result(result)
        ]
    lines.append("files")
    verified_files = [file for file in verification.files if file.verdict in {"verified", "text"}]
    lines.append(f"  {len(verified_files)} of {len(verification.files)} verified or source text")
    lines += [
        f"  {file.verdict:<11}  {file.path}" for file in verification.files if file not in verified_files
    ]
    verdict = "matches its text" if verification.ok else "does not match its text, or is not proven"
    return [*lines, f"{verification.datapath} {verdict}"]


def _describe_result(result: Result) -> list[str]:
    location_text = f" at {result.part_name}" if result.part_name else ""
    location_text += f" in cycle {result.cycle}" if result.cycle is not None else ""
    lines = [f"  {result.verdict.value:<14}  {result.property}{location_text}"]
    if result.expected is not None:
        lines.append(f"    {result.element}: expected {result.expected}, seen {result.actual}")
    return lines
