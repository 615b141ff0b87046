"""Change points of a series, by a permutation test of its best segment.

Give one segment of the series its own mean. The statistic is the largest reduction of the sum of squares that such a
segment reaches. A segment at an end is a single change (Hinkley, "Inference about the change-point in a sequence of
random variables", Biometrika 57, 1970). A segment in the middle is a loss that was repaired (Olshen, Venkatraman,
Lucito and Wigler, "Circular binary segmentation for the analysis of array-based DNA copy number data", Biostatistics
5, 2004).

Random permutations of the values give the distribution of the statistic without a change (Antoch and Huskova,
"Permutation tests in change point analysis", Statistics & Probability Letters 53, 2001). So the test assumes no
distribution of the values. The search then continues inside each piece.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MIN_SIDE_LENGTH = 2
"""Minimum number of values on each side of a split: a single value may be an outlier."""
MIN_SERIES_LENGTH = 6
"""Minimum length of a series: fewer values have too few permutations for a test at the default rate."""
DEFAULT_FALSE_ALARM_RATE = 0.05
MAX_SERIES_LENGTH = 200
"""Maximum number of values that are tested; the newest values are taken. Work grows with the square of this number."""
_CHUNK_PERMUTATIONS = 500
_MAX_PERMUTATIONS = 20_000
_TIE_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """A change of level. `index` is the first value of the new level, `before` and `after` are mean levels.

    `confidence` is 1 minus the probability that values in random order split equally well.
    """

    index: int
    before: float
    after: float
    confidence: float


def find_change_points(
    values: Sequence[float], *, false_alarm_rate: float = DEFAULT_FALSE_ALARM_RATE, seed: int = 0
) -> tuple[ChangePoint, ...]:
    """Return the changes of a series, in order.

    At most a fraction `false_alarm_rate` of the series without changes gives an alarm.

    >>> [point.index for point in find_change_points([10, 11, 10, 9, 10, 4, 5, 4, 5, 4])]
    [5]
    """
    series = np.asarray(values, float)
    if len(series) < MIN_SERIES_LENGTH:
        return ()
    skipped_count = max(0, len(series) - MAX_SERIES_LENGTH)
    points = _find_change_points(
        series[skipped_count:], false_alarm_rate, np.random.default_rng(seed), skipped_count
    )
    edges = [skipped_count, *(point.index for point in points), len(series)]
    means = [float(series[start:end].mean()) for start, end in pairwise(edges)]
    return tuple(
        replace(point, before=means[position], after=means[position + 1])
        for position, point in enumerate(points)
    )


def _find_change_points(
    series: Floats, false_alarm_rate: float, random: np.random.Generator, offset: int
) -> list[ChangePoint]:
    if len(series) < MIN_SERIES_LENGTH:
        return []
    gain, segment = find_best_segment(series)
    probability = _estimate_probability(series, gain, false_alarm_rate, random)
    if probability > false_alarm_rate:
        return []
    splits = [end for end in segment if 0 < end < len(series)]
    if len(splits) == 2:
        splits = [end for end in splits if _has_two_means(series, splits, end, false_alarm_rate, random)] or [
            find_best_split(series)
        ]
    edges = [0, *splits, len(series)]
    points = [ChangePoint(offset + end, 0.0, 0.0, 1.0 - probability) for end in splits]
    for start, end in pairwise(edges):
        points += _find_change_points(series[start:end], false_alarm_rate, random, offset + start)
    return sorted(points, key=lambda point: point.index)


def find_best_segment(series: Floats) -> tuple[float, tuple[int, int]]:
    """Return the reduction of the sum of squares by the best segment with its own mean, and its start and end.

    >>> find_best_segment(np.array([1.0, 1.0, 5.0, 5.0, 5.0, 1.0, 1.0]))[1]
    (2, 5)
    """
    series_length, cumulative_sums = len(series), _compute_cumulative_sums(series[None, :])
    best_segment = (-1.0, (0, 0))
    for segment_length in range(MIN_SIDE_LENGTH, series_length - MIN_SIDE_LENGTH + 1):
        gains, starts = _compute_gains(cumulative_sums, segment_length)
        position = int(np.argmax(gains[0]))
        if gains[0, position] > best_segment[0] * (1 + _TIE_TOLERANCE):
            best_segment = (
                float(gains[0, position]),
                (int(starts[position]), int(starts[position]) + segment_length),
            )
    return best_segment


def find_best_split(series: Floats) -> int:
    """Return the index of the split with the best fit of two means.

    >>> find_best_split(np.array([1.0, 1.0, 1.0, 5.0, 5.0, 5.0]))
    3
    """
    left_lengths = np.arange(MIN_SIDE_LENGTH, len(series) - MIN_SIDE_LENGTH + 1)
    cumulative_sums = _compute_cumulative_sums(series[None, :])[0]
    return int(
        left_lengths[
            np.argmax(cumulative_sums[left_lengths] ** 2 / (left_lengths * (len(series) - left_lengths)))
        ]
    )


def _compute_cumulative_sums(rows: Floats) -> Floats:
    """Return the cumulative sums of the deviations from the mean of each row, starting with 0."""
    sums = np.zeros((rows.shape[0], rows.shape[1] + 1))
    np.cumsum(rows - rows.mean(axis=1, keepdims=True), axis=1, out=sums[:, 1:])
    return sums


def _compute_gains(cumulative_sums: Floats, segment_length: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return for each row the reductions of the sum of squares by all segments of a length, and their starts.

    Segments that leave a single value at an end are excluded.
    """
    series_length = cumulative_sums.shape[1] - 1
    all_starts = np.arange(series_length - segment_length + 1)
    starts = all_starts[
        np.isin(all_starts, (0, series_length - segment_length))
        | ((all_starts >= MIN_SIDE_LENGTH) & (all_starts <= series_length - segment_length - MIN_SIDE_LENGTH))
    ]
    segment_sums = cumulative_sums[:, starts + segment_length] - cumulative_sums[:, starts]
    gains: Floats = segment_sums**2 * series_length / (segment_length * (series_length - segment_length))
    return gains, starts


