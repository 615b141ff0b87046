"""`testbed backup|restore`: the database and the directories of runs, in one file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from lightbed.wording import format_count
from testbed.commands.context import CommandContext
from testbed.commands.declare import REQUIRED, Command, argument, option
from testbed.commands.documents import Document

if TYPE_CHECKING:
    from testbed.storage.backup import BackupReport

_FILE_HELP = "Backup, a tar file."


@dataclass(frozen=True, kw_only=True)
class BackupDocument(Document):
    """The file of a backup, the rows of each table, and the runs whose files it holds."""

    file: str
    rows: Mapping[str, int]
    runs: tuple[str, ...]

    def format_line(self, container_name: str) -> str:
        """Return a line for people on the contents of `container_name`: the file or the database."""
        rows_text = format_count(sum(self.rows.values()), "row")
        return f"{container_name} holds {rows_text}, and the files of {format_count(len(self.runs), 'run')}"


def _make_document(file: Path, report: BackupReport) -> BackupDocument:
    return BackupDocument(file=str(file), rows=report.row_count_by_table, runs=tuple(report.run_ids))


@dataclass(frozen=True, kw_only=True)
class Backup(Command[BackupDocument]):
    """`testbed backup`."""

    needs = "nothing"
    role = None
    file: Annotated[Path, argument(_FILE_HELP, "FILE", writes="backup.tar")] = REQUIRED

    def run(self, context: CommandContext) -> BackupDocument:
        """Write the backup. Raises `StorageError`."""
        from testbed.storage.address import get_database_address
        from testbed.storage.backup import back_up

        document = _make_document(
            self.file, back_up(get_database_address(context.runs_dir), context.runs_dir, self.file)
        )
        context.say(document.format_line(str(self.file)))
        return document


@dataclass(frozen=True, kw_only=True)
class Restore(Command[BackupDocument]):
    """`testbed restore`."""

    needs = "nothing"
    role = None
    file: Annotated[Path, argument(_FILE_HELP, "FILE", is_local=True)] = REQUIRED
    replace: Annotated[
        bool, option("Replace the contents of the database; without this, it must be empty.", "--replace")
    ] = False

    def run(self, context: CommandContext) -> BackupDocument:
        """Restore the backup. Raises `StorageError`."""
        from testbed.storage.address import get_database_address, hide_password
        from testbed.storage.backup import restore

        address = get_database_address(context.runs_dir)
        document = _make_document(
            self.file, restore(self.file, address, context.runs_dir, replaces_contents=self.replace)
        )
        context.say(document.format_line(hide_password(address)))
        return document
