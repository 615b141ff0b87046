"""Backups: one tar file with the database, always as SQLite, and the directories of its runs.

    lightbed.sqlite     every table, from one transaction
    <run>/...           the files of each run

A backup can be restored to a file or a server, so it can also move a laboratory from a file to a server or back.
Fencing tokens are never reused: earlier leases end as `broken`, and the next token is far above the newest token of the
backup.
"""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from lightbed.output_file import check_output, open_output
from testbed.database_file import copy_database
from testbed.errors import StorageError
from testbed.storage.address import Address, hide_password
from testbed.storage.database import DATABASE_ERRORS, Database
from testbed.storage.reading import find_hint, get_database_message, read_rows
from testbed.storage.schema import counters, lease_parts, leases, metadata, reservations

_DATABASE_MEMBER = "lightbed.sqlite"
_OPEN_LEASE_STATES = ("requested", "queued", "granted", "draining")
SKIPPED_TOKEN_COUNT = 1_000_000
"""Number of fencing tokens skipped by a restore: more than can have been granted since the backup."""
_CHUNK_ROW_COUNT = 1000


@dataclass(frozen=True, slots=True)
class BackupReport:
    """Number of rows by table, and the runs whose directories are in the file."""

    row_count_by_table: dict[str, int]
    run_ids: tuple[str, ...]


def back_up(address: Address, runs_dir: Path, file: Path) -> BackupReport:
    """Write a backup; others may write to the database meanwhile. Raises `StorageError` and `OSError`."""
    if file.is_file():
        raise StorageError(f"{file} exists: name another file, or move it away")
    check_output(file)
    with (
        _convert_errors(address),
        tempfile.TemporaryDirectory(prefix="lightbed-", dir=file.parent) as scratch_dir,
    ):
        copy_path = Path(scratch_dir) / _DATABASE_MEMBER
        _copy_to_file(address, copy_path)
        _check_integrity(copy_path, "no backup is made")
        run_ids = [row["id"] for row in read_rows(copy_path, "select id from runs order by id")]
        present_runs = tuple(run for run in run_ids if (runs_dir / run).is_dir())
        report = BackupReport(_count_rows(copy_path), present_runs)
        with open_output(file) as stream, tarfile.open(fileobj=stream, mode="w|") as archive:
            archive.add(copy_path, _DATABASE_MEMBER)
            for run in present_runs:
                archive.add(runs_dir / run, run, filter=_exclude_lock)
        return report


def restore(file: Path, address: Address, runs_dir: Path, *, replaces_contents: bool = False) -> BackupReport:
    """Restore a backup into an empty database. With `replaces_contents`, first remove the contents of the database.

    The database is changed in one transaction, completely or not at all. Raises `StorageError` and `OSError`.
    """
    with _convert_errors(address), tempfile.TemporaryDirectory(prefix="lightbed-") as scratch_dir:
        with _open_archive(file) as archive:
            archive.extract(_find_database_member(archive, file), scratch_dir, filter="data")
            copy_path = Path(scratch_dir) / _DATABASE_MEMBER
            _check_integrity(copy_path, "nothing is restored")
            source, target = Database(copy_path, keep_open=False), Database(address, keep_open=False)
            with source.open_reading() as source_connection, target.open_transaction() as connection:
                newest_token = _empty_database(connection, target.name, replaces_contents=replaces_contents)
                _copy_rows(source_connection, connection)
                _advance_sequences(connection)
                _end_leases(connection, newest_token)
            archived_runs = _extract_runs(archive, runs_dir)
        return BackupReport(_count_rows(copy_path), archived_runs)


def _copy_to_file(address: Address, copy_path: Path) -> None:
    """Copy the contents of a database at one moment to a file."""
    if isinstance(address, Path):
        if not address.exists():
            raise StorageError(
                f"{address} does not exist: there is nothing to back up in this directory of runs"
            )
        copy_database(address, copy_path)
        return
    source, target = Database(address, keep_open=False), Database(copy_path, keep_open=False)
    source.prepare()
    snapshot_engine = source.engine.execution_options(isolation_level="REPEATABLE READ")
    with snapshot_engine.connect() as source_connection, target.open_transaction() as connection:
        _copy_rows(source_connection, connection)


