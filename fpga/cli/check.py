"""`countaction check FILE`: errors and warnings of a text, with locations and hints."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fpga.cli.options import AsJson, Parameters, SourceFile, parse_parameters

Strict = Annotated[bool, typer.Option("--strict", help="Exit code 1 for warnings, too.")]

if TYPE_CHECKING:
    from fpga.count_action import CheckedDatapath, CountActionError, Diagnostic


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("check")(check)


def check(
    file: SourceFile, parameters: Parameters = None, *, strict: Strict = False, as_json: AsJson = False
) -> int:
    """Report errors and warnings of a datapath."""
    document = _check_document(file, parameters)
    if as_json:
        print(json.dumps(document))
    else:
        from fpga.count_action import Diagnostic

        for kind, diagnostics in (("error", document["errors"]), ("warning", document["warnings"])):
            for diagnostic in diagnostics:
                print(f"{kind}: {Diagnostic(**diagnostic)}", file=sys.stderr)
        for diagnostic in document["inferences"]:
            print(f"note: {Diagnostic(**diagnostic)}", file=sys.stderr)
        if document["ok"]:
            modules_text = _format_number(document["modules"], "module")
            print(f"{file}: no errors in {modules_text} ({', '.join(document['modules'])})")
        else:
            print(f"{file}: {_format_number(document['errors'], 'error')}", file=sys.stderr)
    return 1 if not document["ok"] or (strict and document["warnings"]) else 0


def _check_document(file: Path, parameters: list[str] | None = None) -> dict[str, Any]:
    """Return the document of `check --json`."""
    from fpga.count_action import CountActionError, load

    try:
        return describe_check(load(file, parse_parameters(parameters)))
    except CountActionError as error:
        return describe_errors(error)


def describe_errors(error: CountActionError) -> dict[str, Any]:
    """Return the document of `check --json` for a file with errors."""
    return {"ok": False, "modules": [], "errors": _as_dicts(error.errors), "warnings": [], "inferences": []}


def describe_check(checked_datapath: CheckedDatapath) -> dict[str, Any]:
    """Return the document of `check --json` for a file without errors."""
    return {
        "ok": True,
        "modules": [module.name for module in checked_datapath.datapath.modules],
        "errors": [],
        "warnings": _as_dicts(checked_datapath.warnings),
        "inferences": _as_dicts(checked_datapath.inferences),
    }


def _as_dicts(diagnostics: tuple[Diagnostic, ...]) -> list[dict[str, str | int]]:
    return [diagnostic.as_dict() for diagnostic in diagnostics]


def _format_number(items: list[Any], noun: str) -> str:
    return f"{len(items)} {noun}" if len(items) == 1 else f"{len(items)} {noun}s"
