"""The folder of machine code that outlives its process: `lightbed/machine-code` of the user's cache folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

_UNUSED_DAYS = 30
"""Translations that nobody has used for so long are removed when new ones are made."""


@cache
def digest_of(source: Path) -> bytes:
    """Return a digest of a module, or of the names and texts of each module of a folder."""
    files = sorted(source.glob("*.py")) if source.is_dir() else [source]
    parts = hashlib.sha256()
    for path in files:
        text = path.read_bytes()
        parts.update(f"{path.name} {len(text)} ".encode() + text)
    return parts.digest()


@cache
def make_folder(name: str) -> Path:
    """Make the folder of translations from the same sources, and remove those that are long unused.

    Raises `OSError` where there is no place for it.
    """
    named = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    try:
        home = Path(named) if named else Path.home() / ".cache"
    except RuntimeError as error:
        raise OSError(str(error)) from error
    folder = home / "lightbed" / "machine-code" / name
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        oldest_s = time.time() - _UNUSED_DAYS * 86400
        for other in folder.parent.iterdir():
            with suppress(FileNotFoundError):  # another process removes them too
                if other.stat().st_mtime < oldest_s:
                    shutil.rmtree(other, ignore_errors=True)
    os.utime(folder)
    return folder
