"""Laws of noise for machine code: their numbers, and the variance. `sums` compiles them; this module needs no numba.

`coefficients` are those of `Noise`, lowest power of the light first. A higher power needs `HIGHEST_POWER` and a line in
each function.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

HIGHEST_POWER = 2
"""Highest power of a readout's level in its variance."""


class NoiseLaw(IntEnum):
    """Dependence of a sum's noise on the light."""

    WITHOUT = 0
    CONSTANT = 1
    VARYING = 2
    PER_OUTPUT = 3


def variance(coefficients: Any, level: Any) -> Any:
    """Return the variance of a readout at this level."""
    return coefficients[0] + coefficients[1] * level + coefficients[2] * level * level


def add_light(light: Any, row: Any, level: Any) -> None:
    """Add the powers of a readout's level to those of its row; `light` (powers from 1, rows)."""
    light[0, row] += level
    light[1, row] += level * level


def growth(coefficients: Any, light: Any) -> Any:
    """Return the variance that light adds, from the sums of the powers of all readouts (powers from 1, ...)."""
    return coefficients[1] * light[0] + coefficients[2] * light[1]
