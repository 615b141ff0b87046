"""Machine code of `machine`, made by numba when it is installed and worth the seconds that it takes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

from sim.twins.rfsoc.tproc_v2 import arithmetic, branches, machine, registers, timing, transfers, units

MODULES = (arithmetic, units, timing, registers, branches, transfers, machine)

_SOURCES = tuple(Path(str(module.__file__)) for module in MODULES)
_ready: list[Callable[..., int]] = []


@cache
def executor() -> Callable[..., int] | None:
    """Return `machine.execute` for arrays of 64-bit integers, or None without numba.

    The functions of MODULES stay as they are: copies of them, each of which finds compiled copies under the names
    that it calls, are given to numba. It compiles on the first call.
    """
    from lightbed import compiled as machine_code  # here: numba takes its time

    if not machine_code.AVAILABLE:
        return None
    names: dict[str, Any] = {}
    for module in MODULES:
        names |= vars(module)
    for name, function in list(names.items()):
        if isinstance(function, FunctionType):
            copy = FunctionType(function.__code__, names, name)
            sources = _SOURCES if name == "execute" else ()
            names[name] = machine_code.compiled(copy, sources=sources, error_model="python")
    compiled: Callable[..., int] = names["execute"]
    _ready.append(compiled)
    return compiled


def ready() -> bool:
    """Return True if machine code is there already, so that even a short program may use it."""
    return bool(_ready)
