"""A first-order low-pass: what the bandwidth of a receiver does to samples and to noise.

One pole at f_3dB has the impulse response 2 pi f_3dB exp(-2 pi f_3dB t). Two bandwidths must not be mixed up:
f_3dB, where the power has fallen to a half, and the noise-equivalent bandwidth

    B_n = integral of |H(f)|^2 over positive f = pi / 2 * f_3dB

which is what stands in the formulas of noise (S. Kumar and M. J. Deen, Fiber Optic Communications, equation 5.71).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from sim.models.photonics import checks

Array = npt.NDArray[np.float64]

_FORGOTTEN = 2.0**-60
"""A weight that no longer changes a sum in float64."""


def noise_bandwidth_hz(pole_hz: float) -> float:
    """B_n of a pole.

    >>> f"{noise_bandwidth_hz(4e9) / 1e9:.3f} GHz"
    '6.283 GHz'
    """
    return math.pi / 2.0 * pole_hz


def pole_of_noise_bandwidth_hz(bandwidth_hz: float) -> float:
    """Return f_3dB of the pole whose noise-equivalent bandwidth this is.

    >>> f"{pole_of_noise_bandwidth_hz(4e9) / 1e9:.3f} GHz"
    '2.546 GHz'
    """
    return 2.0 / math.pi * bandwidth_hz


def memory(pole_hz: float, rate_hz: float) -> float:
    """Return the part of a level that is left one sample later: exp(-2 pi f_3dB / rate).

    It is the intersymbol memory of a staircase, and just so the correlation of neighbouring samples of white noise
    behind the pole (the autocorrelation of such noise is exp(-2 pi f_3dB |t|): A. Papoulis, Probability, Random
    Variables and Stochastic Processes, on linear systems with stochastic inputs). A noise bandwidth of 4 GHz (pole
    at 2.546 GHz), sampled at 3.072 GS/s, has exp(-4 B / rate) = exp(-5.208):

    >>> f"{memory(pole_of_noise_bandwidth_hz(4e9), 3.072e9):.5f}"
    '0.00547'
    """
    checks.positive(pole_hz=pole_hz, rate_hz=rate_hz)
    return math.exp(-2.0 * math.pi * pole_hz / rate_hz)


def response(levels: npt.ArrayLike, kept: float, before: float | None = None) -> Array:
    """Return the response of a pole to a staircase, exact at the end of each step.

    y[n] = kept * y[n-1] + (1 - kept) * x[n]. `levels` (samples,) is held at x[n] from sample n-1 to sample n;
    `kept` is `memory`. Before the first sample the pole had settled at `before` (x[0] unless given).

    By hand, from 0 to 1 with a memory of a half: 1 - 1/2, 1 - 1/4, 1 - 1/8.

    >>> response([1.0, 1.0, 1.0], 0.5, before=0.0).tolist()
    [0.5, 0.75, 0.875]
    """
    checks.within(0.0, 1.0, kept=kept)
    x = np.asarray(levels, dtype=np.float64)
    if not len(x):
        return x.copy()
    start = float(x[0]) if before is None else before
    return start + accumulate((1.0 - kept) * (x - start), kept)


def accumulate(drive: npt.ArrayLike, kept: float) -> Array:
    """Return y[n] = kept * y[n-1] + drive[n] from rest, along the last axis: the recursion under all that remembers.

    Every pass doubles how far back the sum reaches, so that numpy does it in a few passes instead of a loop over
    samples.

    >>> accumulate([1.0, 0.0, 0.0, 1.0], 0.5).tolist()
    [1.0, 0.5, 0.25, 1.125]
    """
    y = np.array(drive, dtype=np.float64)
    reach, weight = 1, kept
    while reach < y.shape[-1] and weight > _FORGOTTEN:
        y[..., reach:] += weight * y[..., :-reach]
        reach, weight = 2 * reach, weight * weight
    return y


def within_step(ends: npt.ArrayLike, levels: npt.ArrayLike, kept: float, fraction: float) -> Array:
    """Return the response a `fraction` (0 to 1) of a sample after each sample: skew of a receiver's clock.

    Exact for a staircase. `ends` are y[n] of `response` and `levels` x[n+1], the step that follows each: y(n
    + f) = x[n+1] + (y[n] - x[n+1]) * kept^f. Half way with a memory of 1/4, from 0 towards 1:

    >>> within_step([0.0], [1.0], 0.25, 0.5).tolist()
    [0.5]
    """
    checks.within(0.0, 1.0, fraction=fraction)
    y, x = np.asarray(ends, dtype=np.float64), np.asarray(levels, dtype=np.float64)
    decayed: Array = x + (y - x) * kept**fraction
    return decayed


def decimate_deviation(deviation: float, correlation: float, count: int) -> float:
    """Return deviation of the mean of `count` neighbouring samples whose noise is an autoregression of first order.

    Variance of a mean: (s^2 / n) (1 + 2 sum over k of (1 - k/n) rho^k) (G. E. P. Box and G. M. Jenkins, Time Series
    Analysis). Without correlation it is s / sqrt(n):

    >>> f"{decimate_deviation(1.676, 0.0, 8):.4f} {decimate_deviation(1.676, 0.00547, 8):.4f}"
    '0.5926 0.5954'
    """
    lags = np.arange(1, count)
    inflation = 1.0 + 2.0 * float(np.sum((1.0 - lags / count) * correlation**lags))
    return deviation * math.sqrt(inflation / count)
