"""Functions that numba compiles if it is installed; otherwise they run in Python.

Import a module that uses this module inside functions only, because importing numba is slow.

Machine code is cached on disk (`lightbed.machine_code`) under a digest of its sources, so that another checkout of the
same sources, or a new environment, reuses it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from lightbed.machine_code import compute_digest, make_folder

Function = TypeVar("Function", bound=Callable[..., Any])

try:
    import numba
except ImportError:
    IS_AVAILABLE = False
else:
    IS_AVAILABLE = os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
"""True if functions run as machine code. `NUMBA_DISABLE_JIT=1` turns compilation off, which pays for short jobs."""


def compile_function(
    function: Function,
    *,
    signatures: Sequence[str] = (),
    sources: Sequence[Path] | None = None,
    **options: Any,
) -> Function:
    """Return the function compiled with these options of numba, or the function itself without numba.

    numba compiles the function at its first call or, if `signatures` are given, now. Machine code is cached on disk, if
    there is a folder for it, until one of `sources` changes. `sources` are modules or folders of modules, by default
    the folder of the function; with empty `sources` nothing is cached.
    """
    if not IS_AVAILABLE or numba.config.DISABLE_JIT:
        return function
    options = {"error_model": "numpy", **options}
    cached_function = (
        None if sources is not None and not sources else _cache_on_disk(function, sources, options)
    )
    compiled_function = cached_function or numba.njit(**options)(function)
    for signature in signatures:
        compiled_function.compile(signature)
    if signatures:
        compiled_function.disable_compile()
    return compiled_function  # type: ignore[no-any-return]


def is_cached_on_disk(function: Any) -> bool:
    """Return True if machine code of a compiled function is on disk, or if numba cannot tell."""
    file: Any = getattr(getattr(function, "_cache", None), "_cache_file", None)
    load_index = getattr(file, "_load_index", None)
    return load_index is None or bool(load_index())


def _cache_on_disk(function: Any, sources: Sequence[Path] | None, options: dict[str, Any]) -> Any:
    """Return the compiled function with a cache on disk, or None if it cannot have one.

    numba compares only the modification time of the function's own file, and has no public way to name more sources. If
    numba's internals have changed, nothing is cached, because a stale cache would be worse.
    """
    source_file = Path(function.__code__.co_filename)
    files = [source_file.parent] if sources is None else list(sources)
    key_hash = hashlib.sha256(
        repr((function.__module__, sorted(options.items()), numba.__version__)).encode()
    )
    try:
        for digest in map(compute_digest, (*files, source_file, Path(__file__))):
            key_hash.update(digest)
        compiled_function = numba.njit(cache=True, **options)(function)
        folder = make_folder(f"{source_file.stem}-{key_hash.hexdigest()[:24]}")
        cache = compiled_function._cache  # noqa: SLF001
        cache._impl.locator.get_cache_path = lambda: str(folder)  # noqa: SLF001
        cache._cache_path = str(folder)  # noqa: SLF001
        cache_file_type = type(cache._cache_file)  # noqa: SLF001
        cache._cache_file = cache_file_type(str(folder), cache._impl.filename_base, key_hash.hexdigest())  # noqa: SLF001
    except (RuntimeError, OSError, AttributeError, TypeError):
        return None
    return compiled_function
