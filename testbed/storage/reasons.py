"""Reasons of databases in words: why something could not be written, and what to do."""

from __future__ import annotations

_READ_ONLY = ("readonly database", "Read-only file system", "unable to open database file")
"""What SQLite says on a file system that is mounted read-only, with WAL and without."""
_DAMAGED = ("not a database", "malformed", "disk image")
_HINTS = (
    *((word, "move it away and put a backup back (`testbed restore FILE`)") for word in _DAMAGED),
    ("permission denied", "give yourself the right to it, or choose another directory for runs (--runs-dir)"),
    ("locked", "another program writes to it: wait until that ends, or find it with `fuser`"),
    ("lock timeout", "another program writes to it: wait until that ends, or find it in pg_stat_activity"),
    *((word, "make it writable, or choose another directory for runs (--runs-dir)") for word in _READ_ONLY),
    ("connection", "start the server, or correct its address (--database)"),
    ("authentication", "correct user and password of the address (--database)"),
    ("btree_gist", "install PostgreSQL's contributed extensions, or let its administrator create btree_gist"),
)
_DISK = "free disk space, or choose another directory for runs (--runs-dir)"


def reason_of(error: BaseException) -> str:
    """Return what the database itself said, on one line."""
    return " ".join(str(getattr(error, "orig", None) or error).split())


def hint_for(error: BaseException) -> str:
    """Return what to do about an error of a database.

    >>> hint_for(OSError("database or disk is full"))
    'free disk space, or choose another directory for runs (--runs-dir)'
    >>> hint_for(OSError("attempt to write a readonly database"))
    'make it writable, or choose another directory for runs (--runs-dir)'
    >>> hint_for(OSError("file is not a database"))
    'move it away and put a backup back (`testbed restore FILE`)'
    """
    said = reason_of(error)
    return next((hint for word, hint in _HINTS if word.lower() in said.lower()), _DISK)
