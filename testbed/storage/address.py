"""Addresses of databases: the SQLite file of a directory of runs, or the URL of a PostgreSQL server.

The option `--database` stands for all of a command; `choose` keeps it. Nothing here imports a database.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from pathlib import Path
from typing import TypeAlias

from testbed.database_file import database_in
from testbed.errors import StorageError

Address: TypeAlias = Path | str
"""A path is an SQLite file, text a URL."""

SCHEME = "postgresql+psycopg://"
_chosen: ContextVar[str] = ContextVar("database", default="")


def choose(url: str) -> None:
    """Take this database in place of the file of each directory of runs; an empty URL takes the file again."""
    _chosen.set(check_url(url) if url else "")


def address_in(runs_dir: str | Path) -> Address:
    """Return the database of a directory of runs: the one that was chosen, or else the file in it."""
    return _chosen.get() or database_in(runs_dir)


def address_of(place: str | Path) -> Address:
    """Return an address given as text or path.

    >>> address_of("runs/lightbed.sqlite")
    PosixPath('runs/lightbed.sqlite')
    """
    return check_url(place) if isinstance(place, str) and "://" in place else Path(place)


def is_server(address: Address) -> bool:
    """Return whether the database is on a server, not in a file."""
    return isinstance(address, str)


def hide_password(address: Address) -> str:
    """Return an address for people and logs, without the password in it.

    >>> hide_password("postgresql+psycopg://lab:secret@db1/lightbed")
    'postgresql+psycopg://lab:***@db1/lightbed'
    """
    return re.sub(r"(://[^:/@]*):[^@/]*@", r"\1:***@", str(address))


def check_url(url: str) -> str:
    """Return a URL of a server that can be used. Raises `StorageError`."""
    if not url.startswith(SCHEME):
        hint = f"write {SCHEME}USER@HOST/DATABASE; a file is chosen by --runs-dir"
        raise StorageError(
            f"--database {hide_password(url)!r} is not the address of a PostgreSQL server: {hint}"
        )
    return url
