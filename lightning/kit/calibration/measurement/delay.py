"""Arrival of the light: the position of a known pattern, sent through one modulator, in the received trace.

The pattern is a maximal-length sequence of 127 chips, each two ticks long. Its autocorrelation has one sharp peak
(S. W. Golomb, Shift Register Sequences). The correlation at whole ticks gives a first estimate. The readout filters
before it decimates, so its samples determine the signal between them. `locate_pattern` therefore shifts the trace by
fractions of a tick, in its spectrum, until the correlation is greatest. Filter and pattern are symmetric, so this shift
is the arrival.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightning.kit.calibration.fringe import Floats

CHIP_TICKS = 2
TAP_POSITIONS = (7, 6)
"""x^7 + x^6 + 1 is primitive: 127 chips."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """Position of the pattern in a trace."""

    ticks: float
    """Time from the first received sample to the first chip."""
    swing: float
    """Counts between a low and a high chip; negative if the light is the inverse of the pattern."""
    correlation: float
    """Correlation of the received trace with the pattern, 0..1."""


def make_chips() -> npt.NDArray[np.int64]:
    """Return the chips, (127,) of 0 and 1, with 64 ones. Every shifted copy differs in 64 places.

    >>> int(make_chips().sum()), int((make_chips() == np.roll(make_chips(), 5)).sum())
    (64, 63)
    """
    register = [1] * TAP_POSITIONS[0]
    sequence = []
    for _ in range(2 ** TAP_POSITIONS[0] - 1):
        sequence.append(register[-1])
        register = [register[TAP_POSITIONS[0] - 1] ^ register[TAP_POSITIONS[1] - 1], *register[:-1]]
    return np.array(sequence)


def make_pattern(samples_per_tick: int = 1) -> npt.NDArray[np.int64]:
    """Return the chips as samples of a generator, 0 and 1."""
    return np.repeat(make_chips(), CHIP_TICKS * samples_per_tick)


def locate_pattern(samples: npt.ArrayLike) -> Arrival:
    """Return the position of the pattern in a trace of one sample per tick, to a small fraction of a sample.

    Raise `ValueError` unless the trace is at least two samples longer than the pattern.
    """
    trace = np.asarray(samples, dtype=float)
    sent_pattern = make_pattern().astype(float)
    if trace.size < sent_pattern.size + 2:
        raise ValueError(f"a trace of {trace.size} samples cannot hold the pattern of {sent_pattern.size}")
    centred_trace, centred_pattern = trace - trace.mean(), sent_pattern - sent_pattern.mean()
    correlations = np.correlate(centred_trace, centred_pattern, mode="valid")
    peak_index = int(np.argmax(np.abs(correlations)))
    spectrum = np.fft.rfft(centred_trace, _pad_length(trace.size))

    def compute_mismatch(ticks: float) -> float:
        return -abs(float(_shift_trace(spectrum, ticks, sent_pattern.size) @ centred_pattern))

    ticks = _find_minimum(compute_mismatch, peak_index - 1.0, peak_index + 1.0)
    aligned_trace = _shift_trace(spectrum, ticks, sent_pattern.size)
    product = float((aligned_trace - aligned_trace.mean()) @ centred_pattern)
    norm_product = float(aligned_trace.std()) * sent_pattern.size * float(sent_pattern.std())
    return Arrival(
        ticks,
        product / float(centred_pattern @ centred_pattern),
        abs(product) / norm_product if norm_product > 0 else 0.0,
    )


def _pad_length(size: int) -> int:
    """Return a transform length that leaves enough zeros to keep a shift from wrapping around."""
    return 1 << (size + 63).bit_length()


def _shift_trace(spectrum: npt.NDArray[np.complex128], ticks: float, count: int) -> Floats:
    """Return `count` samples of the trace from `ticks` on, interpolated through its spectrum."""
    phase_factors = np.exp(2j * np.pi * np.fft.rfftfreq(2 * (spectrum.size - 1)) * ticks)
    return np.fft.irfft(spectrum * phase_factors)[:count]


def _find_minimum(compute_cost: Callable[[float], float], low: float, high: float) -> float:
    """Return the minimum by golden-section search. Within a tick of the true shift, the cost has only one minimum."""
    ratio = (np.sqrt(5) - 1) / 2
    lower, upper = high - ratio * (high - low), low + ratio * (high - low)
    for _ in range(48):
        if compute_cost(lower) < compute_cost(upper):
            high, upper = upper, lower
            lower = high - ratio * (high - low)
        else:
            low, lower = lower, upper
            upper = low + ratio * (high - low)
    return float((low + high) / 2)
