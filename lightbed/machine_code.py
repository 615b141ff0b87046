"""The cache of machine code on disk: `lightbed/machine-code` in the user's cache folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

_MAX_UNUSED_DAYS = 30
"""Machine code unused for this long is removed when new code is cached."""


@cache
def compute_digest(source: Path) -> bytes:
    """Return a digest of a module, or of the names and contents of all modules in a folder."""
    files = sorted(source.glob("*.py")) if source.is_dir() else [source]
    digest_hash = hashlib.sha256()
    for path in files:
        text = path.read_bytes()
        digest_hash.update(f"{path.name} {len(text)} ".encode() + text)
    return digest_hash.digest()


@cache
def make_folder(name: str) -> Path:
    """Return the cache folder `name`. If it must be made, also remove folders unused for `_MAX_UNUSED_DAYS`.

    Raises `OSError` if the folder cannot be made.
    """
    cache_home = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    try:
        cache_root = Path(cache_home) if cache_home else Path.home() / ".cache"
    except RuntimeError as error:
        raise OSError(str(error)) from error
    folder = cache_root / "lightbed" / "machine-code" / name
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        oldest_s = time.time() - _MAX_UNUSED_DAYS * 86400
        for cache_folder in folder.parent.iterdir():
            with suppress(FileNotFoundError):  # another process may have removed it
                if cache_folder.stat().st_mtime < oldest_s:
                    shutil.rmtree(cache_folder, ignore_errors=True)
    os.utime(folder)
    return folder
