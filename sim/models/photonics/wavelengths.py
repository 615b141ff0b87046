"""Several wavelengths in one fibre: crosstalk, and the beat of equal wavelengths.

On a detector, powers of different wavelengths add. Light of one wavelength on two paths adds as a field, so a leak of
power X adds a beat of 2 sqrt(X) cos(phase) to the signal, which is far more than X.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sim.models.photonics import checks
from sim.models.photonics.decibels import convert_loss_to_transmission

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Demultiplexer:
    """A wavelength filter, with its isolation from adjacent and from other channels as in data sheets."""

    channel_count: int = 2
    adjacent_isolation_db: float = 25.0
    other_isolation_db: float = 35.0

    def __post_init__(self) -> None:
        if self.channel_count < 1:
            raise ValueError(f"channel_count is {self.channel_count}: there must be at least one")
        checks.check_not_negative(
            adjacent_isolation_db=self.adjacent_isolation_db, other_isolation_db=self.other_isolation_db
        )


def compute_crosstalk_matrix(demultiplexer: Demultiplexer) -> Array:
    """Return X (channels, channels), the share of the power of channel j at output i.

    X_ij = 10^(-isolation/10), and X_ii = 1, because insertion loss is counted elsewhere. Received powers are X @ sent
    powers.

    >>> compute_crosstalk_matrix(
    ...     Demultiplexer(channel_count=3, adjacent_isolation_db=20, other_isolation_db=30)
    ... ).round(4).tolist()
    [[1.0, 0.01, 0.001], [0.01, 1.0, 0.01], [0.001, 0.01, 1.0]]
    """
    channel_index = np.arange(demultiplexer.channel_count)
    distance = np.abs(channel_index[:, np.newaxis] - channel_index)
    shares = np.full(distance.shape, convert_loss_to_transmission(demultiplexer.other_isolation_db))
    shares[distance == 1] = convert_loss_to_transmission(demultiplexer.adjacent_isolation_db)
    shares[distance == 0] = 1.0
    return shares


def combine_powers_w(
    first_w: npt.ArrayLike, second_w: npt.ArrayLike, phase_rad: npt.ArrayLike, visibility: float = 1.0
) -> Array:
    """Return the power of two beams on one detector: P1 + P2 + 2 |g| sqrt(P1 P2) cos(phase).

    B. E. A. Saleh and M. C. Teich, Fundamentals of Photonics, interference equation; |g|, here `visibility`: their
    section on partial coherence. A visibility of 0 describes wavelengths far apart. By hand, a leak of -25 dB at the
    same wavelength: 1 + 0.00316 + 2 * 0.05623 = 1.1156 in phase, 0.8907 in antiphase; without beat 1.0032.

    >>> leak = 10**-2.5
    >>> (
    ...     [f"{combine_powers_w(1.0, leak, phase):.4f}" for phase in (0.0, math.pi)],
    ...     f"{combine_powers_w(1.0, leak, 0.0, 0.0):.4f}",
    ... )
    (['1.1156', '0.8907'], '1.0032')
    """
    checks.check_within(0.0, 1.0, visibility=visibility)
    first, second = np.asarray(first_w, dtype=np.float64), np.asarray(second_w, dtype=np.float64)
    beat = 2.0 * visibility * np.sqrt(first * second) * np.cos(phase_rad)
    total: Array = first + second + beat
    return total


def compute_coherence(linewidth_hz: float, delay_s: float) -> float:
    """Return |g| of light and its copy delayed by `delay_s`: exp(-pi linewidth |delay|), for a Lorentzian line.

    J. W. Goodman, Statistical Optics, on temporal coherence. A linewidth of 100 kHz and 1 m of fibre
    (4.9 ns) give almost 1; 10 MHz and 10 m give 0.215.

    >>> f"{compute_coherence(100e3, 4.9e-9):.4f} {compute_coherence(10e6, 49e-9):.3f}"
    '0.9985 0.215'
    """
    return math.exp(-math.pi * linewidth_hz * abs(delay_s))


def compute_beat_transmission(offset_hz: float, pole_hz: float) -> float:
    """Return the share of a beat that a detector's pole transmits: 1 / sqrt(1 + (offset / f_3dB)^2).

    With two lasers 100 GHz apart, a step of the grid, and a detector of 2.546 GHz, 2.5 % remain, at a frequency that
    the converter aliases.

    >>> f"{compute_beat_transmission(100e9, 2.546e9):.4f}"
    '0.0255'
    """
    checks.check_positive(pole_hz=pole_hz)
    return 1.0 / math.hypot(1.0, offset_hz / pole_hz)
