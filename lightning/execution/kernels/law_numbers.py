"""Laws of noise, by the numbers that machine code knows. Needs no numba."""

from __future__ import annotations

from enum import IntEnum


class NoiseLaw(IntEnum):
    """Dependence of a sum's noise on the light."""

    WITHOUT = 0
    CONSTANT = 1
    VARYING = 2
    PER_OUTPUT = 3
