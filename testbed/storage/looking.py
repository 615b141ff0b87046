"""Looking at a database without writing anything: rows of a query, from a file or from a server.

A file need not be writable, nor of today's schema; a table that does not exist has no rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed import database_file
from testbed.errors import StorageError
from testbed.storage.address import Address, shown
from testbed.storage.reasons import hint_for

CONNECT_TIMEOUT_S = 10


def read_rows(address: Address, query: str, values: Sequence[object] = ()) -> list[Mapping[str, Any]]:
    """Return the rows of a query with `?` for each value; none where the database or its tables do not exist.

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


def read_or_refuse(address: Address, query: str, values: Sequence[object] = ()) -> list[Mapping[str, Any]]:
    """Return the rows of a query. Raises `StorageError`, which says what to do, for a database that cannot be read."""
    try:
        return read_rows(address, query, values)
    except Exception as error:
        if not is_database_error(error):
            raise
        raise StorageError(f"{why_unreadable(address, error)}; {hint_for(error)}") from error


def is_database_error(error: Exception) -> bool:
    """Return whether this is raised for a database that cannot be read; no library is imported for it."""
    return isinstance(error, OSError | StorageError) or type(error).__module__.partition(".")[0] in (
        "psycopg",
        "sqlite3",
    )


def why_unreadable(address: Address, error: Exception) -> str:
    """Return what cannot be read, and why."""
    return f"{shown(address)} cannot be read ({getattr(error, 'strerror', None) or str(error).strip()})"
