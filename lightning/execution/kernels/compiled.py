"""Functions as machine code, with their signatures declared: nothing is compiled when a request comes.

Modules that use this are imported inside functions only: numba takes its time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from lightbed import compiled as machine_code
from lightning.optional import require

Function = TypeVar("Function", bound=Callable[..., Any])


def compile_kernel(*signatures: str) -> Callable[[Function], Function]:
    """Return a decorator: the function in machine code, for these signatures alone; without any, for its callers'.

    It does not hold the interpreter's lock. Raises `MissingLibrary` without numba.
    """
    require("numba", "for noise, and for answers at the pace of light")

    def decorate(function: Function) -> Function:
        folders = {Path(function.__code__.co_filename).parent, Path(__file__).parent}
        return machine_code.compile_function(
            function, signatures=signatures, sources=sorted(folders), nogil=True
        )

    return decorate
