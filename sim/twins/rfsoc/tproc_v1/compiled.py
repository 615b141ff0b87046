"""Compilation of the inner machine, where numba is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from lightbed import compiled as machine_code

P = ParamSpec("P")
R = TypeVar("R")

COMPILED = machine_code.AVAILABLE


def compile_function(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function, compiled where numba is installed.

    It must allocate nothing: that frees it from counting references to its arrays at each call of a part of it,
    which would take six times as long as the work.
    """
    return machine_code.compile_function(function, error_model="python", _nrt=False)
