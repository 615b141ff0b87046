"""Read-only access to a database: rows of a query, and reasons and hints if it cannot be read.

A file may be read-only and of any revision; a missing table counts as empty. Writers use the same reasons and hints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed import database_file
from testbed.errors import StorageError
from testbed.storage.address import Address, hide_password

CONNECT_TIMEOUT_S = 10
_READ_ONLY_PHRASES = ("readonly database", "Read-only file system", "unable to open database file")
"""SQLite's errors on a read-only file system, with WAL and without."""
_DAMAGE_PHRASES = ("not a database", "malformed", "disk image")
_HINT_BY_PATTERN = (
    *((word, "move it away and put a backup back (`testbed restore FILE`)") for word in _DAMAGE_PHRASES),
    ("permission denied", "give yourself the right to it, or choose another directory for runs (--runs-dir)"),
    ("locked", "another program writes to it: wait until that ends, or find it with `fuser`"),
    ("lock timeout", "another program writes to it: wait until that ends, or find it in pg_stat_activity"),
    *(
        (word, "make it writable, or choose another directory for runs (--runs-dir)")
        for word in _READ_ONLY_PHRASES
    ),
    ("connection", "start the server, or correct its address (--database)"),
    ("authentication", "correct user and password of the address (--database)"),
    ("btree_gist", "install PostgreSQL's contributed extensions, or let its administrator create btree_gist"),
)
_DISK_HINT = "free disk space, or choose another directory for runs (--runs-dir)"


def read_rows(address: Address, query: str, values: Sequence[object] = ()) -> list[Mapping[str, Any]]:
    """Return the rows of a query with `?` for each value, or no rows if the database or its tables do not exist.

    Raises `OSError` and `sqlite3.DatabaseError` for a file that cannot be read, `psycopg.Error` for a server.
    """
    if isinstance(address, Path):
        return database_file.read_rows(address, query, values)
    import psycopg
    from psycopg.rows import dict_row

    url = address.replace("postgresql+psycopg", "postgresql", 1)
    with psycopg.connect(url, connect_timeout=CONNECT_TIMEOUT_S, row_factory=dict_row) as connection:
        connection.read_only = True
        try:
            return list(connection.execute(query.replace("?", "%s").encode(), values).fetchall())
        except psycopg.errors.UndefinedTable:
            return []


def read_rows_checked(address: Address, query: str, values: Sequence[object] = ()) -> list[Mapping[str, Any]]:
    """Return the rows of a query. Raises `StorageError` with a hint if the database cannot be read."""
    try:
        return read_rows(address, query, values)
    except Exception as error:
        if not is_database_error(error):
            raise
        raise StorageError(f"{explain_unreadable(address, error)}; {find_hint(error)}") from error


def is_database_error(error: Exception) -> bool:
    """Return True if an error comes from a database. This compares module names, to avoid importing a library."""
    return isinstance(error, OSError | StorageError) or type(error).__module__.partition(".")[0] in (
        "psycopg",
        "sqlite3",
    )


def explain_unreadable(address: Address, error: Exception) -> str:
    """Return a sentence that names the database and the reason why it cannot be read."""
    return (
        f"{hide_password(address)} cannot be read ({getattr(error, 'strerror', None) or str(error).strip()})"
    )


def get_database_message(error: BaseException) -> str:
    """Return the message of the database itself, on one line."""
    return " ".join(str(getattr(error, "orig", None) or error).split())


def find_hint(error: BaseException) -> str:
    """Return a hint for an error of a database.

    >>> find_hint(OSError("database or disk is full"))
    'free disk space, or choose another directory for runs (--runs-dir)'
    >>> find_hint(OSError("attempt to write a readonly database"))
    'make it writable, or choose another directory for runs (--runs-dir)'
    >>> find_hint(OSError("file is not a database"))
    'move it away and put a backup back (`testbed restore FILE`)'
    """
    reason = get_database_message(error).lower()
    return next((hint for pattern, hint in _HINT_BY_PATTERN if pattern.lower() in reason), _DISK_HINT)
