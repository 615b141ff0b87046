"""From the level at a converter to what a readout gives out: noise, conversion, mixing, decimation.

One pass over all samples of several windows. Facts (firmware `down_conversion.v`): the product of the converter's
16 bits with the oscillator's 16 is rounded to its upper 16 bits, which halves it; the filter's result is rounded
to 16 bits. Compiled where numba is installed (`conversion_compiled`), otherwise arrays of all windows at once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sim.models.photonics.noise import draw_correlated_normals
from sim.twins.rfsoc.signals.decimation import DECIMATION
from sim.twins.rfsoc.signals.level import Level, Mixing
from sim.twins.rfsoc.signals.track import TURN, oscillator
from sim.twins.rfsoc.signals.waves import INPUT, OSCILLATOR, PRODUCT

Floats = npt.NDArray[np.float64]
HALF = 1 << 15


def convert(
    rng: np.random.Generator, level: Level, mixing: Mixing, *, bits: int, taps: Floats
) -> npt.NDArray[np.int16]:
    """Return (windows, decimated samples, 2): I and Q. The noise is drawn again by each call."""
    from lightbed import compiled as machine_code  # here: numba takes its time

    if not machine_code.AVAILABLE:
        return convert_plainly(rng, level, mixing, bits=bits, taps=taps)
    from sim.twins.rfsoc.signals import conversion_compiled

    return conversion_compiled.convert(rng, level, mixing, bits=bits, taps=taps)


def convert_plainly(
    rng: np.random.Generator, level: Level, mixing: Mixing, *, bits: int, taps: Floats
) -> npt.NDArray[np.int16]:
    """Return the same without numba; the same draws give the same noise."""
    received = level.traces[level.which]
    for window, trace in enumerate(level.which):
        if level.noises[trace].any():
            wander = draw_correlated_normals(rng, (received.shape[1],), float(level.correlations[trace]))
            received[window] += level.noises[trace] * wander
        if level.owns[trace].any():
            received[window] += level.owns[trace] * rng.standard_normal(received.shape[1])
    codes = _codes(received, bits)
    real, imaginary = _mix(codes, mixing)
    out = np.stack([_decimate(real, taps), _decimate(imaginary, taps)], axis=-1)
    return np.clip(out, -HALF, HALF - 1).astype(np.int16)


def _codes(received: Floats, bits: int) -> Floats:
    """Return the converter's output, its bits at the top of 16."""
    half = 1 << (bits - 1)
    step = 1 << (16 - bits)
    return np.asarray(np.clip(np.floor(received * half + 0.5), -half, half - 1) * step)


def _mix(codes: Floats, mixing: Mixing) -> tuple[Floats, Floats]:
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


def _decimate(samples: Floats, taps: Floats) -> Floats:
    windows = np.lib.stride_tricks.sliding_window_view(samples, len(taps), axis=1)[:, ::DECIMATION]
    return np.asarray(np.floor(windows @ taps + 0.5))
