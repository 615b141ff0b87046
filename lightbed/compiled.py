"""Functions that numba compiles if it is installed; otherwise they run in Python.

Import modules that use this only inside functions, because importing numba is slow.

Machine code is cached on disk (`lightbed.machine_code`) under a digest of its sources, so that another checkout of the
same sources, or a new environment, reuses it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from lightbed.machine_code import digest_of, make_folder

Function = TypeVar("Function", bound=Callable[..., Any])

try:
    import numba
except ImportError:
    AVAILABLE = False
else:
    AVAILABLE = os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
"""True if functions run as machine code. `NUMBA_DISABLE_JIT=1` turns compilation off, which pays for short jobs."""


def compile_function(
    function: Function,
    *,
    signatures: Sequence[str] = (),
    sources: Sequence[Path] | None = None,
    **options: Any,
) -> Function:
    """Return the function compiled with these options of numba, or the function itself without numba.

    numba compiles the function at its first call, or now for `signatures`. Machine code is cached on disk, if there is
    a folder for it, until one of `sources` changes. `sources` are modules or folders of modules, by default the folder
    of the function; with empty `sources` nothing is cached.
    """
    if not AVAILABLE or numba.config.DISABLE_JIT:
        return function
    options = {"error_model": "numpy", **options}
    kept = None if sources is not None and not sources else _cache_on_disk(function, sources, options)
    made = kept or numba.njit(**options)(function)
    for signature in signatures:
        made.compile(signature)
    if signatures:
        made.disable_compile()
    return made  # type: ignore[no-any-return]


def is_kept(function: Any) -> bool:
    """Return True if machine code of a compiled function is on disk, or if numba cannot tell."""
    file: Any = getattr(getattr(function, "_cache", None), "_cache_file", None)
    load = getattr(file, "_load_index", None)
    return load is None or bool(load())


def _cache_on_disk(function: Any, sources: Sequence[Path] | None, options: dict[str, Any]) -> Any:
    """Return the compiled function with a cache on disk, or None if it cannot have one.

    numba compares only the time of the function's own file, and has no public way to name more sources. If numba's
    internals have changed, nothing is cached, because a stale cache would be worse.
    """
    own = Path(function.__code__.co_filename)
    files = [own.parent] if sources is None else list(sources)
    key = hashlib.sha256(repr((function.__module__, sorted(options.items()), numba.__version__)).encode())
    try:
        for digest in (*map(digest_of, files), digest_of(own), digest_of(Path(__file__))):
            key.update(digest)
        made = numba.njit(cache=True, **options)(function)
        folder = make_folder(f"{own.stem}-{key.hexdigest()[:24]}")
        kept = made._cache  # noqa: SLF001
        kept._impl.locator.get_cache_path = lambda: str(folder)  # noqa: SLF001
        kept._cache_path = str(folder)  # noqa: SLF001
        kept._cache_file = type(kept._cache_file)(str(folder), kept._impl.filename_base, key.hexdigest())  # noqa: SLF001
    except (RuntimeError, OSError, AttributeError, TypeError):
        return None
    return made
