"""Compilation where numba is installed: the same source runs either way, compiled or read by the interpreter.

Modules that use this are imported inside functions only, so that importing the model costs no compiler.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

try:
    from numba import njit
except ImportError:
    njit = None

AVAILABLE = njit is not None and os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
"""Whether functions marked `compiled` are machine code; numba's own variable says no where jobs are small."""


def compiled(function: Function) -> Function:
    """The function in machine code, translated at its first call and kept on disk; itself without numba."""
    if not AVAILABLE:
        return function
    try:
        fast: Any = njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # no folder to keep the translation in: every process translates anew
        return njit(error_model="numpy")(function)  # type: ignore[no-any-return]
    _depend_on_all_sources(fast)
    return fast  # type: ignore[no-any-return]


def _depend_on_all_sources(function: Any) -> None:
    """Translate anew when any module here changes.

    numba looks at the function's own file alone, and would keep a loop into which it has put another module's old text.
    """
    file = function._cache._cache_file  # noqa: SLF001 - numba has no public way
    file._source_stamp = (file._source_stamp, _STAMP)  # noqa: SLF001 - as above


_STAMP = tuple(
    (path.name, path.stat().st_mtime_ns, path.stat().st_size)
    for path in sorted(Path(__file__).parent.glob("*.py"))
)
