"""One database, opened for writing: transactions that are on disk when they end, one writer at a time.

SQLite: WAL, `synchronous=FULL`, and the write lock from the beginning of a transaction. PostgreSQL: an advisory lock
stands for that lock, so that both behave alike. A database of an earlier release is migrated when it is first written.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from testbed.database_file import BUSY_TIMEOUT_S
from testbed.storage.address import Address, address_of, shown
from testbed.storage.file_system import check_is_local
from testbed.storage.looking import CONNECT_TIMEOUT_S
from testbed.storage.revision import bring_up_to_date, is_up_to_date

DATABASE_ERRORS = (sa.exc.DatabaseError, sqlite3.DatabaseError)
"""Errors that a transaction raises when the database cannot be read or written."""
_WRITER = 0x11617BED
"""Number of the advisory lock that whoever writes holds."""
_MIGRATION = _WRITER + 1


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
        return shown(self.address)

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
                raise sqlite3.OperationalError(f"its journal mode stays {mode!r} in place of 'wal'")
            return


def _begin(connection: sa.Connection) -> None:
    """Take the write lock first: one taken after a read is refused at once when somebody else wrote meanwhile."""
    lock = connection.get_execution_options().get("lightbed_lock")
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE" if lock else "BEGIN")
    elif lock:
        connection.exec_driver_sql(f"select pg_advisory_xact_lock({lock})")
