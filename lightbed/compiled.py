"""Functions in machine code where numba is installed, and as they stand where it is not.

Import modules that use this inside functions only: numba takes its time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
Stamp = tuple[tuple[str, int, int], ...]

try:
    import numba
except ImportError:
    AVAILABLE = False
else:
    AVAILABLE = os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
"""True where functions run as machine code. numba's own variable says no where jobs are small."""


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
    kept = None if sources is not None and not sources else _kept(function, sources, options)
    made = kept or numba.njit(**options)(function)
    for signature in signatures:
        made.compile(signature)
    if signatures:
        made.disable_compile()
    return made  # type: ignore[no-any-return]


def _kept(function: Any, sources: Sequence[Path] | None, options: dict[str, Any]) -> Any:
    """Return the function with a place on disk; None where there is no folder for it.

    numba looks at the function's own file alone, and has no public way to say more. Where numba has changed inside,
    nothing is kept, rather than what may be old.
    """
    try:
        made = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        return None
    file: Any = getattr(getattr(made, "_cache", None), "_cache_file", None)
    if not hasattr(file, "_source_stamp"):
        return None
    sources = [Path(function.__code__.co_filename).parent] if sources is None else sources
    file._source_stamp = (file._source_stamp, *map(_stamp, sources), _stamp(Path(__file__)))  # noqa: SLF001
    return made


def is_kept(function: Any) -> bool:
    """Return True if a translation of a compiled function is on disk; also where numba cannot tell."""
    file: Any = getattr(getattr(function, "_cache", None), "_cache_file", None)
    load = getattr(file, "_load_index", None)
    return load is None or bool(load())


@cache
def _stamp(source: Path) -> Stamp:
    """Return when a module, or each module of a folder, was written, and how long it is."""
    files = sorted(source.glob("*.py")) if source.is_dir() else [source]
    found = ((path.name, path.stat()) for path in files)
    return tuple((name, status.st_mtime_ns, status.st_size) for name, status in found)
