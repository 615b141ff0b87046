"""Addresses of databases: the SQLite file of a directory of runs, or the URL of a PostgreSQL server.

`choose_database` stores the value of the option `--database` for a whole command. This module imports no database
library.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from pathlib import Path
from typing import TypeAlias

from testbed.database_file import get_database_path
from testbed.errors import StorageError

Address: TypeAlias = Path | str
"""The path of an SQLite file, or the URL of a server as text."""

SERVER_SCHEME = "postgresql+psycopg://"
_chosen_url: ContextVar[str] = ContextVar("database", default="")


def choose_database(url: str) -> None:
    """Use this database instead of the file in each directory of runs; an empty URL restores the default."""
    _chosen_url.set(check_url(url) if url else "")


def get_database_address(runs_dir: str | Path) -> Address:
    """Return the address of the chosen database, or else the file in the directory of runs."""
    return _chosen_url.get() or get_database_path(runs_dir)


def resolve_address(location: str | Path) -> Address:
    """Return an address given as text or path.

    >>> resolve_address("runs/lightbed.sqlite")
    PosixPath('runs/lightbed.sqlite')
    """
    return check_url(location) if isinstance(location, str) and "://" in location else Path(location)


def is_server(address: Address) -> bool:
    """Return whether the database is on a server, not in a file."""
    return isinstance(address, str)


def hide_password(address: Address) -> str:
    """Return an address as text, with its password replaced by `***`.

    >>> hide_password("postgresql+psycopg://lab:secret@db1/lightbed")
    'postgresql+psycopg://lab:***@db1/lightbed'
    """
    return re.sub(r"(://[^:/@]*):[^@/]*@", r"\1:***@", str(address))


def check_url(url: str) -> str:
    """Return a URL unchanged. Raises `StorageError` unless it is the URL of a PostgreSQL server."""
    if not url.startswith(SERVER_SCHEME):
        hint = f"write {SERVER_SCHEME}USER@HOST/DATABASE; a file is chosen by --runs-dir"
        raise StorageError(
            f"--database {hide_password(url)!r} is not the address of a PostgreSQL server: {hint}"
        )
    return url
