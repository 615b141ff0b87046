"""From the level at a converter to the output of a readout: noise, conversion, mixing and decimation.

Rounding follows the firmware (`down_conversion.v`). The product of 16 bits of the converter and 16 bits of the
oscillator is rounded to its upper 16 bits. This halves the signal. The filter's result is rounded to 16 bits. If numba
is installed, the compiled functions of `conversion_compiled` process one window after another. Otherwise numpy
processes all windows at once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sim.models.photonics.noise import draw_correlated_normals
from sim.twins.rfsoc.signals.decimation import DECIMATION
from sim.twins.rfsoc.signals.level import Levels, Mixing
from sim.twins.rfsoc.signals.track import PHASE_TURN, compute_oscillator
from sim.twins.rfsoc.signals.waves import INPUT, OSCILLATOR, PRODUCT

Floats = npt.NDArray[np.float64]
HALF_SCALE = 1 << 15


def convert_levels(
    rng: np.random.Generator, levels: Levels, mixing: Mixing, *, bits: int, taps: Floats
) -> npt.NDArray[np.int16]:
    """Return I and Q (windows, decimated samples, 2). Each call draws new noise."""
    from lightbed import compiled as machine_code  # imported here because importing numba is slow

    if not machine_code.IS_AVAILABLE:
        return convert_levels_with_numpy(rng, levels, mixing, bits=bits, taps=taps)
    from sim.twins.rfsoc.signals import conversion_compiled

    return conversion_compiled.convert_levels(rng, levels, mixing, bits=bits, taps=taps)


def convert_levels_with_numpy(
    rng: np.random.Generator, levels: Levels, mixing: Mixing, *, bits: int, taps: Floats
) -> npt.NDArray[np.int16]:
    """Do what `convert_levels` does, but without numba. With the same state of `rng`, both draw the same noise."""
    received_samples = levels.traces[levels.trace_numbers]
    for window, trace in enumerate(levels.trace_numbers):
        if levels.noises[trace].any():
            correlated_noise = draw_correlated_normals(
                rng, (received_samples.shape[1],), float(levels.correlations[trace])
            )
            received_samples[window] += levels.noises[trace] * correlated_noise
        if levels.converter_noises[trace].any():
            received_samples[window] += levels.converter_noises[trace] * rng.standard_normal(
                received_samples.shape[1]
            )
    codes = _quantise(received_samples, bits)
    real_part, imaginary_part = _mix(codes, mixing)
    out = np.stack([_decimate(real_part, taps), _decimate(imaginary_part, taps)], axis=-1)
    return np.clip(out, -HALF_SCALE, HALF_SCALE - 1).astype(np.int16)


def _quantise(received_samples: Floats, bits: int) -> Floats:
    """Return the output of the converter as 16-bit numbers. Its `bits` are the upper bits."""
    half_scale = 1 << (bits - 1)
    step = 1 << (16 - bits)
    return np.asarray(
        np.clip(np.floor(received_samples * half_scale + 0.5), -half_scale, half_scale - 1) * step
    )


def _mix(codes: Floats, mixing: Mixing) -> tuple[Floats, Floats]:
    count = codes.shape[1]
    phases = (mixing.phases[:, None] + mixing.freqs[:, None] * np.arange(count)) % PHASE_TURN
    cosine, sine = compute_oscillator(phases)
    source = mixing.sources[:, None]
    rounded_parts = [np.floor((codes * part + HALF_SCALE) / (2 * HALF_SCALE)) for part in (cosine, sine)]
    real_part = np.select(
        [source == PRODUCT, source == OSCILLATOR, source == INPUT],
        [rounded_parts[0], cosine, codes],
        default=0,
    )
    imaginary_part = np.select([source == PRODUCT, source == OSCILLATOR], [rounded_parts[1], sine], default=0)
    return real_part.astype(np.float64), imaginary_part.astype(np.float64)


def _decimate(samples: Floats, taps: Floats) -> Floats:
    windows = np.lib.stride_tricks.sliding_window_view(samples, len(taps), axis=1)[:, ::DECIMATION]
    return np.asarray(np.floor(windows @ taps + 0.5))
