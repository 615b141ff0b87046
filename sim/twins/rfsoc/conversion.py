"""From the level at a converter to what a readout gives out: noise, conversion, mixing, decimation.

One pass over all samples of several windows. Facts (firmware `down_conversion.v`): the product of the converter's
16 bits with the oscillator's 16 is rounded to its upper 16 bits, which halves it; the filter's result is rounded
to 16 bits. Compiled where numba is installed (`conversion_compiled`), otherwise arrays of all windows at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sim.twins.rfsoc.decimation import DECIMATION
from sim.twins.rfsoc.track import TURN, oscillator
from sim.twins.rfsoc.waves import INPUT, OSCILLATOR, PRODUCT

Floats = npt.NDArray[np.float64]
HALF = 1 << 15
_FORGOTTEN = 1e-17


@dataclass(frozen=True, slots=True)
class Level:
    """What arrives during windows, without chance: several traces, and which of them each window sees."""

    traces: Floats
    """(traces, samples), fractions of full scale."""
    noises: Floats
    """(traces, samples), standard deviations."""
    correlations: Floats
    """(traces,) of the noise of neighbouring samples."""
    which: npt.NDArray[np.int64]
    """(windows,)"""


@dataclass(frozen=True, slots=True)
class Mixing:
    """What the readout does with the samples; columns (windows,)."""

    freqs: npt.NDArray[np.int64]
    turns: npt.NDArray[np.int64]
    """Phase of the oscillator at the first sample of each window, in 2**-32 of a turn."""
    sources: npt.NDArray[np.int64]


def converted(
    rng: np.random.Generator, level: Level, mixing: Mixing, *, bits: int, taps: Floats
) -> npt.NDArray[np.int16]:
    """(windows, decimated samples, 2): I and Q. The noise is drawn anew by each call."""
    try:
        from sim.twins.rfsoc import conversion_compiled
    except ImportError:
        return converted_plainly(rng, level, mixing, bits=bits, taps=taps)
    return conversion_compiled.converted(rng, level, mixing, bits=bits, taps=taps)


def converted_plainly(
    rng: np.random.Generator, level: Level, mixing: Mixing, *, bits: int, taps: Floats
) -> npt.NDArray[np.int16]:
    """The same without numba; the same draws give the same noise."""
    received = level.traces[level.which]
    for window, trace in enumerate(level.which):
        if level.noises[trace].any():
            drawn = np.asarray(rng.standard_normal(received.shape[1]))
            received[window] += level.noises[trace] * _correlated(drawn, float(level.correlations[trace]))
    codes = _codes(received, bits)
    real, imaginary = _mixed(codes, mixing)
    out = np.stack([_decimated(real, taps), _decimated(imaginary, taps)], axis=-1)
    return np.clip(out, -HALF, HALF - 1).astype(np.int16)


def _correlated(drawn: Floats, correlation: float) -> Floats:
    """An autoregression of first order with variance 1: y[0] = w[0], y[i] = r y[i-1] + sqrt(1 - r^2) w[i]."""
    if correlation == 0.0:
        return drawn
    fresh = np.sqrt(1.0 - correlation**2)
    steps = drawn * fresh
    steps[0] = drawn[0]
    out = steps.copy()
    terms = min(int(np.ceil(np.log(_FORGOTTEN) / np.log(abs(correlation)))), len(drawn) - 1)
    for back in range(1, terms + 1):
        out[back:] += correlation**back * steps[:-back]
    return np.asarray(out)


def _codes(received: Floats, bits: int) -> Floats:
    """The converter's output, its bits at the top of 16."""
    half = 1 << (bits - 1)
    step = 1 << (16 - bits)
    return np.asarray(np.clip(np.floor(received * half + 0.5), -half, half - 1) * step)


def _mixed(codes: Floats, mixing: Mixing) -> tuple[Floats, Floats]:
    count = codes.shape[1]
    turns = (mixing.turns[:, None] + mixing.freqs[:, None] * np.arange(count)) % TURN
    cosine, sine = oscillator(turns)
    source = mixing.sources[:, None]
    rounded = [np.floor((codes * part + HALF) / (2 * HALF)) for part in (cosine, sine)]
    real = np.select(
        [source == PRODUCT, source == OSCILLATOR, source == INPUT], [rounded[0], cosine, codes], default=0
    )
    imaginary = np.select([source == PRODUCT, source == OSCILLATOR], [rounded[1], sine], default=0)
    return real.astype(np.float64), imaginary.astype(np.float64)


def _decimated(samples: Floats, taps: Floats) -> Floats:
    windows = np.lib.stride_tricks.sliding_window_view(samples, len(taps), axis=1)[:, ::DECIMATION]
    return np.asarray(np.floor(windows @ taps + 0.5))
