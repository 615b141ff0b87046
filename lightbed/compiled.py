"""Functions in machine code where numba is installed, and as they stand where it is not.

Import modules that use this inside functions only: numba takes its time.

Translations are kept in `lightbed/machine-code` of the user's cache folder, under a digest of what they were made from:
another checkout of the same sources, or a new environment, finds them there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

try:
    import numba
except ImportError:
    AVAILABLE = False
else:
    AVAILABLE = os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
"""True where functions run as machine code. numba's own variable says no where jobs are small."""

_UNUSED_DAYS = 30
"""Translations that nobody has used for so long are removed when new ones are made."""


def compiled(
    function: Function,
    *,
    signatures: Sequence[str] = (),
    sources: Sequence[Path] | None = None,
    **options: Any,
) -> Function:
    """Return the function in machine code, with these options of numba; itself where numba is not installed.

    It is translated at its first call, or now for `signatures`, if there are any. Translations are kept on disk for
    the next process, where there is a folder for them, until one of `sources` changes: modules, or folders of them, by
    default the folder of the function. With empty `sources` nothing is kept.
    """
    if not AVAILABLE or numba.config.DISABLE_JIT:
        return function
    options = {"error_model": "numpy", **options}
    kept = None if sources is not None and not sources else _keep(function, sources, options)
    made = kept or numba.njit(**options)(function)
    for signature in signatures:
        made.compile(signature)
    if signatures:
        made.disable_compile()
    return made  # type: ignore[no-any-return]


def is_kept(function: Any) -> bool:
    """Return True if a translation of a compiled function is on disk; also where numba cannot tell."""
    file: Any = getattr(getattr(function, "_cache", None), "_cache_file", None)
    load = getattr(file, "_load_index", None)
    return load is None or bool(load())


def _keep(function: Any, sources: Sequence[Path] | None, options: dict[str, Any]) -> Any:
    """Return the function with a place on disk; None where there is no folder for it.

    numba looks at the function's own file alone, by its time, and has no public way to say more. Where numba has
    changed inside, nothing is kept, rather than what may be old.
    """
    own = Path(function.__code__.co_filename)
    files = [own.parent] if sources is None else list(sources)
    key = hashlib.sha256(repr((function.__module__, sorted(options.items()), numba.__version__)).encode())
    for digest in (*map(_digest, files), _digest(own), _digest(Path(__file__))):
        key.update(digest)
    try:
        made = numba.njit(cache=True, **options)(function)
        folder = _make_folder(f"{own.stem}-{key.hexdigest()[:24]}")
        kept = made._cache  # noqa: SLF001
        kept._impl.locator.get_cache_path = lambda: str(folder)  # noqa: SLF001
        kept._cache_path = str(folder)  # noqa: SLF001
        kept._cache_file = type(kept._cache_file)(str(folder), kept._impl.filename_base, key.hexdigest())  # noqa: SLF001
    except (RuntimeError, OSError, AttributeError, TypeError):
        return None
    return made


@cache
def _digest(source: Path) -> bytes:
    """Return a digest of a module, or of the names and texts of each module of a folder."""
    files = sorted(source.glob("*.py")) if source.is_dir() else [source]
    parts = hashlib.sha256()
    for path in files:
        text = path.read_bytes()
        parts.update(f"{path.name} {len(text)} ".encode() + text)
    return parts.digest()


@cache
def _make_folder(name: str) -> Path:
    """Make the folder of translations from the same sources, and remove those that are long unused."""
    home = Path(
        os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    )
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
