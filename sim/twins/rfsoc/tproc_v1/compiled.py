"""Compilation of the inner machine, if numba is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from lightbed import compiled as machine_code

P = ParamSpec("P")
R = TypeVar("R")

IS_COMPILED = machine_code.IS_AVAILABLE


def compile_function(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function, compiled if numba is installed.

    The function must not allocate memory, because it is compiled without reference counting of arrays. Reference
    counting would take six times as long as the work itself.
    """
    return machine_code.compile_function(function, error_model="python", _nrt=False)
