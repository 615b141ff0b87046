"""Several wavelengths in one fibre: what leaks between them, and what happens where two are equal.

Light of different wavelengths adds as power on a detector. Light of one wavelength that came two ways adds as a field,
so that a leak of power X beats with 2 sqrt(X) cos(phase) of the signal: far more than X itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sim.models.photonics import checks
from sim.models.photonics.decibels import attenuate

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Demultiplexer:
    """Isolation of a wavelength filter, as data sheets state it: of neighbours and of all others."""

    channels: int = 2
    adjacent_isolation_db: float = 25.0
    other_isolation_db: float = 35.0

    def __post_init__(self) -> None:
        if self.channels < 1:
            raise ValueError(f"channels is {self.channels}: there must be at least one")
        checks.not_negative(
            adjacent_isolation_db=self.adjacent_isolation_db, other_isolation_db=self.other_isolation_db
        )


def crosstalk(demultiplexer: Demultiplexer) -> Array:
    """Return X (channels, channels): the share of the power of channel j that arrives at output i.

    X_ij = 10^(-isolation/10), 1 for its own (the insertion loss stands elsewhere). Received powers are X @
    sent powers.

    >>> crosstalk(Demultiplexer(channels=3, adjacent_isolation_db=20, other_isolation_db=30)).round(
    ...     4
    ... ).tolist()
    [[1.0, 0.01, 0.001], [0.01, 1.0, 0.01], [0.001, 0.01, 1.0]]
    """
    place = np.arange(demultiplexer.channels)
    distance = np.abs(place[:, np.newaxis] - place)
    far = np.full(distance.shape, attenuate(demultiplexer.other_isolation_db))
    far[distance == 1] = attenuate(demultiplexer.adjacent_isolation_db)
    far[distance == 0] = 1.0
    return far


def combine_w(
    first_w: npt.ArrayLike, second_w: npt.ArrayLike, phase_rad: npt.ArrayLike, visibility: float = 1.0
) -> Array:
    """Return the power of two lights on one detector: P1 + P2 + 2 |g| sqrt(P1 P2) cos(phase).

    B. E. A. Saleh and M. C. Teich, Fundamentals of Photonics, interference equation; |g|: their section on
    partial coherence. A `visibility` of 0 is two wavelengths far apart. By hand, a leak of 25 dB of the same
    wavelength in phase: 1 + 0.00316 + 2 * 0.05623 = 1.1156; out of phase 0.8907. As power alone it would be
    1.0032.

    >>> leak = 10**-2.5
    >>> (
    ...     [f"{combine_w(1.0, leak, phase):.4f}" for phase in (0.0, math.pi)],
    ...     f"{combine_w(1.0, leak, 0.0, 0.0):.4f}",
    ... )
    (['1.1156', '0.8907'], '1.0032')
    """
    checks.within(0.0, 1.0, visibility=visibility)
    one, two = np.asarray(first_w, dtype=np.float64), np.asarray(second_w, dtype=np.float64)
    beat = 2.0 * visibility * np.sqrt(one * two) * np.cos(phase_rad)
    total: Array = one + two + beat
    return total


def coherence(linewidth_hz: float, late_s: float) -> float:
    """Return |g| of light that meets itself `late_s` later: exp(-pi linewidth |delay|), of a Lorentzian line.

    J. W. Goodman, Statistical Optics, on temporal coherence. 100 kHz and 1 m of fibre (4.9 ns): all of it. 10
    MHz and 10 m: 0.215.

    >>> f"{coherence(100e3, 4.9e-9):.4f} {coherence(10e6, 49e-9):.3f}"
    '0.9985 0.215'
    """
    return math.exp(-math.pi * linewidth_hz * abs(late_s))


def beat_through(offset_hz: float, pole_hz: float) -> float:
    """Return the share of a beat that a detector's pole leaves: 1 / sqrt(1 + (offset / f_3dB)^2).

    Two lasers a grid place (100 GHz) apart, detector of 2.546 GHz: 2.5 %, at a frequency the converter folds.

    >>> f"{beat_through(100e9, 2.546e9):.4f}"
    '0.0255'
    """
    checks.positive(pole_hz=pole_hz)
    return 1.0 / math.hypot(1.0, offset_hz / pole_hz)
