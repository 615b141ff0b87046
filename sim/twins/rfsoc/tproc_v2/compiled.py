"""Compilation of `machine` by numba, if numba is installed and the run is long enough to justify the compile time."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

from sim.twins.rfsoc.tproc_v2 import machine

_compiled_executors: list[Callable[..., int]] = []


@cache
def get_executor() -> Callable[..., int] | None:
    """Return `machine.execute` for arrays of 64-bit integers, or None without numba.

    The functions of `machine` stay unchanged. Numba compiles copies of them, which call each other by name. It compiles
    on the first call.
    """
    from lightbed import compiled as machine_code  # imported here because importing numba is slow

    if not machine_code.IS_AVAILABLE:
        return None
    namespace: dict[str, Any] = dict(vars(machine))
    for name, function in list(namespace.items()):
        if isinstance(function, FunctionType):
            copy = FunctionType(function.__code__, namespace, name)
            sources = (Path(str(machine.__file__)),) if name == "execute" else ()
            namespace[name] = machine_code.compile_function(copy, sources=sources, error_model="python")
    compiled: Callable[..., int] = namespace["execute"]
    _compiled_executors.append(compiled)
    return compiled


def is_ready() -> bool:
    """Return True if compiled code exists already. Even a short program should then use it."""
    return bool(_compiled_executors)
