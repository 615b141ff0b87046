"""The database of a directory of runs: one file with the tables of results and of the journal of operations.

`read_rows` needs no right to write: the disk may be full, the directory read-only or missing.

In this process only SQLite may open the file or its log. Closing any other descriptor would release the locks of all
connections of the process (fcntl(2)), and the next program that closes the database would remove a log that is in use.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")
_MEMORY = "/dev/shm"  # noqa: S108 - a name that nobody else has is made in it
BUSY_TIMEOUT_S = 30.0
"""Time for which a reader or writer waits while another process holds the file."""


def get_database_path(runs_dir: str | Path) -> Path:
    """Return the path of the database of a directory of runs."""
    return Path(runs_dir) / "lightbed.sqlite"


def read_rows(path: Path, query: str, parameters: Sequence[object] = ()) -> list[Mapping[str, Any]]:
    """Return the rows of a query, or no rows if the file or its tables do not exist.

    Raises `OSError` and `sqlite3.DatabaseError` if the file cannot be read.
    """
    try:
        if not path.stat().st_size:
            return []
    except (FileNotFoundError, NotADirectoryError):
        return []
    return _read_with_fallback(path, lambda connection: _fetch_rows(connection, query, parameters))


def copy_database(path: Path, copy_path: Path) -> None:
    """Copy a database at one moment to a file; other processes may write meanwhile. Raises as `read_rows`."""
    with _open(copy_path, "mode=rwc") as target:
        _read_with_fallback(path, lambda connection: connection.backup(target))


def _read_with_fallback(path: Path, read_connection: Callable[[sqlite3.Connection], T]) -> T:
    """Return the result of `read_connection` on the first kind of connection that works."""
    import sqlite3  # only where there is something to read: it takes 10 ms

    _check_readable(path)
    first_error: sqlite3.OperationalError | None = None
    for open_connection in (_open_shared, _open_copy if _has_log(path) else _open_immutable):
        try:
            with open_connection(path) as connection:
                return read_connection(connection)
        except sqlite3.OperationalError as error:
            first_error = first_error or error
    assert first_error is not None  # both ways failed, or one had returned
    raise first_error


def _check_readable(path: Path) -> None:
    """Raise the `OSError` of opening the file, because SQLite's own error does not say why."""
    error_number = 0
    if path.is_dir():
        error_number = errno.EISDIR
    elif not os.access(path, os.R_OK):
        error_number = errno.EACCES
    if error_number:
        raise OSError(error_number, os.strerror(error_number), str(path))


def _fetch_rows(
    connection: sqlite3.Connection, query: str, parameters: Sequence[object]
) -> list[Mapping[str, Any]]:
    import sqlite3

    try:
        cursor = connection.execute(query, parameters)
    except sqlite3.OperationalError as error:
        if str(error).startswith("no such table"):
            return []
        raise
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def _has_log(path: Path) -> bool:
    """Return True if the write-ahead log holds commits that the file does not."""
    log = Path(f"{path}-wal")
    return log.exists() and log.stat().st_size > 0


@contextmanager
def _open(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    import sqlite3

    address = f"{path.absolute().as_uri()}?{mode}"
    with closing(sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_S)) as connection:
        yield connection


def _open_shared(path: Path) -> Any:
    """Open a file that other processes may write; in WAL mode SQLite needs shared memory for this."""
    return _open(path, "mode=ro")


def _open_immutable(path: Path) -> Any:
    """Open a file that nobody can write, without locks and shared memory."""
    return _open(path, "immutable=1")


@contextmanager
def _open_copy(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a copy of the file and its log, because SQLite ignores the log of a file that nobody can write."""
    with _make_scratch_directory() as scratch_dir:
        copy_path = Path(scratch_dir) / path.name
        for suffix in ("", "-wal"):
            _copy_in_child(f"{path}{suffix}", f"{copy_path}{suffix}")
        with _open(copy_path, "mode=rw") as connection:
            yield connection


def _copy_in_child(source: str, target: str) -> None:
    """Copy a file in a child process, because closing the file here would release our locks. Raise `OSError`."""
    import subprocess  # only where it is needed: it takes milliseconds

    process = subprocess.run(["cp", "--", source, target], capture_output=True, text=True, check=False)
    if process.returncode:
        raise OSError(errno.EIO, f"it cannot be copied: {process.stderr.strip()}", source)


def _make_scratch_directory() -> tempfile.TemporaryDirectory[str]:
    """Return a new temporary directory, in memory if no other place is writable."""
    try:
        return tempfile.TemporaryDirectory(prefix="lightbed-")
    except OSError:
        return tempfile.TemporaryDirectory(prefix=f"lightbed-{os.getpid()}-", dir=_MEMORY)
