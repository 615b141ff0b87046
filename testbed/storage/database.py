"""One database, opened for writing: transactions that are on disk when they end, one writer at a time.

SQLite: WAL, `synchronous=FULL`, and the write lock from the beginning of a transaction; not on file systems where locks
and shared memory do not reach from host to host. PostgreSQL: an advisory lock stands for that lock, so that both behave
alike.

A new database gets all tables, one of an earlier release is migrated when it is first written, one of a later release
is refused. Whoever does so holds the lock of the writer; all of a migration is one transaction, on SQLite too. Alembic
is imported where there is something to migrate.
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
from testbed.storage.address import Address, address_of, hide_password
from testbed.storage.looking import CONNECT_TIMEOUT_S
from testbed.storage.schema import REVISION, metadata

DATABASE_ERRORS = (sa.exc.DatabaseError, sqlite3.DatabaseError)
"""Errors that a transaction raises when the database cannot be read or written."""
_WRITER = 0x11617BED
"""Number of the advisory lock that whoever writes holds."""
_MIGRATION = _WRITER + 1
NETWORK = frozenset(
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
_MOUNTS = Path("/proc/self/mountinfo")
_VERSION = "alembic_version"
FIRST = "1001"
"""The revision that all others follow."""


class Database:
    """A database of our schema. Raises `StorageError` for one that cannot be used, and `DATABASE_ERRORS`.

    `commit_s` is the time spent in transactions that write. With `keep_open` connections are kept for the next
    transaction until `close`; without it none outlives its use.
    """

    def __init__(
        self, place: Address, *, keep_open: bool = True, busy_timeout_s: float = BUSY_TIMEOUT_S
    ) -> None:
        self.address = address_of(place)
        self.commit_s = 0.0
        self._adding = threading.Lock()  # switches are worked on in threads
        self._is_ready = False
        self.engine = _engine(self.address, keep_open, busy_timeout_s)

    @property
    def name(self) -> str:
        """The address for people."""
        return hide_password(self.address)

    def close(self) -> None:
        """Close the connections. The database stays usable; it is opened again when needed."""
        self.engine.dispose()

    def prepare(self) -> None:
        """Create the database, or migrate it, unless it is of today's schema. Two processes may do so at once."""
        if self._is_ready:
            return
        if isinstance(self.address, Path):
            self.address.parent.mkdir(parents=True, exist_ok=True)
            check_is_local(self.address)
            # It holds hashes of tokens and the audit log: for its owner alone. What fails here, SQLite tells below.
            with suppress(OSError):
                os.close(os.open(self.address, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with self.engine.connect() as connection:
            ready = is_up_to_date(connection, self.name)
        if not ready:
            with self.engine.execution_options(lightbed_lock=_MIGRATION).begin() as connection:
                bring_up_to_date(connection, self.name)
        self._is_ready = True

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """Provide a connection with the write lock; what was done is on disk when this is left without an error."""
        self.prepare()
        begin = time.monotonic()
        with self.engine.execution_options(lightbed_lock=_WRITER).begin() as connection:
            yield connection
        with self._adding:
            self.commit_s += time.monotonic() - begin

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Provide a connection that sees one state of a database of today's schema, and waits for nobody."""
        self.prepare()
        with self.engine.connect() as connection:
            yield connection


def _engine(address: Address, keep_open: bool, busy_timeout_s: float) -> sa.Engine:
    pool: dict[str, Any] = {} if keep_open else {"poolclass": sa.NullPool}
    if isinstance(address, Path):
        engine = sa.create_engine(f"sqlite:///{address}", connect_args={"timeout": busy_timeout_s}, **pool)
        sa.event.listen(engine, "connect", _make_durable)
    else:
        settings = f"-c synchronous_commit=on -c lock_timeout={int(busy_timeout_s * 1000)}"
        arguments = {"connect_timeout": CONNECT_TIMEOUT_S, "options": settings}
        engine = sa.create_engine(address, connect_args=arguments, **pool)
    sa.event.listen(engine, "begin", _begin)
    return engine


def _make_durable(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # transactions begin where `_begin` says, not at the first write
    _use_wal(connection)
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Turn a new file to WAL; SQLite does not wait for others here, so we do."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            if mode != "wal":  # SQLite keeps another mode without a word where it has no shared memory
                raise sqlite3.OperationalError(f"its journal mode is {mode!r} instead of 'wal'")
            return


def _begin(connection: sa.Connection) -> None:
    """Take the write lock first: one taken after a read is refused at once when somebody else wrote meanwhile."""
    lock = connection.get_execution_options().get("lightbed_lock")
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE" if lock else "BEGIN")
    elif lock:
        connection.exec_driver_sql(f"select pg_advisory_xact_lock({lock})")


def type_of(path: Path, mounts: str) -> str:
    r"""Return the type of the file system that holds a path, from the text of `/proc/self/mountinfo` (proc(5)).

    >>> type_of(
    ...     Path("/home/a/runs"),
    ...     "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:9 / /home rw shared:1 - nfs4 h:/x rw\n",
    ... )
    'nfs4'
    """
    found, longest = "", -1
    for line in mounts.splitlines():
        place, _, source = line.partition(" - ")
        mounted_at = Path(_unescape(place.split()[4]))
        if (
            path.is_relative_to(mounted_at) and len(mounted_at.parts) >= longest
        ):  # a later mount hides an earlier one
            found, longest = source.split()[0], len(mounted_at.parts)
    return found


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def check_is_local(file: Path) -> None:
    """Raise `StorageError` for a file on a network file system."""
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # not Linux, or no /proc: nobody can tell
        return
    kind = type_of(file.parent.resolve(), mounts)
    if kind in NETWORK:
        what = f"{file} lies on a network file system ({kind}), where SQLite's locks and its shared memory do not hold"
        hint = "choose a directory on a local disk (--runs-dir), or a server for several hosts (--database)"
        raise StorageError(f"{what}; {hint}")


def is_up_to_date(connection: sa.Connection, name: str) -> bool:
    """Return whether a database is of today's schema. Raises `StorageError` for one of a later release."""
    return _revision_of(connection, name) == REVISION


def bring_up_to_date(connection: sa.Connection, name: str) -> None:
    """Create all tables, or migrate those of an earlier revision. Raises `StorageError` for one of a later release."""
    found = _revision_of(connection, name)
    if found == REVISION:
        return  # another process was faster
    if found is None and metadata.tables.keys().isdisjoint(sa.inspect(connection).get_table_names()):
        metadata.create_all(connection)
        connection.exec_driver_sql(f"create table {_VERSION} (version_num varchar(32) primary key not null)")
        connection.exec_driver_sql(f"insert into {_VERSION} values ('{REVISION}')")  # noqa: S608 - our own name
        return
    if found is None or found < FIRST:
        what = f"{name} was written by a version of lightbed from before its first release"
        raise StorageError(f"{what}; choose another --runs-dir or --database")
    migrate(connection)


def migrate(connection: sa.Connection) -> None:
    """Run the revisions that a database lacks."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "testbed.storage:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _revision_of(connection: sa.Connection, name: str) -> str | None:
    """Return the revision of a database, None where it has none. Raises `StorageError` for an unknown one."""
    if not sa.inspect(connection).has_table(_VERSION):
        return None
    found = connection.exec_driver_sql(f"select version_num from {_VERSION}").scalar()  # noqa: S608 - our own name
    if found is not None and found > REVISION:
        what = f"{name} was written by a later release of lightbed (revision {found}, known are those to {REVISION})"
        raise StorageError(f"{what}; install that release, or choose another --runs-dir or --database")
    return found