def _copy_rows(source_connection: sa.Connection, connection: sa.Connection) -> None:
    for table in metadata.sorted_tables:
        rows = source_connection.execute(table.select()).mappings()
        while chunk := rows.fetchmany(_CHUNK_ROW_COUNT):
            connection.execute(table.insert(), [dict(row) for row in chunk])


def _advance_sequences(connection: sa.Connection) -> None:
    """Set the sequences of a server so that they continue after the inserted numbers."""
    if connection.dialect.name != "postgresql":
        return
    for table in metadata.sorted_tables:
        column = table.autoincrement_column
        if column is not None and isinstance(column.type, sa.Integer):
            newest_number = sa.select(sa.func.max(column)).scalar_subquery()
            sequence = sa.func.pg_get_serial_sequence(table.name, column.name)
            connection.execute(
                sa.select(sa.func.setval(sequence, sa.func.coalesce(newest_number, 0) + 1, sa.false()))
            )


def _empty_database(connection: sa.Connection, name: str, *, replaces_contents: bool) -> int:
    """Empty a database and return its newest token.

    Raises `StorageError` if it has rows and `replaces_contents` is false.
    """
    nonempty_tables = [
        table.name
        for table in metadata.sorted_tables
        if connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
    ]
    if nonempty_tables and not replaces_contents:
        raise StorageError(
            f"{name} is not empty ({', '.join(nonempty_tables)}): restore into an empty one, or pass --replace"
        )
    newest_token = connection.execute(sa.select(counters.c.value).where(counters.c.name == "token")).scalar()
    for table in reversed(metadata.sorted_tables):
        connection.execute(table.delete())
    return int(newest_token or 0)


def _end_leases(connection: sa.Connection, newest_token: int) -> None:
    """End all leases and requests, and skip the tokens that may have been granted since the backup."""
    values = {"state": "broken", "reason": "restored from a backup", "operation": None}
    connection.execute(leases.update().where(leases.c.state.in_(_OPEN_LEASE_STATES)).values(values))
    connection.execute(lease_parts.delete())
    connection.execute(reservations.delete())
    stored_token = connection.execute(sa.select(counters.c.value).where(counters.c.name == "token")).scalar()
    connection.execute(counters.delete().where(counters.c.name == "token"))
    next_token = max(newest_token, int(stored_token or 0)) + SKIPPED_TOKEN_COUNT
    connection.execute(counters.insert().values(name="token", value=next_token))


def _extract_runs(archive: tarfile.TarFile, runs_dir: Path) -> tuple[str, ...]:
    members = [member for member in archive.getmembers() if member.name != _DATABASE_MEMBER]
    for member in members:
        if member.isdir() or not (runs_dir / member.name).exists():
            archive.extract(member, runs_dir, filter="data")
    return tuple(sorted({Path(member.name).parts[0] for member in members}))


@contextmanager
def _open_archive(file: Path) -> Iterator[tarfile.TarFile]:
    try:
        archive = tarfile.open(file)  # noqa: SIM115 - closed below
    except tarfile.TarError as error:
        raise StorageError(f"`testbed backup` did not write {file} ({error})") from error
    with archive:
        yield archive


def _find_database_member(archive: tarfile.TarFile, file: Path) -> tarfile.TarInfo:
    if _DATABASE_MEMBER not in archive.getnames():
        raise StorageError(f"`testbed backup` did not write {file}: it has no {_DATABASE_MEMBER}")
    return archive.getmember(_DATABASE_MEMBER)


def _exclude_lock(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if Path(member.name).name == ".lock" else member


def _check_integrity(copy_path: Path, effect_text: str) -> None:
    (row,) = read_rows(copy_path, "pragma integrity_check") or [{"integrity_check": "it is empty"}]
    if row["integrity_check"] != "ok":
        raise StorageError(f"the database is damaged ({row['integrity_check']}): {effect_text}")


def _count_rows(copy_path: Path) -> dict[str, int]:
    table_names: Sequence[str] = sorted(metadata.tables)
    rows_by_table = {
        name: read_rows(copy_path, f"select count(*) as n from {name}")  # noqa: S608 - our own
        for name in table_names
    }
    return {name: rows[0]["n"] for name, rows in rows_by_table.items() if rows}


@contextmanager
def _convert_errors(address: Address) -> Iterator[None]:
    try:
        yield
    except DATABASE_ERRORS as error:
        raise StorageError(
            f"{hide_password(address)}: {get_database_message(error)}; {find_hint(error)}"
        ) from error
