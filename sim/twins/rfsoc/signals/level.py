"""Levels at converters during windows, and the mixing of their samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sim.twins.rfsoc.plant import Received

Floats = npt.NDArray[np.float64]
DRAWN_TOGETHER = 0.01
"""Correlation of what arrives below which the converter's own noise is drawn together with it, as one of the summed
variance: of the converter's part, too, neighbours then are correlated by less than this.
"""


@dataclass(frozen=True, slots=True)
class Level:
    """Levels that arrive during windows, without chance: several traces, and which of them each window sees."""

    traces: Floats
    """(traces, samples), fractions of full scale."""
    noises: Floats
    """(traces, samples), standard deviations."""
    correlations: Floats
    """(traces,) of that noise at neighbouring samples."""
    owns: Floats
    """(traces, samples), standard deviations of a second noise, without memory; (traces, 0) where there is none."""
    which: npt.NDArray[np.int64]
    """(windows,)"""


@dataclass(frozen=True, slots=True)
class Mixing:
    """Mixing of the samples by a readout; columns (windows,)."""

    freqs: npt.NDArray[np.int64]
    turns: npt.NDArray[np.int64]
    """Phase of the oscillator at the first sample of each window, in 2**-32 of a turn."""
    sources: npt.NDArray[np.int64]


def level_of(seen: Sequence[Received], which: npt.NDArray[np.int64], bits: int) -> Level:
    """Return a plant's answer as a converter of so many bits reads it."""
    noises = np.stack([one.noise for one in seen])
    correlations = np.array([one.correlation for one in seen], np.float64)
    owns = np.stack([_without_rounding(one, bits) for one in seen])
    together = (correlations < DRAWN_TOGETHER)[:, None]
    noises = np.where(together, np.hypot(noises, owns), noises)
    owns = np.where(together, 0.0, owns)
    return Level(
        np.stack([one.level for one in seen]),
        noises,
        correlations,
        owns if owns.any() else owns[:, :0],
        which,
    )


def _without_rounding(received: Received, bits: int) -> Floats:
    """Return (samples,) deviation of the converter's own noise less that of its rounding, which comes by itself.

    As `sim.models.photonics.converter.excess_v2`, but 0 where the bits are fewer than the effective ones.
    """
    if received.own is None:
        return np.zeros(len(received.level))
    rounding = 2.0 ** (2 - 2 * bits) / 12.0
    return np.asarray(np.sqrt(np.maximum(np.square(received.own) - rounding, 0.0)))
