"""Functions as machine code where numba is installed, and as they stand where it is not."""

from __future__ import annotations

from collections.abc import Callable
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


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """The function, compiled at its first call and kept on disk for the next process, if that can be.

    It must allocate nothing: that frees it from counting references to its arrays at each call of a part of it,
    which would take six times as long as the work.
    """
    if not COMPILED:
        return function
    try:
        made: Any = numba.njit(function, cache=True, _nrt=False)
    except RuntimeError:  # no folder to keep it in
        made = numba.njit(function, _nrt=False)
    return cast("Callable[P, R]", made)
