"""`testbed history|journal`: what was applied to a lab, and every operation with its steps. No device is asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli import options
from testbed.cli.output import DONE, print_answer
from testbed.cli.unfinished import with_unfinished

if TYPE_CHECKING:
    from testbed.operate.recovery.records import OperationRecord

Last = Annotated[int | None, typer.Option("--last", metavar="N", min=1, help="Only the newest N operations.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("history")(history)
    app.command("journal")(journal)


def history(
    lab_file: options.LabFile,
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """List the epochs of a lab: what was applied, by whom, why, and what it changed."""
    from testbed.lab.inventory import load_lab
    from testbed.operate.recovery.history import history_lines, history_of

    lab = load_lab(lab_file)
    epochs = history_of(runs_dir, lab.name)
    told = {"lab": lab.name, "epochs": epochs}
    document, lines = with_unfinished(told, list(history_lines(epochs)), runs_dir, lab)
    print_answer(document, lines or [_nothing(f"no epoch of lab '{lab.name}'", runs_dir)], as_json=as_json)
    return DONE


def journal(
    lab_file: options.LabFile,
    operation: Annotated[
        str | None, typer.Argument(metavar="[OPERATION]", help="Only this operation.")
    ] = None,
    last: Last = None,
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """Show the operations of a lab and the state of every step, as the journal holds them."""
    from testbed.lab.inventory import load_lab
    from testbed.operate.recovery.records import operations_of
    from testbed.operation_errors import NoSuchOperation

    lab = load_lab(lab_file)
    shown = operations_of(runs_dir, lab.name)
    if operation is not None:
        shown = tuple(one for one in shown if one.id == operation)
        if not shown:
            raise NoSuchOperation(f"lab '{lab.name}' has no operation {operation} in {runs_dir}")
    shown = shown[-last:] if last else shown
    told = {"lab": lab.name, "operations": [one.json() for one in shown]}
    document, lines = with_unfinished(told, [line for one in shown for line in _lines(one)], runs_dir, lab)
    print_answer(
        document, lines or [_nothing(f"no operation of lab '{lab.name}'", runs_dir)], as_json=as_json
    )
    return DONE


def _nothing(what: str, runs_dir: Path) -> str:
    """Return the line for an empty answer; without any database also what to do about it."""
    from testbed.storage.address import address_in

    address = address_in(runs_dir)
    if not isinstance(address, Path) or address.exists():
        return f"{what} is stored in {runs_dir}"
    return f"{what} is stored: {runs_dir} has no database. Name another --runs-dir, or `testbed restore` a backup"


def _lines(record: OperationRecord) -> Iterator[str]:
    told = record.json()
    who = f" by {told['who']}" if told["who"] else ""
    why = f": {told['why']}" if told["why"] else ""
    yield f"{record.id} {record.kind}, {record.state}, {told['started'][:19].replace('T', ' ')} UTC{who}{why}"
    for step in record.steps:
        reason = step.row.get("reason") or ""
        moved = len(step.before.pairs ^ step.after.pairs) if step.change == "circuits" else 0
        what = f"{moved} circuits" if moved else step.change
        became = f"{step.state}: {reason}" if reason else step.state
        yield f"    {step.device} {step.ordinal} {step.row['kind']} ({what}): {became}"
