"""Functions as machine code where numba is installed, and as they stand where it is not.

Modules that use this are imported inside functions only: numba takes its time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")

try:
    import numba
except ImportError:
    COMPILED = False
else:
    COMPILED = True
"""Whether functions run compiled; without numba they are some fifty times slower."""


def compiled(
    function: Callable[P, R], *, sources: Sequence[Path] | None = None, **options: Any
) -> Callable[P, R]:
    """The function, compiled at its first call by numba with these options; as it stands without numba.

    It is kept on disk for the next process, if that can be: an installation that its user cannot write to, in an
    account without a home, has no place for it, and every process compiles anew. `sources` are the files whose change
    makes it stale, where its own is not all; with none of them it is not kept.
    """
    if not COMPILED:
        return function
    if sources is not None and not sources:
        return cast("Callable[P, R]", numba.njit(function, **options))
    try:
        made: Any = numba.njit(function, cache=True, **options)
    except RuntimeError:  # no folder to keep it in
        return cast("Callable[P, R]", numba.njit(function, **options))
    if sources:
        file = made._cache._cache_file  # noqa: SLF001 - numba has no public way
        file._source_stamp = (file._source_stamp, _stamp(sources))  # noqa: SLF001 - as above
    return cast("Callable[P, R]", made)


def _stamp(sources: Sequence[Path]) -> tuple[tuple[str, int, int], ...]:
    return tuple((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in sources)
