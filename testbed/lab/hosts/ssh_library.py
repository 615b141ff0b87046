"""The import of asyncssh on a machine where no file can be written.

It looks for optional C libraries with `ctypes.util.find_library`, which asks the compiler by way of a temporary file
and fails where none can be made: on a disk that is full or read-only, where looking at a lab must work.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


def import_asyncssh() -> None:
    """Import asyncssh, without its optional libraries where they cannot be looked for."""
    if "asyncssh" not in sys.modules:
        with _libraries_left_out():
            import asyncssh  # noqa: F401 - takes longer than all the rest of a `plan`, which needs no host


@contextmanager
def _libraries_left_out() -> Iterator[None]:
    import ctypes.util

    find = ctypes.util.find_library

    def find_or_do_without(name: str) -> str | None:
        try:
            return find(name)
        except OSError:
            return None

    ctypes.util.find_library = find_or_do_without
    try:
        yield
    finally:
        ctypes.util.find_library = find
