"""Separation of thermal, shot and intensity noise, by a fit of the variance over the light level.

Thermal noise does not depend on the light. The variance of shot noise is proportional to the current, the variance of
relative intensity noise (RIN) to its square:

    variance(level) = constant + shot * level + rin * level^2

Source: G. P. Agrawal, Fiber-Optic Communication Systems, chapter on receivers: sigma_s^2 = 2 q I B,
sigma_T^2 = i_n^2 B, sigma_I^2 = RIN I^2 B.

Example: a RIN of -140 dB/Hz in 4 GHz gives a variance of 1e-14 * 4e9 = 4e-5 of the squared level. At full scale that is
sqrt(4e-5) * 255 = 1.61 of 255.

>>> round((1e-14 * 4e9) ** 0.5 * 255, 2)
1.61
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightning.kit.calibration.fringe import Floats


@dataclass(frozen=True, slots=True)
class NoiseModel:
    """Coefficients for one reading of `window` decimated samples. Levels are in counts above the dark level."""

    constant: float
    """In counts squared."""
    shot: float
    """In counts."""
    rin: float
    """Dimensionless."""
    mean: float
    """Mean error of decoded results after calibration, in units of 1/255."""
    window: int
    """Decimated samples in one reading."""

    def compute_variance(self, levels: npt.ArrayLike) -> Floats:
        """Return the variance in counts squared, for levels in counts above dark."""
        y = np.maximum(np.asarray(levels, dtype=float), 0.0)
        variance: Floats = self.constant + self.shot * y + self.rin * y**2
        return variance

    def compute_sigma(self, levels: npt.ArrayLike) -> Floats:
        """Return the standard deviation in counts."""
        return np.sqrt(self.compute_variance(levels))

    def compute_rin_db_hz(self, bandwidth_hz: float) -> float:
        """Return the laser's RIN in dB/Hz, for readings with this noise bandwidth; -inf if `rin` is 0."""
        return float(10 * np.log10(self.rin / bandwidth_hz)) if self.rin > 0 else -np.inf


def fit_noise(
    levels: npt.ArrayLike, variances: npt.ArrayLike, reading_count: int, *, mean: float = 0.0, window: int = 1
) -> NoiseModel:
    """Fit nonnegative coefficients to the variances (n,) at the levels (n,), each from `reading_count` readings.

    A variance v estimated from m readings has itself the variance 2 v^2/(m-1). Each residual is therefore weighted by
    1/v, with v from the previous fit. Raise `ValueError` for fewer than 6 levels or 3 readings.
    """
    y, v = np.maximum(np.asarray(levels, dtype=float), 0.0), np.asarray(variances, dtype=float)
    if y.size < 6 or reading_count < 3:
        raise ValueError(
            f"a noise model needs at least 6 levels with 3 readings each, not {y.size} levels with {reading_count}"
        )
    scale = float(y.max()) or 1.0
    design = np.vander(y / scale, 3, increasing=True)
    weights = np.full(y.size, 1.0 / max(float(v.mean()), 1e-30))
    for _ in range(8):
        coefficients = fit_nonnegative(design * weights[:, None], v * weights)
        weights = 1.0 / np.maximum(design @ coefficients, 1e-6 * max(float(v.mean()), 1e-30))
    constant, shot, rin = (float(c) for c in coefficients)
    return NoiseModel(constant, shot / scale, rin / scale**2, mean, window)


def fit_nonnegative(design: Floats, target: Floats) -> Floats:
    """Return the nonnegative least-squares coefficients: the best result over all subsets of the columns."""
    lowest_rss, coefficients = np.inf, np.zeros(design.shape[1])
    for is_used in itertools.product([False, True], repeat=design.shape[1]):
        mask = np.array(is_used)
        trial = np.zeros(design.shape[1])
        if mask.any():
            trial[mask] = np.linalg.lstsq(design[:, mask], target, rcond=None)[0]
        rss = float(np.sum((design @ trial - target) ** 2))
        if (trial >= 0).all() and rss < lowest_rss:
            lowest_rss, coefficients = rss, trial
    return coefficients
