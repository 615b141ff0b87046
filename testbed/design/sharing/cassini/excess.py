"""Demand above a link's rate when a job is added to others, for every shift of it."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LARGEST_MATRIX = 40_000
"""Entries up to which every shift is written out; above, correlation by FFT is faster."""


def excess_of_shifts(others: Floats, demand: Floats, shifts: int, capacity: float) -> Floats:
    """Return the total excess of `others` and `demand` so many ticks later, for each of `shifts` ticks from 0."""
    if shifts * others.size <= LARGEST_MATRIX:
        return excess_by_matrix(others, demand[places(others.size, shifts)], capacity)
    return excess_by_correlation(others, demand, capacity)[:shifts]


def excess_by_matrix(others: Floats, shifted: Floats, capacity: float) -> Floats:
    """Return the excess for each row of `shifted`, (shifts, ticks)."""
    total = shifted + (others - capacity)
    np.maximum(total, 0.0, out=total)
    found: Floats = total.sum(axis=1)
    return found


def excess_by_correlation(others: Floats, demand: Floats, capacity: float) -> Floats:
    """Return the excess for every shift; exact where demands are whole numbers, for results are rounded to such.

    For each level v of the others: where they have it, correlated with what the job adds to v above the capacity.
    """
    size = others.size
    transformed = np.zeros(size // 2 + 1, complex)
    for level in np.unique(others):
        above = np.maximum(level + demand - capacity, 0.0)
        if above.any():
            transformed += np.fft.rfft(others == level) * np.conj(np.fft.rfft(above))
    found: Floats = np.rint(np.fft.irfft(transformed, size))
    return found


@lru_cache(maxsize=64)
def places(size: int, shifts: int) -> NDArray[np.int64]:
    """Return the index of each tick's demand in the pattern before it was shifted, (shifts, ticks)."""
    return (np.arange(size)[None, :] - np.arange(shifts)[:, None]) % size
