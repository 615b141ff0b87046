"""Functions as machine code, with their signatures declared: nothing is compiled when a request comes.

Modules that use this are imported inside functions only: numba takes its time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from lightning.optional import needed

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(*signatures: str) -> Callable[[Function], Function]:
    """The function in machine code, for these signatures alone; without any, for whatever calls it from such code.

    It does not hold the interpreter's lock, and is kept on disk for the next process where there is a place for it.
    Raises `MissingLibrary` without numba.
    """
    numba = needed("numba", "for noise, and for answers at the pace of light")
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}

    def decorate(function: Function) -> Function:
        try:
            made = numba.njit(cache=True, **options)(function)
        except RuntimeError:  # no folder to keep it in
            made = numba.njit(**options)(function)
        else:
            _depend_on_all_sources(made)
        for signature in signatures:
            made.compile(signature)
        if signatures:
            made.disable_compile()
        return made  # type: ignore[no-any-return]

    return decorate


def _depend_on_all_sources(function: Any) -> None:
    """Translate anew when any module here changes: numba looks at the function's own file alone."""
    file = function._cache._cache_file  # noqa: SLF001 - numba has no public way
    file._source_stamp = (file._source_stamp, _STAMP)  # noqa: SLF001 - as above


_STAMP = tuple(
    (name, (path := Path(__file__).parent / name).stat().st_mtime_ns, path.stat().st_size)
    for name in ("chain_kernels.py", "kernels.py", "normal.py", "readout_kernels.py")
)
