"""Levels at a converter during windows, and the mixing of their samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sim.twins.rfsoc.plant import ReceivedSignal

Floats = npt.NDArray[np.float64]
NEGLIGIBLE_CORRELATION = 0.01
"""If the received noise has less correlation, it is drawn together with the converter's noise: as one noise with the
sum of the variances. The converter's part then has the same small correlation, instead of none.
"""


@dataclass(frozen=True, slots=True)
class Levels:
    """Levels during windows, without noise: several traces, and for each window the number of its trace."""

    traces: Floats
    """(traces, samples) levels, as fractions of full scale."""
    noises: Floats
    """(traces, samples) standard deviations of the noise before the converter."""
    correlations: Floats
    """(traces,) correlations of `noises` at neighbouring samples."""
    converter_noises: Floats
    """(traces, samples) standard deviations of a second, uncorrelated noise; (traces, 0) if there is none."""
    trace_numbers: npt.NDArray[np.int64]
    """(windows,) numbers of traces."""


@dataclass(frozen=True, slots=True)
class Mixing:
    """Settings of a readout's oscillator for each window. All arrays are (windows,)."""

    freqs: npt.NDArray[np.int64]
    phases: npt.NDArray[np.int64]
    """Phase of the oscillator at the first sample of each window, in 2**-32 of a turn."""
    sources: npt.NDArray[np.int64]


def make_levels(signals: Sequence[ReceivedSignal], trace_numbers: npt.NDArray[np.int64], bits: int) -> Levels:
    """Return the levels for signals of a plant at a converter of `bits` bits.

    `trace_numbers` is the number of the signal of each window.
    """
    noises = np.stack([signal.noise for signal in signals])
    correlations = np.array([signal.correlation for signal in signals], np.float64)
    converter_noises = np.stack([_remove_rounding(signal, bits) for signal in signals])
    has_combined_noise = (correlations < NEGLIGIBLE_CORRELATION)[:, None]
    noises = np.where(has_combined_noise, np.hypot(noises, converter_noises), noises)
    converter_noises = np.where(has_combined_noise, 0.0, converter_noises)
    return Levels(
        np.stack([signal.level for signal in signals]),
        noises,
        correlations,
        converter_noises if converter_noises.any() else converter_noises[:, :0],
        trace_numbers,
    )


def _remove_rounding(received_signal: ReceivedSignal, bits: int) -> Floats:
    """Return the standard deviation (samples,) of the converter's noise without rounding; `convert_levels` rounds.

    This is the square root of `sim.models.photonics.converter.compute_excess_noise_v2`, but 0 if the rounding alone is
    larger than the noise.
    """
    if received_signal.converter_noise is None:
        return np.zeros(len(received_signal.level))
    rounding_variance = 2.0 ** (2 - 2 * bits) / 12.0
    return np.asarray(
        np.sqrt(np.maximum(np.square(received_signal.converter_noise) - rounding_variance, 0.0))
    )
