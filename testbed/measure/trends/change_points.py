"""Changes of the level of a series, by a permutation test of the best split. Pure; numpy only.

The statistic is the largest reduction of the sum of squares by two means in place of one, over all splits (Hinkley,
"Inference about the change-point in a sequence of random variables", Biometrika 57, 1970). Its distribution without a
change is that of the same values in random order (Antoch and Huskova, "Permutation tests in change point analysis",
Statistics & Probability Letters 53, 2001): no distribution of the values is assumed, only that their order means
nothing. Further changes are looked for on both sides of one that was found (Vostrikova, "Detecting disorder in
multidimensional random processes", Soviet Mathematics Doklady 24, 1981).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_SIDE = 2
"""Values on each side of a split: a single one may be an outlier."""
LEAST_VALUES = 6
"""Fewer values have too few orders for a test at the default rate."""
DEFAULT_RATE = 0.05
_CHUNK = 500
_MOST_PERMUTATIONS = 50_000
_TIE = 1e-9


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """A change of level: `index` is the first value of the new level; `before` and `after` are means.

    `confidence` is 1 less the probability that values in random order split as well.
    """

    index: int
    before: float
    after: float
    confidence: float


def change_points(
    values: Sequence[float], *, rate: float = DEFAULT_RATE, seed: int = 0
) -> tuple[ChangePoint, ...]:
    """Return the changes of a series, in order; of a series without any, in a share of `rate` at most.

    >>> [point.index for point in change_points([10, 11, 10, 9, 10, 4, 5, 4, 5, 4])]
    [5]
    """
    series = np.asarray(values, float)
    if len(series) < LEAST_VALUES:
        return ()
    found = _found(series, rate, np.random.default_rng(seed), 0)
    edges = [0, *(point.index for point in found), len(series)]
    means = [float(series[a:b].mean()) for a, b in pairwise(edges)]
    return tuple(replace(point, before=means[at], after=means[at + 1]) for at, point in enumerate(found))


def _found(series: Floats, rate: float, random: np.random.Generator, begin: int) -> list[ChangePoint]:
    if len(series) < LEAST_VALUES:
        return []
    split, gain = best_split(series)
    probability = _probability(series, gain, rate, random)
    if probability > rate:
        return []
    here = ChangePoint(begin + split, 0.0, 0.0, 1.0 - probability)
    return [
        *_found(series[:split], rate, random, begin),
        here,
        *_found(series[split:], rate, random, begin + split),
    ]


def best_split(series: Floats) -> tuple[int, float]:
    """Return where two means fit best, and by how much they reduce the sum of squares.

    >>> best_split(np.array([1.0, 1.0, 1.0, 5.0, 5.0, 5.0]))
    (3, 24.0)
    """
    gains = _gains(series[None, :])[0]
    best = int(np.argmax(gains))
    return best + LEAST_SIDE, float(gains[best])


def _gains(rows: Floats) -> Floats:
    """Return the reduction of the sum of squares by each split, row by row."""
    size = rows.shape[1]
    centred = rows - rows.mean(axis=1, keepdims=True)
    counts = np.arange(LEAST_SIDE, size - LEAST_SIDE + 1)
    sums: Floats = np.cumsum(centred, axis=1)[:, counts - 1]
    gains: Floats = sums**2 * size / (counts * (size - counts))
    return gains


def _probability(series: Floats, gain: float, rate: float, random: np.random.Generator) -> float:
    """Return the share of random orders that split as well, the order at hand counted as one of them.

    Ends early where the share cannot come below the rate any more.
    """
    scale = float(((series - series.mean()) ** 2).sum())
    if gain <= _TIE * max(scale, _TIE * float(series @ series)):
        return 1.0
    least = gain * (1 - _TIE)
    total = min(_MOST_PERMUTATIONS, math.ceil(20 / rate / _CHUNK) * _CHUNK)
    as_good = 1
    for _ in range(0, total, _CHUNK):
        rows = random.permuted(np.broadcast_to(series, (_CHUNK, len(series))), axis=1)
        as_good += int((_gains(rows).max(axis=1) >= least).sum())
        if as_good > rate * (total + 1):
            return 1.0
    return as_good / (total + 1)
