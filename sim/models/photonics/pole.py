"""A first-order low-pass: the effect of a receiver's bandwidth on samples and noise.

A pole at f_3dB has the impulse response 2 pi f_3dB exp(-2 pi f_3dB t). Do not confuse two bandwidths: f_3dB, where the
power has fallen to a half, and the noise-equivalent bandwidth

    B_n = integral of |H(f)|^2 over positive f = pi / 2 * f_3dB

which the formulas of noise contain (S. Kumar and M. J. Deen, Fiber Optic Communications, equation 5.71).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from sim.models.photonics import checks

Array = npt.NDArray[np.float64]

_NEGLIGIBLE_WEIGHT = 2.0**-60
"""A weight that no longer changes a sum in float64."""


def compute_noise_bandwidth_hz(pole_hz: float) -> float:
    """Return the noise-equivalent bandwidth B_n of a pole.

    >>> f"{compute_noise_bandwidth_hz(4e9) / 1e9:.3f} GHz"
    '6.283 GHz'
    """
    return math.pi / 2.0 * pole_hz


def compute_pole_hz(bandwidth_hz: float) -> float:
    """Return f_3dB of the pole with this noise-equivalent bandwidth.

    >>> f"{compute_pole_hz(4e9) / 1e9:.3f} GHz"
    '2.546 GHz'
    """
    return 2.0 / math.pi * bandwidth_hz


def compute_decay(pole_hz: float, rate_hz: float) -> float:
    """Return the decay factor of the pole over a sample: exp(-2 pi f_3dB / rate).

    This is the share of a level that is left one sample later (intersymbol interference). It is also the correlation of
    neighbouring samples of white noise after the pole, whose autocorrelation is exp(-2 pi f_3dB |t|) (A. Papoulis,
    Probability, Random Variables and Stochastic Processes, on linear systems with stochastic inputs). By hand, a noise
    bandwidth of 4 GHz (pole at 2.546 GHz), sampled at 3.072 GS/s, has exp(-4 B / rate) = exp(-5.208):

    >>> f"{compute_decay(compute_pole_hz(4e9), 3.072e9):.5f}"
    '0.00547'
    """
    checks.check_positive(pole_hz=pole_hz, rate_hz=rate_hz)
    return math.exp(-2.0 * math.pi * pole_hz / rate_hz)


def filter_staircase(levels: npt.ArrayLike, decay: float, previous_output: float | None = None) -> Array:
    """Return the response (samples,) of a pole to a staircase, exact at the end of each step.

    y[n] = decay * y[n-1] + (1 - decay) * x[n], with the `decay` from `compute_decay`. The input `levels` (samples,) is
    constant at x[n] from sample n-1 to sample n; before the first sample the output is `previous_output` (default:
    x[0]).

    By hand, from 0 to 1 with a decay of 1/2: 1 - 1/2, 1 - 1/4, 1 - 1/8.

    >>> filter_staircase([1.0, 1.0, 1.0], 0.5, previous_output=0.0).tolist()
    [0.5, 0.75, 0.875]
    """
    checks.check_within(0.0, 1.0, decay=decay)
    x = np.asarray(levels, dtype=np.float64)
    if not len(x):
        return x.copy()
    start = float(x[0]) if previous_output is None else previous_output
    return start + accumulate((1.0 - decay) * (x - start), decay)


def accumulate(drive: npt.ArrayLike, decay: float) -> Array:
    """Return y[n] = decay * y[n-1] + drive[n], from rest, along the last axis.

    Each pass doubles the reach of the sum, so a few numpy passes replace a loop over samples.

    >>> accumulate([1.0, 0.0, 0.0, 1.0], 0.5).tolist()
    [1.0, 0.5, 0.25, 1.125]
    """
    y = np.array(drive, dtype=np.float64)
    reach, weight = 1, decay
    while reach < y.shape[-1] and weight > _NEGLIGIBLE_WEIGHT:
        y[..., reach:] += weight * y[..., :-reach]
        reach, weight = 2 * reach, weight * weight
    return y


def interpolate_response(
    end_values: npt.ArrayLike, levels: npt.ArrayLike, decay: float, fraction: float
) -> Array:
    """Return the response a `fraction` (0 to 1) of a sample after each sample, as for a skewed sampling clock.

    Exact for a staircase. `end_values` are y[n] of `filter_staircase`, and `levels` are x[n+1], the steps that follow:
    y(n + f) = x[n+1] + (y[n] - x[n+1]) * decay^f. By hand, from 0 towards 1, half a sample with a decay of 1/4:

    >>> interpolate_response([0.0], [1.0], 0.25, 0.5).tolist()
    [0.5]
    """
    checks.check_within(0.0, 1.0, fraction=fraction)
    y, x = np.asarray(end_values, dtype=np.float64), np.asarray(levels, dtype=np.float64)
    values: Array = x + (y - x) * decay**fraction
    return values


def compute_standard_error(deviation: float, correlation: float, count: int) -> float:
    """Return the deviation of the mean of `count` neighbouring samples of a first-order autoregression.

    The variance of the mean is (s^2 / n) (1 + 2 sum over k of (1 - k/n) rho^k) (G. E. P. Box and G. M. Jenkins, Time
    Series Analysis). Without correlation the deviation is s / sqrt(n):

    >>> f"{compute_standard_error(1.676, 0.0, 8):.4f} {compute_standard_error(1.676, 0.00547, 8):.4f}"
    '0.5926 0.5954'
    """
    lags = np.arange(1, count)
    variance_factor = 1.0 + 2.0 * float(np.sum((1.0 - lags / count) * correlation**lags))
    return deviation * math.sqrt(variance_factor / count)
