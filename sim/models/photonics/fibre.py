"""Fibre makes light late; a delay is seldom a whole number of samples.

A delay by part of a sample is an interpolation (T. I. Laakso, V. Valimaki, M. Karjalainen and U. K. Laine, "Splitting
the unit delay", IEEE Signal Processing Magazine 13 (1996) 30). Three kernels, all with a sum of one, so that a level
that stands comes out exactly:

    sinc    Kaiser-windowed sinc of 32 taps: of sines up to 0.42 of the rate the error is below 3e-4. For what is
            band-limited. It rings around a step, as a band-limited step does.
    cubic   Lagrange of order 3: within 0.4 % up to a tenth of the rate; overshoots a step by less than 7 %, one sample
            each side.
    linear  neither rings nor overshoots: the mean over one sample of a converter that holds. Passes cos(pi f / rate)
            at half a sample. For rectangular pulses and levels that are held.

For a staircase behind a pole, `pole.within_step` is exact and needs no kernel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from sim.models.photonics import checks
from sim.models.photonics.constants import LIGHT_SPEED_M_S
from sim.models.photonics.decibels import attenuate

Array = npt.NDArray[np.float64]
Kernel = Literal["sinc", "cubic", "linear"]

_REACH: dict[Kernel, int] = {"sinc": 16, "cubic": 2, "linear": 1}
"""Input samples on each side of the place in between."""
_KAISER_BETA = 8.0


@dataclass(frozen=True, slots=True)
class Fibre:
    """A length of single-mode fibre at 1550 nm."""

    length_m: float = 1.0
    group_index: float = 1.468
    """Of SMF-28 at 1550 nm (data sheet: 1.4682)."""
    loss_db_km: float = 0.2

    def __post_init__(self) -> None:
        checks.not_negative(length_m=self.length_m, loss_db_km=self.loss_db_km)
        checks.within(1.0, 3.0, group_index=self.group_index)

    @property
    def delay_s(self) -> float:
        """n_g L / c.

        One metre is 4.897 ns, 19.9 samples at 4.055 GS/s.

        >>> f"{Fibre().delay_s * 1e9:.3f} ns, {Fibre().delay_s * 4.05504e9:.2f} samples"
        '4.897 ns, 19.86 samples'
        """
        return self.group_index * self.length_m / LIGHT_SPEED_M_S

    @property
    def passed(self) -> float:
        """Fraction of the power that comes out.

        >>> f"{Fibre(length_m=15e3).passed:.3f}"
        '0.501'
        """
        return attenuate(self.loss_db_km * self.length_m / 1000.0)


@dataclass(frozen=True, slots=True)
class FractionalDelay:
    """A delay in samples, of any sign and fraction.

    Ask the source for the samples of `span`, give them to `apply`, get exactly those asked for:

    >>> late = FractionalDelay(2.5, "linear")
    >>> late.span(first=10, count=3)
    (7, 4)
    >>> late.apply([7.0, 8.0, 9.0, 10.0]).tolist()
    [7.5, 8.5, 9.5]
    """

    delay_samples: float
    kernel: Kernel = "sinc"

    def __post_init__(self) -> None:
        checks.finite(delay_samples=self.delay_samples)

    @property
    def whole(self) -> int:
        """Samples of the delay, rounded down."""
        return math.floor(self.delay_samples)

    @property
    def taps(self) -> Array:
        """(taps,) weights of input samples, the latest input first. A whole delay has one."""
        fraction = self.delay_samples - self.whole
        return kernel_taps(self.kernel, fraction) if fraction else np.ones(1)

    def span(self, first: int, count: int) -> tuple[int, int]:
        """Return (first, count) of the input samples that decide output samples `first` to `first + count - 1`."""
        if self.delay_samples == self.whole:
            return first - self.whole, count
        reach = _REACH[self.kernel]
        return first - self.whole - reach, count + 2 * reach - 1

    def apply(self, samples: npt.ArrayLike) -> Array:
        """Return delayed samples (count,) of the input samples that `span` names."""
        x = np.asarray(samples, dtype=np.float64)
        return x.copy() if self.delay_samples == self.whole else np.convolve(x, self.taps, mode="valid")


def kernel_taps(kernel: Kernel, fraction: float) -> Array:
    """Return weights for a delay by `fraction` of a sample (0 to 1): tap k of n is k - (n/2 - 1) back.

    >>> kernel_taps("linear", 0.25).tolist()
    [0.75, 0.25]
    >>> kernel_taps("cubic", 0.5).tolist()
    [-0.0625, 0.5625, 0.5625, -0.0625]
    """
    checks.within(0.0, 1.0, fraction=fraction)
    reach = _REACH[kernel]
    places = np.arange(1 - reach, 1 + reach)
    return _sinc_taps(fraction, places) if kernel == "sinc" else _lagrange_taps(fraction, places)


def _lagrange_taps(fraction: float, places: npt.NDArray[np.int_]) -> Array:
    """Return h_k = product over j other than k of (d - j) / (k - j) (Laakso and others, on Lagrange interpolation)."""
    return np.array([math.prod((fraction - j) / (k - j) for j in places if j != k) for k in places])


def _sinc_taps(fraction: float, places: npt.NDArray[np.int_]) -> Array:
    """Return sinc(k - d) under a Kaiser window centred on d, scaled to a sum of one.

    A. V. Oppenheim and R. W. Schafer, Discrete-Time Signal Processing, on Kaiser windows.
    """
    away = places - fraction
    window = np.i0(_KAISER_BETA * np.sqrt(np.clip(1.0 - np.square(away / _REACH["sinc"]), 0.0, 1.0)))
    taps = np.sinc(away) * window
    scaled: Array = taps / taps.sum()
    return scaled
