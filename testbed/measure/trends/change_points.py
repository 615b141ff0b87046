"""Changes of the level of a series, by a permutation test of its best segment. Pure; numpy only.

The statistic is the largest reduction of the sum of squares by giving one segment a mean of its own. A segment at an
end is a single change (Hinkley, "Inference about the change-point in a sequence of random variables", Biometrika 57,
1970), one in the middle a loss that was repaired (Olshen, Venkatraman, Lucito and Wigler, "Circular binary segmentation
for the analysis of array-based DNA copy number data", Biostatistics 5, 2004). Its distribution without a change is that
of the same values in random order (Antoch and Huskova, "Permutation tests in change point analysis", Statistics &
Probability Letters 53, 2001): no distribution of the values is assumed, only that their order means nothing. Further
changes are looked for inside the pieces.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MIN_SIDE = 2
"""Minimum number of values on each side of a split: a single one may be an outlier."""
MIN_VALUES = 6
"""Minimum length of a series: fewer values have too few orders for a test at the default rate."""
DEFAULT_RATE = 0.05
MAX_VALUES = 200
"""Maximum length of a series, of which only the newest values are tested: the work grows with its square."""
_CHUNK = 500
_MAX_PERMUTATIONS = 20_000
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
    """Return the changes of a series, in order; false alarms occur in at most a share `rate` of series without changes.

    >>> [point.index for point in change_points([10, 11, 10, 9, 10, 4, 5, 4, 5, 4])]
    [5]
    """
    series = np.asarray(values, float)
    if len(series) < MIN_VALUES:
        return ()
    skipped = max(0, len(series) - MAX_VALUES)
    points = _find_change_points(series[skipped:], rate, np.random.default_rng(seed), skipped)
    edges = [skipped, *(point.index for point in points), len(series)]
    means = [float(series[a:b].mean()) for a, b in pairwise(edges)]
    return tuple(replace(point, before=means[at], after=means[at + 1]) for at, point in enumerate(points))


def _find_change_points(
    series: Floats, rate: float, random: np.random.Generator, begin: int
) -> list[ChangePoint]:
    if len(series) < MIN_VALUES:
        return []
    gain, ends = find_best_segment(series)
    probability = _probability(series, gain, rate, random)
    if probability > rate:
        return []
    inner = [end for end in ends if 0 < end < len(series)]
    if len(inner) == 2:
        inner = [end for end in inner if _differs(series, inner, end, rate, random)] or [
            find_best_split(series)
        ]
    edges = [0, *inner, len(series)]
    points = [ChangePoint(begin + end, 0.0, 0.0, 1.0 - probability) for end in inner]
    for a, b in pairwise(edges):
        points += _find_change_points(series[a:b], rate, random, begin + a)
    return sorted(points, key=lambda point: point.index)


def find_best_segment(series: Floats) -> tuple[float, tuple[int, int]]:
    """Return the reduction of the sum of squares by the best segment with its own mean, and its start and end.

    >>> find_best_segment(np.array([1.0, 1.0, 5.0, 5.0, 5.0, 1.0, 1.0]))[1]
    (2, 5)
    """
    size, sums = len(series), _sums(series[None, :])
    best = (-1.0, (0, 0))
    for length in range(MIN_SIDE, size - MIN_SIDE + 1):
        gains, begins = _gains(sums, length)
        at = int(np.argmax(gains[0]))
        if gains[0, at] > best[0] * (1 + _TIE):
            best = float(gains[0, at]), (int(begins[at]), int(begins[at]) + length)
    return best


def find_best_split(series: Floats) -> int:
    """Return the index of the split with the best fit of two means.

    >>> find_best_split(np.array([1.0, 1.0, 1.0, 5.0, 5.0, 5.0]))
    3
    """
    counts = np.arange(MIN_SIDE, len(series) - MIN_SIDE + 1)
    sums = _sums(series[None, :])[0]
    return int(counts[np.argmax(sums[counts] ** 2 / (counts * (len(series) - counts)))])


def _sums(rows: Floats) -> Floats:
    """Return the cumulative sums of the deviations from the mean of each row, starting with 0."""
    sums = np.zeros((rows.shape[0], rows.shape[1] + 1))
    np.cumsum(rows - rows.mean(axis=1, keepdims=True), axis=1, out=sums[:, 1:])
    return sums


def _gains(sums: Floats, length: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return the reductions of each row by the segments of a length, and their starts: never one value from an end."""
    size = sums.shape[1] - 1
    every = np.arange(size - length + 1)
    begins = every[
        np.isin(every, (0, size - length)) | ((every >= MIN_SIDE) & (every <= size - length - MIN_SIDE))
    ]
    inside = sums[:, begins + length] - sums[:, begins]
    gains: Floats = inside**2 * size / (length * (size - length))
    return gains, begins


def _find_best_gains(rows: Floats) -> Floats:
    """Return the best reduction of each row."""
    sums, size = _sums(rows), rows.shape[1]
    lengths = range(MIN_SIDE, size - MIN_SIDE + 1)
    best: Floats = np.max([_gains(sums, length)[0].max(axis=1) for length in lengths], axis=0)
    return best


def _differs(series: Floats, ends: Sequence[int], end: int, rate: float, random: np.random.Generator) -> bool:
    """Return whether the pieces on both sides of an end of a segment differ, by a permutation test of their means."""
    begin = 0 if end == ends[0] else ends[0]
    stop = ends[1] if end == ends[0] else len(series)
    pieces, first = series[begin:stop], end - begin
    total = _permutations(rate)
    rows = random.permuted(np.broadcast_to(pieces, (total, len(pieces))), axis=1)
    least = abs(_sums(pieces[None, :])[0, first]) * (1 - _TIE)
    return float((np.abs(_sums(rows)[:, first]) >= least).sum() + 1) / (total + 1) <= rate


def _permutations(rate: float) -> int:
    return min(_MAX_PERMUTATIONS, math.ceil(20 / rate / _CHUNK) * _CHUNK)


def _probability(series: Floats, gain: float, rate: float, random: np.random.Generator) -> float:
    """Return the share of random orders with a segment as good, counting the given order as one of them.

    Returns 1 as soon as the share cannot fall below the rate any more.
    """
    scale = float(((series - series.mean()) ** 2).sum())
    if gain <= _TIE * max(scale, _TIE * float(series @ series)):
        return 1.0
    least, total, as_good = gain * (1 - _TIE), _permutations(rate), 1
    for _ in range(0, total, _CHUNK):
        rows = random.permuted(np.broadcast_to(series, (_CHUNK, len(series))), axis=1)
        as_good += int((_find_best_gains(rows) >= least).sum())
        if as_good > rate * (total + 1):
            return 1.0
    return as_good / (total + 1)
