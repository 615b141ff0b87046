"""Waveforms of the generators as they reach the modulators: delayed, by fractions of a sample too."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from sim.models.photonics.fibre import FractionalDelay
from sim.twins.rfsoc.plant import Outputs

Samples = npt.NDArray[np.float64]


def delayed(
    outputs: Outputs, generator: int, *, rate_hz: float, first: int, count: int, delay_s: float
) -> Samples:
    """Return `count` samples at `rate_hz` from number `first` on, of what `generator` gave `delay_s` earlier.

    Between the converter's samples the voltage moves in a straight line: a step takes one sample (163 ps at
    6.144 GS/s), which is about the rise time of a driver of 2 GHz. Where nothing changes, one sample stands for all.
    """
    own_hz = outputs.rate_hz(generator)
    if own_hz != rate_hz:
        return _resampled(outputs, generator, own_hz / rate_hz, first, count, delay_s * own_hz)
    late = FractionalDelay(round(delay_s * rate_hz, 9), "linear")
    samples = outputs.samples(generator, *late.span(first, count))
    return samples[:1] if (samples == samples[0]).all() else late.apply(samples)


def _resampled(
    outputs: Outputs, generator: int, ratio: float, first: int, count: int, delay: float
) -> Samples:
    """Return the same for a converter `ratio` times as fast as the time line; `delay` is in its samples."""
    places = (first + np.arange(count)) * ratio - delay
    start = math.floor(places[0])
    samples = outputs.samples(generator, start, math.floor(places[-1]) + 2 - start)
    return np.asarray(np.interp(places - start, np.arange(len(samples)), samples))
