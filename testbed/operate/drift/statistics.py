"""Statistics of one series of losses: steady, step or trend, with baseline and noise.

Three models are compared: a constant, a constant that changes once, a straight line. A model with a change is chosen if
it reduces the sum of squares by `MIN_GAIN_VARIANCES` times the variance of the noise, and if the change is large
enough to matter. A series with a step is examined again on both sides of it.

The noise is estimated from differences of neighbouring readings, which steps and trends hardly affect. It is mixed with
the typical noise of monitors, so that a few equal readings do not turn the next reading into an alarm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

VerdictKind = Literal["learning", "steady", "step", "trend"]
Floats = NDArray[np.float64]

MIN_READINGS = 12
MIN_STEP_DB = 0.5
MIN_TREND_DB = 0.4
MIN_GAIN_VARIANCES = 30.0
"""Smallest significant reduction of the sum of squares, in variances of the noise: 5.5 standard deviations, squared."""
TYPICAL_NOISE_DB = 0.2
_TYPICAL_NOISE_WEIGHT = 10.0
_RESOLUTION_DB = 0.03
_USED_DIFFERENCES_SHARE = 0.9
_SMALL_SAMPLE_CORRECTION = 4
_DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on one series.

    `baseline_db` is the lowest level of the series, and `level_db` the current level. The current stretch of one level
    or slope began at `stretch_start_s` and has `reading_count_since` readings. `slope_db_per_day` is 0 except for a
    trend.
    """

    kind: VerdictKind
    reading_count: int
    baseline_db: float
    level_db: float
    noise_db: float
    stretch_start_s: float
    reading_count_since: int
    slope_db_per_day: float = 0.0

    @property
    def change_db(self) -> float:
        """Current level minus the baseline."""
        return self.level_db - self.baseline_db


@dataclass(frozen=True, slots=True)
class _Segment:
    """Readings from index `begin_index` up to, but not including, `end_index`, with one level or one slope."""

    begin_index: int
    end_index: int
    first_db: float
    last_db: float
    slope_db_per_s: float = 0.0


def judge_series(times_s: Sequence[float], losses_db: Sequence[float]) -> Verdict:
    """Return the verdict on a series in order of time, with at least one reading.

    >>> judge_series(range(12), [1.2] * 9 + [2.2] * 3).kind
    'step'
    """
    times_array, losses = np.asarray(times_s, float), np.asarray(losses_db, float)
    noise_db = estimate_noise(losses)
    if len(losses) < MIN_READINGS:
        level_db = float(np.median(losses))
        return Verdict(
            "learning", len(losses), level_db, level_db, noise_db, float(times_array[0]), len(losses)
        )
    segments = _find_segments(times_array, _remove_single_outliers(losses), noise_db, 0, len(losses))
    last_segment, baseline_db = segments[-1], min(segment.first_db for segment in segments)
    kind: VerdictKind = "steady"
    if last_segment.slope_db_per_s:
        kind = "trend"
    elif last_segment.last_db - baseline_db >= MIN_STEP_DB:
        kind = "step"
    return Verdict(
        kind=kind,
        reading_count=len(losses),
        baseline_db=baseline_db,
        level_db=last_segment.last_db,
        noise_db=noise_db,
        stretch_start_s=float(times_array[last_segment.begin_index]),
        reading_count_since=last_segment.end_index - last_segment.begin_index,
        slope_db_per_day=last_segment.slope_db_per_s * _DAY_S,
    )