def _find_best_gains(rows: Floats) -> Floats:
    """Return the largest reduction of the sum of squares for each row."""
    cumulative_sums, series_length = _compute_cumulative_sums(rows), rows.shape[1]
    lengths = range(MIN_SIDE_LENGTH, series_length - MIN_SIDE_LENGTH + 1)
    best_gains: Floats = np.max(
        [_compute_gains(cumulative_sums, length)[0].max(axis=1) for length in lengths], axis=0
    )
    return best_gains


def _has_two_means(
    series: Floats, splits: Sequence[int], split: int, false_alarm_rate: float, random: np.random.Generator
) -> bool:
    """Return whether the pieces on both sides of `split` differ, by a permutation test of their means."""
    start = 0 if split == splits[0] else splits[0]
    stop = splits[1] if split == splits[0] else len(series)
    segment, left_length = series[start:stop], split - start
    permutation_count = _count_permutations(false_alarm_rate)
    permutations = random.permuted(np.broadcast_to(segment, (permutation_count, len(segment))), axis=1)
    threshold = abs(_compute_cumulative_sums(segment[None, :])[0, left_length]) * (1 - _TIE_TOLERANCE)
    return (
        float((np.abs(_compute_cumulative_sums(permutations)[:, left_length]) >= threshold).sum() + 1)
        / (permutation_count + 1)
        <= false_alarm_rate
    )


def _count_permutations(false_alarm_rate: float) -> int:
    return min(
        _MAX_PERMUTATIONS, math.ceil(20 / false_alarm_rate / _CHUNK_PERMUTATIONS) * _CHUNK_PERMUTATIONS
    )


def _estimate_probability(
    series: Floats, gain: float, false_alarm_rate: float, random: np.random.Generator
) -> float:
    """Return the fraction of random orders whose best segment gains at least `gain`, counting the given order too.

    Return 1 as soon as the fraction can no longer fall below the rate.
    """
    square_sum = float(((series - series.mean()) ** 2).sum())
    if gain <= _TIE_TOLERANCE * max(square_sum, _TIE_TOLERANCE * float(series @ series)):
        return 1.0
    threshold, permutation_count, as_good_count = (
        gain * (1 - _TIE_TOLERANCE),
        _count_permutations(false_alarm_rate),
        1,
    )
    for _ in range(0, permutation_count, _CHUNK_PERMUTATIONS):
        permutations = random.permuted(np.broadcast_to(series, (_CHUNK_PERMUTATIONS, len(series))), axis=1)
        as_good_count += int((_find_best_gains(permutations) >= threshold).sum())
        if as_good_count > false_alarm_rate * (permutation_count + 1):
            return 1.0
    return as_good_count / (permutation_count + 1)
