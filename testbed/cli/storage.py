"""`testbed backup|restore`: the database and the directories of runs, in one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lightbed.wording import counted
from testbed.cli import options
from testbed.cli.output import print_answer
from testbed.commands.documents import DONE

if TYPE_CHECKING:
    from testbed.storage.backup import BackupReport


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("backup")(backup)
    app.command("restore")(restore)


BackupFile = Annotated[Path, typer.Argument(metavar="FILE", help="Backup, a tar file.")]


def backup(
    file: BackupFile,
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """Write the database and the directories of runs to one file; other commands may go on."""
    from testbed.storage.address import address_in
    from testbed.storage.backup import back_up

    report = back_up(address_in(runs_dir), runs_dir, file)
    _print(file, report, f"{file} holds", as_json=as_json)
    return DONE


def restore(
    file: BackupFile,
    replace: Annotated[
        bool, typer.Option("--replace", help="Remove what the database holds; without it, it must be empty.")
    ] = False,
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """Put a backup back, into a file or onto a server. Leases that it holds are ended."""
    from testbed.storage.address import address_in, shown
    from testbed.storage.backup import restore as put_back

    address = address_in(runs_dir)
    report = put_back(file, address, runs_dir, replace=replace)
    _print(file, report, f"{shown(address)} holds", as_json=as_json)
    return DONE


def _print(file: Path, report: BackupReport, begin: str, *, as_json: bool) -> None:
    document = {"file": str(file), "rows": report.rows, "runs": list(report.runs)}
    rows = counted(sum(report.rows.values()), "row")
    lines = [f"{begin} {rows}, and the files of {counted(len(report.runs), 'run')}"]
    print_answer(document, lines, as_json=as_json, output=file)
