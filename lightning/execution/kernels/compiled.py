"""Compilation of functions at import, for declared signatures, so that no request waits for it.

Import modules that use this only inside functions, because numba is slow to import.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from lightbed import compiled as machine_code
from lightning.optional import require

Function = TypeVar("Function", bound=Callable[..., Any])


def compile_kernel(*signatures: str) -> Callable[[Function], Function]:
    """Return a decorator that compiles a function for these signatures, or else for the types of its callers.

    The function releases the GIL. Raise `MissingLibrary` without numba.
    """
    require("numba", "for noise, and for answers at the pace of light")

    def decorate(function: Function) -> Function:
        folders = {Path(function.__code__.co_filename).parent, Path(__file__).parent}
        return machine_code.compile_function(
            function, signatures=signatures, sources=sorted(folders), nogil=True
        )

    return decorate
