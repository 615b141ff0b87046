"""Output of commands: people read lines on a terminal, programs read one JSON document on standard output.

Progress goes to standard error, so that `--json` leaves standard output to the document alone.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer.exceptions import TyperException

from lightbed.output_file import STANDARD_OUTPUT
from ocs_drivers.errors import OcsError
from ocs_drivers.model import ApplyReport
from testbed.errors import Interrupted, MoveTimedOut, PlanStale, TestbedError

if TYPE_CHECKING:
    from rich.progress import Progress

    from testbed.design.evaluation.compilation import Part

DONE = 0
ERROR = 1
CHANGES = 2
INTERRUPTED = 130


def print_json(document: Any) -> None:
    """Print one JSON document on one line of standard output."""
    print(json.dumps(document, default=str), flush=True)


def tell(text: str) -> None:
    """Say something at once on standard error, whatever standard output is for."""
    print(text, file=sys.stderr, flush=True)


def print_answer(document: Any, lines: Sequence[str], *, as_json: bool, output: Path | None = None) -> None:
    """Print the document for programs, or the lines for people: on standard error where `output` is standard output."""
    with redirect_stdout(sys.stderr if str(output) == STANDARD_OUTPUT else sys.stdout):
        if as_json:
            print_json(document)
        else:
            print_lines(lines)


def print_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a header and rows as CSV on standard output; None is an empty field, lines end as everywhere here."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)


def print_lines(lines: Sequence[str]) -> None:
    """Print plain lines on standard output."""
    for line in lines:
        print(line)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table for people. Numbers are aligned to the right when every cell of a column is one."""
    from rich.console import Console
    from rich.table import Table

    table = Table(header_style="bold")
    for index, column in enumerate(columns):
        numeric = all(_is_number(row[index]) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(f"{cell:,.1f}" if isinstance(cell, float) else str(cell) for cell in row))
    console = Console()
    if not console.is_terminal:
        console.width = 160
    console.print(title, style="italic", highlight=False, soft_wrap=True)
    console.print(table)


def finding_lines(findings: Iterable[Mapping[str, str]]) -> Iterator[str]:
    """Yield findings as lines for people: what is found, and what to do unless the detail says so already."""
    for finding in findings:
        yield f"{finding['kind']}: {finding['subject']}: {finding['detail']}"
        if finding["hint"] not in finding["detail"]:
            yield f"    {finding['hint']}"


def _is_number(cell: object) -> bool:
    try:
        float(str(cell))
    except ValueError:
        return False
    return True


def describe_error(error: Exception) -> dict[str, Any]:
    """Return a stable code, who must act, and the message of any error, as programs get it."""
    if isinstance(error, OcsError | TestbedError):
        described: dict[str, Any] = {"code": error.code, "who": error.who, "message": str(error)}
        if isinstance(error, OcsError) and error.ports:
            described["ports"] = list(error.ports)
        report = getattr(error, "report", None)
        if isinstance(error, Interrupted | MoveTimedOut):
            described["pairs"] = [
                {"input": i, "output": o, "status": "unknown"} for i, o in sorted(error.unknown.items())
            ]
        if isinstance(error, PlanStale):
            described["differences"] = [difference.json() for difference in error.differences]
        return described | (describe_report(report) if isinstance(report, ApplyReport) else {})
    if isinstance(error, TyperException):
        if getattr(error, "option_name", "") == "--server":
            what = "no service carries this command out: it works here alone; leave out --server"
            return {"code": "service.here", "who": "user", "message": what}
        return {"code": "usage", "who": "user", "message": error.format_message()}
    return {"code": "internal", "who": "ourselves", "message": f"{type(error).__name__}: {error}"}


def describe_report(report: ApplyReport) -> dict[str, Any]:
    """Return what became of every pair, and what the switch held at the end, as programs get it."""
    return {
        "pairs": [{"input": i, "output": o, "status": s.value} for (i, o), s in sorted(report.pairs.items())],
        "revision": report.read_back.revision if report.read_back else None,
    }


def report_error(error: Exception, *, as_json: bool) -> None:
    """Say what went wrong: a sentence on standard error, or a document on standard output."""
    described = describe_error(error)
    if as_json:
        print_json({"error": described})
    else:
        print(f"error: {described['message']}", file=sys.stderr)


def note_compilation(*parts: Part) -> None:
    """Say on standard error that the simulator is compiled first, where these parts have not been on this machine."""
    from testbed.design.evaluation.compilation import is_compiled

    if not is_compiled(*parts):
        print(
            "compiling the simulator for this machine, once: about half a minute", file=sys.stderr, flush=True
        )


@dataclass
class PlainNarrator:
    """Progress as plain lines, for logs and pipes. Of steps that say the same, the first and the last get a line."""

    _said: str = ""

    def phase(self, title: str) -> None:
        """Note that a new part of the job begins."""
        self._said = ""
        print(f"== {title}", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """Note that something worth knowing happened."""
        print(f"   {text}", file=sys.stderr, flush=True)

    def tick(self, done: int, total: int, text: str) -> None:
        """Note that one of many like steps is done."""
        if text != self._said or done >= total:
            print(f"   [{done}/{total}] {text}", file=sys.stderr, flush=True)
        self._said = text


class RichNarrator:
    """Progress as a live bar, for terminals."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None)

    def phase(self, title: str) -> None:
        """Note that a new part of the job begins."""
        self._progress.console.print(f"[bold]{title}[/bold]")
        self._progress.reset(self._task, total=None, description=title)

    def note(self, text: str) -> None:
        """Note that something worth knowing happened."""
        self._progress.console.print(f"  {text}", highlight=False)

    def tick(self, done: int, total: int, text: str) -> None:
        """Note that one of many like steps is done."""
        self._progress.update(self._task, completed=done, total=total, description=text)


@contextmanager
def narrate() -> Iterator[PlainNarrator | RichNarrator]:
    """Provide the narrator that fits where standard error goes."""
    if not sys.stderr.isatty():
        yield PlainNarrator()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield RichNarrator(progress)
