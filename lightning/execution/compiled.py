"""Functions as machine code, with their signatures declared: nothing is compiled when a request comes.

Modules that use this are imported inside functions only: numba takes its time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
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
        made = _kept(numba, function, options) or numba.njit(**options)(function)
        if not numba.config.DISABLE_JIT:
            _translate(made, signatures)
        return made  # type: ignore[no-any-return]

    return decorate


def _kept(numba: Any, function: Any, options: dict[str, Any]) -> Any:
    """The function with a place on disk, translated anew when any module beside it or here changes.

    numba looks at the function's own file alone, and has no public way to say more. None where there is no folder, or
    where numba has changed inside: then nothing is kept, rather than what may be old.
    """
    try:
        made = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        return None
    file: Any = getattr(getattr(made, "_cache", None), "_cache_file", None)
    if not hasattr(file, "_source_stamp"):
        return None
    beside = Path(function.__code__.co_filename).parent
    file._source_stamp = (file._source_stamp, _stamp(beside), _stamp(Path(__file__).parent))  # noqa: SLF001
    return made


def _translate(function: Any, signatures: tuple[str, ...]) -> None:
    for signature in signatures:
        function.compile(signature)
    if signatures:
        function.disable_compile()


@cache
def _stamp(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """When the sources in a folder were written, and how long they are."""
    found = ((path.name, path.stat()) for path in sorted(folder.glob("*.py")))
    return tuple((name, status.st_mtime_ns, status.st_size) for name, status in found)
