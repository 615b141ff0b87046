"""Delay and loss of a fibre, and delays by fractions of a sample.

A delay by a fraction of a sample is an interpolation (T. I. Laakso, V. Valimaki, M. Karjalainen and U. K. Laine,
"Splitting the unit delay", IEEE Signal Processing Magazine 13 (1996) 30). The three kernels have a sum of one, so that
a constant level is exact:

    sinc    Kaiser-windowed sinc of 32 taps: the error of sines up to 0.42 of the rate is below 3e-4. For band-limited
            signals. Rings around a step, as a band-limited step does.
    cubic   Lagrange of order 3: within 0.4 % up to a tenth of the rate; overshoots a step by less than 7 %, one sample
            on each side.
    linear  neither rings nor overshoots: the mean over one sample of a zero-order hold. The gain at half a sample is
            cos(pi f / rate). For rectangular pulses and held levels.

For a staircase behind a pole, `pole.interpolate_response` is exact and needs no kernel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from sim.models.photonics import checks
from sim.models.photonics.constants import LIGHT_SPEED_M_S
from sim.models.photonics.decibels import convert_loss_to_transmission

Array = npt.NDArray[np.float64]
Kernel = Literal["sinc", "cubic", "linear"]

_REACH_SAMPLES: dict[Kernel, int] = {"sinc": 16, "cubic": 2, "linear": 1}
"""Number of input samples on each side of the interpolated point."""
_KAISER_BETA = 8.0


@dataclass(frozen=True, slots=True)
class Fibre:
    """A length of single-mode fibre at 1550 nm."""

    length_m: float = 1.0
    group_index: float = 1.468
    """Group index of SMF-28 at 1550 nm (data sheet: 1.4682)."""
    loss_db_km: float = 0.2

    def __post_init__(self) -> None:
        checks.check_not_negative(length_m=self.length_m, loss_db_km=self.loss_db_km)
        checks.check_within(1.0, 3.0, group_index=self.group_index)

    @property
    def delay_s(self) -> float:
        """Delay, n_g L / c.

        One metre is 4.897 ns, 19.9 samples at 4.055 GS/s.

        >>> f"{Fibre().delay_s * 1e9:.3f} ns, {Fibre().delay_s * 4.05504e9:.2f} samples"
        '4.897 ns, 19.86 samples'
        """
        return self.group_index * self.length_m / LIGHT_SPEED_M_S

    @property
    def transmission(self) -> float:
        """Fraction of the power that the fibre transmits.

        >>> f"{Fibre(length_m=15e3).transmission:.3f}"
        '0.501'
        """
        return convert_loss_to_transmission(self.loss_db_km * self.length_m / 1000.0)


@dataclass(frozen=True, slots=True)
class FractionalDelay:
    """A delay in samples, of any sign and fraction.

    `find_input_span` names the input samples for the wanted output samples, and `apply` computes the output samples:

    >>> late = FractionalDelay(2.5, "linear")
    >>> late.find_input_span(first=10, count=3)
    (7, 4)
    >>> late.apply([7.0, 8.0, 9.0, 10.0]).tolist()
    [7.5, 8.5, 9.5]
    """

    delay_samples: float
    kernel: Kernel = "sinc"

    def __post_init__(self) -> None:
        checks.check_finite(delay_samples=self.delay_samples)

    @property
    def whole_samples(self) -> int:
        """Delay in samples, rounded down."""
        return math.floor(self.delay_samples)

    @property
    def taps(self) -> Array:
        """Weights of the input samples (taps,), latest sample first. A delay of whole samples has one weight."""
        fraction = self.delay_samples - self.whole_samples
        return compute_kernel_taps(self.kernel, fraction) if fraction else np.ones(1)

    def find_input_span(self, first: int, count: int) -> tuple[int, int]:
        """Return (first, count) of the input samples for the output samples `first` to `first + count - 1`."""
        if self.delay_samples == self.whole_samples:
            return first - self.whole_samples, count
        samples_per_side = _REACH_SAMPLES[self.kernel]
        return first - self.whole_samples - samples_per_side, count + 2 * samples_per_side - 1

    def apply(self, samples: npt.ArrayLike) -> Array:
        """Return the delayed samples (count,) from the input samples that `find_input_span` names."""
        x = np.asarray(samples, dtype=np.float64)
        return (
            x.copy() if self.delay_samples == self.whole_samples else np.convolve(x, self.taps, mode="valid")
        )


def compute_kernel_taps(kernel: Kernel, fraction: float) -> Array:
    """Return n weights for a delay by `fraction` of a sample (0 to 1); tap k looks k - (n/2 - 1) samples back.

    >>> compute_kernel_taps("linear", 0.25).tolist()
    [0.75, 0.25]
    >>> compute_kernel_taps("cubic", 0.5).tolist()
    [-0.0625, 0.5625, 0.5625, -0.0625]
    """
    checks.check_within(0.0, 1.0, fraction=fraction)
    samples_per_side = _REACH_SAMPLES[kernel]
    offsets = np.arange(1 - samples_per_side, 1 + samples_per_side)
    return _make_sinc_taps(fraction, offsets) if kernel == "sinc" else _make_lagrange_taps(fraction, offsets)


def _make_lagrange_taps(fraction: float, offsets: npt.NDArray[np.int_]) -> Array:
    """Return h_k = product of (d - j) / (k - j) over all j other than k (Laakso et al., on Lagrange interpolation)."""
    return np.array([math.prod((fraction - j) / (k - j) for j in offsets if j != k) for k in offsets])


def _make_sinc_taps(fraction: float, offsets: npt.NDArray[np.int_]) -> Array:
    """Return sinc(k - d) with a Kaiser window centred on d, scaled to a sum of one.

    A. V. Oppenheim and R. W. Schafer, Discrete-Time Signal Processing, on Kaiser windows.
    """
    distance = offsets - fraction
    window = np.i0(
        _KAISER_BETA * np.sqrt(np.clip(1.0 - np.square(distance / _REACH_SAMPLES["sinc"]), 0.0, 1.0))
    )
    taps = np.sinc(distance) * window
    scaled_taps: Array = taps / taps.sum()
    return scaled_taps
