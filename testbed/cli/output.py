"""Output of commands: lines for people, one JSON document on standard output for programs.

Progress goes to standard error, so that with `--json` standard output contains only the document.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from typer.exceptions import TyperException

from testbed.errors import Interrupted, MoveTimedOut, PlanStale, TestbedError

if TYPE_CHECKING:
    from ocs_drivers.model import ApplyReport


def print_json(document: Any, stream: TextIO | None = None) -> None:
    """Print one JSON document on one line of standard output, or of another stream."""
    print(json.dumps(document, default=str), file=stream or sys.stdout, flush=True)


def print_note(text: str) -> None:
    """Print a line on standard error at once."""
    print(text, file=sys.stderr, flush=True)


def print_answer(document: Any, lines: Sequence[str], *, as_json: bool) -> None:
    """Print the document for programs, or the lines for people."""
    if as_json:
        print_json(document)
        return
    for line in lines:
        print(line)


def print_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a header and rows as CSV on standard output. None becomes an empty field. Lines end in a line feed."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)


def describe_error(error: Exception) -> dict[str, Any]:
    """Return the JSON form of any error: its stable code, who must act, its message and details."""
    from ocs_drivers.errors import OcsError  # imported here because few commands need it
    from ocs_drivers.model import ApplyReport

    if isinstance(error, OcsError | TestbedError):
        document: dict[str, Any] = {"code": error.code, "who": error.who, "message": str(error)}
        if isinstance(error, OcsError) and error.ports:
            document["ports"] = list(error.ports)
        report = getattr(error, "report", None)
        if isinstance(error, Interrupted | MoveTimedOut):
            document["pairs"] = [
                {"input": source, "output": output, "status": "unknown"}
                for source, output in sorted(error.unknown.items())
            ]
        if isinstance(error, PlanStale):
            document["differences"] = [difference.json() for difference in error.differences]
        return document | (describe_report(report) if isinstance(report, ApplyReport) else {})
    if isinstance(error, TyperException):
        if getattr(error, "option_name", "") == "--server":
            message = "this command runs only locally: leave out --server"
            return {"code": "service.here", "who": "user", "message": message}
        return {"code": "usage", "who": "user", "message": error.format_message()}
    return {"code": "internal", "who": "ourselves", "message": f"{type(error).__name__}: {error}"}


def describe_report(report: ApplyReport) -> dict[str, Any]:
    """Return the JSON form of a report: the outcome of every pair, and the revision read back."""
    return {
        "pairs": [
            {"input": source, "output": output, "status": status.value}
            for (source, output), status in sorted(report.pairs.items())
        ],
        "revision": report.read_back.revision if report.read_back else None,
    }


def report_error(error: Exception, *, as_json: bool) -> None:
    """Print an error: its message on standard error, or as JSON on standard output."""
    error_document = describe_error(error)
    if as_json:
        print_json({"error": error_document})
    else:
        print(f"error: {error_document['message']}", file=sys.stderr)
