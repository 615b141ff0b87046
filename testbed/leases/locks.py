"""The lock of a lease: a sender to a device shares it, the end of the lease needs it exclusively.

With SQLite the lock is byte `token` of a file next to the database, by an open file description lock (fcntl(2)), which
threads may share and the kernel releases when a process ends. With PostgreSQL it is an advisory lock of the server.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlalchemy as sa

_LOCK_OFFSET = 0x11617 << 40
"""Offset of the numbers of our advisory locks, to avoid the numbers of other locks of the database."""
_FLOCK_FORMAT = "hhqqi4x"
"""`struct flock` of Linux on 64 bits: type, whence, start, length, process."""


def get_lock_path(database: Path) -> Path:
    """Return the path of the file whose bytes are the locks of leases."""
    return database.with_name(f"{database.name}-leases")


@contextmanager
def share_lock_in_file(database: Path, token: int) -> Iterator[None]:
    """Share the lock of a token within the block; wait while another process ends the lease."""
    with _open_lock(database) as descriptor:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, _pack_flock(fcntl.F_RDLCK, token))
        yield


@contextmanager
def try_lock_in_file(database: Path, token: int) -> Iterator[bool]:
    """Take the lock of a token exclusively within the block. Yield False, without waiting, if a sender shares it."""
    with _open_lock(database) as descriptor:
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _pack_flock(fcntl.F_WRLCK, token))
        except BlockingIOError:
            yield False
        else:
            yield True


def share_lock_on_server(connection: sa.Connection, token: int) -> None:
    """Share the lock of a token until the end of the transaction."""
    connection.exec_driver_sql(f"select pg_advisory_xact_lock_shared({_LOCK_OFFSET + token})")


def try_lock_on_server(connection: sa.Connection, token: int) -> bool:
    """Take the lock of a token exclusively until the end of the transaction; return False if a sender shares it."""
    return bool(
        connection.exec_driver_sql(f"select pg_try_advisory_xact_lock({_LOCK_OFFSET + token})").scalar()
    )


@contextmanager
def _open_lock(database: Path) -> Iterator[int]:
    descriptor = os.open(get_lock_path(database), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)  # releases the lock


def _pack_flock(kind: int, token: int) -> bytes:
    return struct.pack(_FLOCK_FORMAT, kind, os.SEEK_SET, token, 1, 0)
