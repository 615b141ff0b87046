"""`countaction verify DIR`: the files of a built folder against the text that lies with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fpga.cli.errors import tell_message
from fpga.cli.options import AsJson
from fpga.cli.prove import Depth

if TYPE_CHECKING:
    from fpga.formal.verdicts import Result
    from fpga.verify.verify import Verification

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder that `countaction build` has written.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("verify")(verify)


def verify(folder: Folder, depth: Depth = 5, *, as_json: AsJson = False) -> int:
    """Hold the files in DIR against the text there: the datapath is proven, its tops are simulated."""
    from fpga.hdl.tools import HdlError
    from fpga.verify.verify import verify as verify_folder

    try:
        found = verify_folder(folder, depth=depth)
    except (HdlError, ValueError) as error:
        if hasattr(error, "errors"):
            raise
        return tell_message(str(error), as_json=as_json)
    print(json.dumps(_document(found)) if as_json else "\n".join(_lines(found)))
    return 0 if found.ok else 1


def _document(found: Verification) -> dict[str, Any]:
    """Return everything as one JSON document."""
    return {
        "ok": found.ok,
        "datapath": found.datapath,
        "files": [
            {"path": each.path, "sha256": each.sha256, "verdict": each.verdict} for each in found.files
        ],
        "properties": [
            {
                "module": each.module,
                "property": each.property,
                "verdict": each.verdict.value,
                "part": each.part,
                "cycle": each.cycle,
                "element": each.element,
                "expected": each.expected,
                "seen": each.seen,
            }
            for each in found.properties
        ],
    }


def _lines(found: Verification) -> list[str]:
    """Return a line for every property and for every file that is not verified."""
    lines = []
    for module in dict.fromkeys(each.module for each in found.properties):
        lines.append(module)
        lines += [line for each in found.properties if each.module == module for line in _describe(each)]
    lines.append("files")
    good = [each for each in found.files if each.verdict in {"verified", "text"}]
    lines.append(f"  {len(good)} of {len(found.files)} verified, or text that the others are held against")
    lines += [f"  {each.verdict:<11}  {each.path}" for each in found.files if each not in good]
    verdict = "does what its text says" if found.ok else "does not do what its text says, or it is not proven"
    return [*lines, f"{found.datapath} {verdict}"]


def _describe(each: Result) -> list[str]:
    where = f" at {each.part}" if each.part else ""
    where += f" in cycle {each.cycle}" if each.cycle is not None else ""
    lines = [f"  {each.verdict.value:<14}  {each.property}{where}"]
    if each.expected is not None:
        lines.append(f"    {each.element}: expected {each.expected}, seen {each.seen}")
    return lines
