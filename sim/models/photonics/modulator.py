"""A Mach-Zehnder intensity modulator: a voltage controls the transmission of light.

The voltage in all formulas is bias plus drive. The transmission is (G. P. Agrawal, Fiber-Optic Communication Systems,
chapter on transmitters; B. E. A. Saleh and M. C. Teich, Fundamentals of Photonics, chapter on electro-optics)

    T(V) = L * (r + (1 - r) * sin^2(pi (V - V_null) / (2 V_pi))),   L = 10^(-IL/10),   r = 10^(-ER/10)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from sim.models.photonics import checks
from sim.models.photonics.decibels import convert_loss_to_transmission

Array = npt.NDArray[np.float64]


class BiasPoint(Enum):
    """A bias point; its value is the distance from the null in half-wave voltages."""

    NULL = 0.0
    QUADRATURE = 0.5
    PEAK = 1.0


@dataclass(frozen=True, slots=True)
class Modulator:
    """Parameters of a modulator. Raise ValueError for impossible values."""

    half_wave_v: float = 5.0
    """V_pi, the voltage between least and most light."""
    null_v: float = 0.0
    """Voltage of least light, which drifts (see `drift`)."""
    extinction_db: float = 25.0
    """Ratio of most to least light."""
    insertion_loss_db: float = 4.0
    """Loss at the peak of transmission."""

    def __post_init__(self) -> None:
        checks.check_positive(half_wave_v=self.half_wave_v)
        checks.check_finite(null_v=self.null_v)
        checks.check_not_negative(extinction_db=self.extinction_db, insertion_loss_db=self.insertion_loss_db)

    @property
    def leakage(self) -> float:
        """Ratio r of least to most light.

        >>> f"{Modulator(extinction_db=24.07).leakage * 255:.2f} of 255"
        '1.00 of 255'
        """
        return convert_loss_to_transmission(self.extinction_db)

    @property
    def peak_transmission(self) -> float:
        """Transmission at the peak.

        >>> f"{Modulator(insertion_loss_db=4.0).peak_transmission:.4f}"
        '0.3981'
        """
        return convert_loss_to_transmission(self.insertion_loss_db)

    @property
    def null_transmission(self) -> float:
        """Transmission at the null."""
        return self.peak_transmission * self.leakage


def compute_transmission(modulator: Modulator, voltage_v: npt.ArrayLike) -> Array:
    """Return T(V) of the module docstring, the transmitted fraction of the power, for each voltage.

    By hand: with V_pi 5 V, 4 dB of loss and 25 dB of extinction, 2.5 V above the null is quadrature, sin^2 = 1/2:
    0.39811 * (0.0031623 + 0.9968377 / 2) = 0.19968.

    >>> f"{compute_transmission(Modulator(), 2.5):.5f}"
    '0.19968'
    """
    phase = _compute_phase_rad(modulator, voltage_v)
    r = modulator.leakage
    return modulator.peak_transmission * (r + (1.0 - r) * np.square(np.sin(phase)))


def compute_slope_per_v(modulator: Modulator, voltage_v: npt.ArrayLike) -> Array:
    """Return the derivative of `compute_transmission` in 1/V.

    dT/dV = L (1 - r) pi / (2 V_pi) sin(pi (V - V_null) / V_pi).

    The slope of a perfect modulator at quadrature is pi / (2 V_pi). A change of T by 1/255 then takes 0.25 % of V_pi,
    which is 12.5 mV if V_pi is 5 V.

    >>> perfect = Modulator(extinction_db=200.0, insertion_loss_db=0.0)
    >>> f"{1 / 255 / compute_slope_per_v(perfect, 2.5) * 1e3:.1f} mV"
    '12.5 mV'
    """
    phase = _compute_phase_rad(modulator, voltage_v)
    scale = modulator.peak_transmission * (1.0 - modulator.leakage) * math.pi / (2.0 * modulator.half_wave_v)
    return scale * np.sin(2.0 * phase)


def compute_encoding_v(modulator: Modulator, value: npt.ArrayLike) -> Array:
    """Return the voltage at which T = T_null + (T_peak - T_null) * x, for each x in 0..1.

    The voltage is V_null + 2 V_pi / pi * asin(sqrt(x)), the inverse of `compute_transmission` between null and peak.
    Raise ValueError for values outside 0..1.

    By hand: asin(sqrt(0.25)) = 30 degrees, a third of 90: a third of V_pi.

    >>> f"{compute_encoding_v(Modulator(half_wave_v=6.0, null_v=1.0), 0.25):.3f}"
    '3.000'
    """
    x = np.asarray(value, dtype=np.float64)
    if not np.all((x >= 0.0) & (x <= 1.0)):
        raise ValueError(
            f"values to encode range from {x.min():g} to {x.max():g}, outside 0 to 1: divide by the largest first"
        )
    return modulator.null_v + 2.0 * modulator.half_wave_v / math.pi * np.arcsin(np.sqrt(x))


def compute_bias_v(modulator: Modulator, point: BiasPoint) -> float:
    """Return the voltage of a bias point.

    The points repeat every 2 V_pi; there is another quadrature, with a falling slope, at 1.5 V_pi.

    >>> compute_bias_v(Modulator(half_wave_v=5.0, null_v=0.4), BiasPoint.QUADRATURE)
    2.9
    """
    return modulator.null_v + point.value * modulator.half_wave_v


def _compute_phase_rad(modulator: Modulator, voltage_v: npt.ArrayLike) -> Array:
    volts = np.asarray(voltage_v, dtype=np.float64)
    phase: Array = (volts - modulator.null_v) * (math.pi / (2.0 * modulator.half_wave_v))
    return phase