def estimate_noise(losses_db: Sequence[float] | Floats) -> float:
    """Return the standard deviation of single readings, from differences of neighbouring readings.

    The largest tenth of the differences is left out, because it may contain steps.
    It is mixed with `TYPICAL_NOISE_DB`, which has the weight of ten readings.

    >>> estimate_noise([1.2] * 1000) == 0.03, estimate_noise([1.2, 1.2, 1.2]) > 0.15
    (True, True)
    """
    differences = np.sort(np.abs(np.diff(np.asarray(losses_db, float))))
    used_count = math.floor(len(differences) * _USED_DIFFERENCES_SHARE)
    measured_db = 0.0
    if used_count:
        measured_db = (
            float(differences[:used_count].mean())
            / _compute_mean_below(used_count / len(differences))
            / math.sqrt(2)
        )
    weight = _TYPICAL_NOISE_WEIGHT + used_count
    mixed_db = math.sqrt((_TYPICAL_NOISE_WEIGHT * TYPICAL_NOISE_DB**2 + used_count * measured_db**2) / weight)
    return max(mixed_db, _RESOLUTION_DB)


def _compute_mean_below(share: float) -> float:
    """Return the mean of the smallest `share` of the absolute values of standard normal numbers."""
    normal = NormalDist()
    upper_quantile = normal.inv_cdf((1 + share) / 2)
    return 2 * (normal.pdf(0) - normal.pdf(upper_quantile)) / share


def _remove_single_outliers(losses: Floats) -> Floats:
    """Return the series after a median filter over three readings.

    The last reading is not filtered, so that a new loss counts at once.
    """
    smoothed = losses.copy()
    smoothed[1:-1] = np.median(np.stack([losses[:-2], losses[1:-1], losses[2:]]), axis=0)
    smoothed[0] = np.median(losses[:3])
    return smoothed


def _find_segments(times: Floats, losses: Floats, noise_db: float, begin: int, end: int) -> list[_Segment]:
    """Return the stretches of the readings from `begin` to `end`, by the model that fits best."""
    part_losses, part_times = losses[begin:end], times[begin:end]
    level_db = float(part_losses.mean())
    step_index, step_db, step_gain = _fit_step(part_losses)
    slope_db_per_s, trend_gain = _fit_line(part_times, part_losses)
    # With few readings, the estimate of the noise is bad, and a chance fit is more likely.
    threshold = MIN_GAIN_VARIANCES * (1 + _SMALL_SAMPLE_CORRECTION / len(losses)) * noise_db**2
    growth_db = slope_db_per_s * float(part_times[-1] - part_times[0])
    is_trend = trend_gain >= threshold and abs(growth_db) >= MIN_TREND_DB
    if step_gain >= threshold and abs(step_db) >= MIN_STEP_DB and not (is_trend and trend_gain > step_gain):
        earlier_segments = _find_segments(times, losses, noise_db, begin, begin + step_index)
        return [*earlier_segments, *_find_segments(times, losses, noise_db, begin + step_index, end)]
    if is_trend:
        half_growth_db = slope_db_per_s * float(part_times.mean() - part_times[0])
        return [
            _Segment(
                begin, end, level_db - half_growth_db, level_db - half_growth_db + growth_db, slope_db_per_s
            )
        ]
    return [_Segment(begin, end, level_db, level_db)]


def _fit_step(part_losses: Floats) -> tuple[int, float, float]:
    """Return the index at which a step fits best, its size, and its reduction of the sum of squares."""
    loss_count = len(part_losses)
    if loss_count < 2:
        return 0, 0.0, 0.0
    counts = np.arange(1, loss_count)
    sums = np.cumsum(part_losses)[:-1]
    means_before, means_after = sums / counts, (part_losses.sum() - sums) / (loss_count - counts)
    gains = (means_after - means_before) ** 2 * counts * (loss_count - counts) / loss_count
    best_index = int(np.argmax(gains))
    return best_index + 1, float(means_after[best_index] - means_before[best_index]), float(gains[best_index])


def _fit_line(part_times: Floats, part_losses: Floats) -> tuple[float, float]:
    """Return the slope of the best line in dB per second, and its reduction of the sum of squares."""
    centred_times = part_times - part_times.mean()
    times_square_sum = float(centred_times @ centred_times)
    if not times_square_sum:
        return 0.0, 0.0
    slope = float(centred_times @ part_losses) / times_square_sum
    return slope, slope**2 * times_square_sum
