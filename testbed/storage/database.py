"""A database opened for writing: transactions are on disk when they end, and there is one writer at a time.

SQLite uses WAL, `synchronous=FULL`, and takes the write lock at the beginning of a transaction; network file systems
are refused, because locks and shared memory do not work there. On PostgreSQL, an advisory lock has the same effect.

A new database gets all tables. A database of an earlier release is migrated at its first use; a database of a later
release is refused. A migration is one transaction under its own lock, also on SQLite. Alembic is imported only to
migrate.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from testbed.database_file import BUSY_TIMEOUT_S
from testbed.errors import StorageError
from testbed.storage.address import Address, hide_password, resolve_address
from testbed.storage.reading import CONNECT_TIMEOUT_S
from testbed.storage.schema import REVISION, metadata

DATABASE_ERRORS = (sa.exc.DatabaseError, sqlite3.DatabaseError)
"""Errors that a transaction raises if the database cannot be read or written."""
_WRITER_LOCK = 0x11617BED
"""Number of the advisory lock that a writer holds."""
_MIGRATION_LOCK = _WRITER_LOCK + 1
NETWORK_FILESYSTEMS = frozenset(
    (
        *(
            "9p",
            "acfs",
            "afs",
            "beegfs",
            "ceph",
            "cifs",
            "coda",
            "davfs",
            "glusterfs",
            "gpfs",
            "lustre",
            "ncpfs",
        ),
        *("nfs", "nfs4", "orangefs", "smb2", "smb3", "smbfs"),
        *("fuse.ceph", "fuse.davfs2", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
    )
)
_MOUNTS_FILE = Path("/proc/self/mountinfo")
_VERSION_TABLE = "alembic_version"
FIRST_REVISION = "1001"
"""The oldest revision."""


class Database:
    """A database with our schema. Raises `StorageError` if it cannot be used, and `DATABASE_ERRORS`.

    `commit_s` is the time spent in writing transactions. With `keep_open`, connections stay open until `close`.
    Otherwise each connection is closed after its use.
    """

    def __init__(
        self, location: Address, *, keep_open: bool = True, busy_timeout_s: float = BUSY_TIMEOUT_S
    ) -> None:
        self.address = resolve_address(location)
        self.commit_s = 0.0
        self._engine_lock = threading.Lock()  # switches are handled in several threads
        self._is_ready = False
        self.engine = _make_engine(self.address, keep_open, busy_timeout_s)

    @property
    def name(self) -> str:
        """The address without its password."""
        return hide_password(self.address)

    def close(self) -> None:
        """Close the connections. The database stays usable; it is opened again when needed."""
        self.engine.dispose()

    def prepare(self) -> None:
        """Create or migrate the database unless it has the current schema. Several processes may call this at once."""
        if self._is_ready:
            return
        if isinstance(self.address, Path):
            self.address.parent.mkdir(parents=True, exist_ok=True)
            check_is_local(self.address)
            # Readable only by its owner: it holds hashes of tokens and the audit log. SQLite reports any error below.
            with suppress(OSError):
                os.close(os.open(self.address, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with self.engine.connect() as connection:
            is_ready = is_up_to_date(connection, self.name)
        if not is_ready:
            with self.engine.execution_options(lightbed_lock=_MIGRATION_LOCK).begin() as connection:
                bring_up_to_date(connection, self.name)
        self._is_ready = True

    @contextmanager
    def open_transaction(self) -> Iterator[sa.Connection]:
        """Yield a connection with the write lock. Its changes are on disk when the block ends without an error."""
        self.prepare()
        begin_s = time.monotonic()
        with self.engine.execution_options(lightbed_lock=_WRITER_LOCK).begin() as connection:
            yield connection
        with self._engine_lock:
            self.commit_s += time.monotonic() - begin_s

    @contextmanager
    def open_reading(self) -> Iterator[sa.Connection]:
        """Yield a connection that reads one state of the database, without waiting for writers."""
        self.prepare()
        with self.engine.connect() as connection:
            yield connection


def _make_engine(address: Address, keep_open: bool, busy_timeout_s: float) -> sa.Engine:
    pool: dict[str, Any] = {} if keep_open else {"poolclass": sa.NullPool}
    if isinstance(address, Path):
        engine = sa.create_engine(f"sqlite:///{address}", connect_args={"timeout": busy_timeout_s}, **pool)
        sa.event.listen(engine, "connect", _make_durable)
    else:
        settings = f"-c synchronous_commit=on -c lock_timeout={int(busy_timeout_s * 1000)}"
        arguments = {"connect_timeout": CONNECT_TIMEOUT_S, "options": settings}
        engine = sa.create_engine(address, connect_args=arguments, **pool)
    sa.event.listen(engine, "begin", _begin_immediately)
    return engine


def _make_durable(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = (
        None  # transactions begin where `_begin_immediately` says, not at the first write
    )
    _use_wal(connection)
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch a file to WAL. SQLite does not wait for other processes here, so this function does."""
    deadline_s = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            (journal_mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline_s:
                raise
            time.sleep(0.01)
        else:
            if journal_mode != "wal":  # without shared memory SQLite silently keeps another mode
                raise sqlite3.OperationalError(f"its journal mode is {journal_mode!r} instead of 'wal'")
            return


def _begin_immediately(connection: sa.Connection) -> None:
    """Take the write lock at the start: SQLite refuses it after a read if another process has written meanwhile."""
    lock = connection.get_execution_options().get("lightbed_lock")
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE" if lock else "BEGIN")
    elif lock:
        connection.exec_driver_sql(f"select pg_advisory_xact_lock({lock})")


def find_filesystem_type(path: Path, mounts: str) -> str:
    r"""Return the type of the file system that holds a path, from the text of `/proc/self/mountinfo` (proc(5)).

    >>> find_filesystem_type(
    ...     Path("/home/a/runs"),
    ...     "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:9 / /home rw shared:1 - nfs4 h:/x rw\n",
    ... )
    'nfs4'
    """
    filesystem, longest_depth = "", -1
    for line in mounts.splitlines():
        mount_fields, _, source = line.partition(" - ")
        mount_path = Path(_unescape(mount_fields.split()[4]))
        # Of two mounts at one path, the later one hides the earlier one.
        if path.is_relative_to(mount_path) and len(mount_path.parts) >= longest_depth:
            filesystem, longest_depth = source.split()[0], len(mount_path.parts)
    return filesystem


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def check_is_local(file: Path) -> None:
    """Raise `StorageError` for a file on a network file system."""
    try:
        mounts = _MOUNTS_FILE.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # not Linux, or no /proc: cannot be checked
        return
    filesystem = find_filesystem_type(file.parent.resolve(), mounts)
    if filesystem in NETWORK_FILESYSTEMS:
        problem = (
            f"{file} lies on a network file system ({filesystem}), where SQLite's locks and its "
            "shared memory do not hold"
        )
        hint = "choose a directory on a local disk (--runs-dir), or a server for several hosts (--database)"
        raise StorageError(f"{problem}; {hint}")


def is_up_to_date(connection: sa.Connection, name: str) -> bool:
    """Return True if a database has the current schema. Raise `StorageError` for a database of a later release."""
    return _read_revision(connection, name) == REVISION


def bring_up_to_date(connection: sa.Connection, name: str) -> None:
    """Create or migrate all tables. Raise `StorageError` for a later release and for a revision before the first."""
    revision = _read_revision(connection, name)
    if revision == REVISION:
        return  # another process has migrated it meanwhile
    if revision is None and metadata.tables.keys().isdisjoint(sa.inspect(connection).get_table_names()):
        metadata.create_all(connection)
        connection.exec_driver_sql(
            f"create table {_VERSION_TABLE} (version_num varchar(32) primary key not null)"
        )
        connection.exec_driver_sql(f"insert into {_VERSION_TABLE} values ('{REVISION}')")  # noqa: S608 - our own name
        return
    if revision is None or revision < FIRST_REVISION:
        problem = f"{name} was written by a version of lightbed from before its first release"
        raise StorageError(f"{problem}; choose another --runs-dir or --database")
    migrate(connection)


def migrate(connection: sa.Connection) -> None:
    """Apply the missing revisions to a database."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "testbed.storage:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _read_revision(connection: sa.Connection, name: str) -> str | None:
    """Return the revision of a database, or None if it has none. Raise `StorageError` for a later revision."""
    if not sa.inspect(connection).has_table(_VERSION_TABLE):
        return None
    revision = connection.exec_driver_sql(f"select version_num from {_VERSION_TABLE}").scalar()  # noqa: S608 - our own name
    if revision is not None and revision > REVISION:
        problem = (
            f"{name} was written by a later release of lightbed (revision {revision}, known are "
            f"those to {REVISION})"
        )
        raise StorageError(f"{problem}; install that release, or choose another --runs-dir or --database")
    return revision
