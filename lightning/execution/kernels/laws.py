"""Laws of noise: their numbers, and the variance. This module needs no numba; `sums` compiles its functions.

`coefficients` are those of `Noise`, lowest power of the light first. To support a higher power, raise `HIGHEST_POWER`
and add a term to each function.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

HIGHEST_POWER = 2
"""Highest power of a readout's level in its variance."""


class NoiseLaw(IntEnum):
    """Dependence of a sum's noise on the light."""

    NO_NOISE = 0
    CONSTANT = 1
    VARYING = 2
    PER_OUTPUT = 3


def compute_variance(coefficients: Any, level: Any) -> Any:
    """Return the variance of a readout at this level."""
    return coefficients[0] + coefficients[1] * level + coefficients[2] * level * level


def add_light(light_powers: Any, row: Any, level: Any) -> None:
    """Add the powers of a readout's level to its row of `light_powers` (powers from 1, rows)."""
    light_powers[0, row] += level
    light_powers[1, row] += level * level


def compute_light_variance(coefficients: Any, light_powers: Any) -> Any:
    """Return the variance that light adds. `light_powers` (powers from 1, ...) holds sums of powers of the levels."""
    return coefficients[1] * light_powers[0] + coefficients[2] * light_powers[1]
