"""Drift of a bias: an Ornstein-Uhlenbeck process, and temperature.

Moving charges and heat make lithium niobate modulators drift. An Ornstein-Uhlenbeck process is the simplest random walk
that returns to its mean: it has a time constant tau, a stationary deviation s, and the autocovariance
s^2 exp(-|t| / tau) (G. E. Uhlenbeck and L. S. Ornstein, Phys. Rev. 36 (1930) 823). Its steps are exact for intervals of
any length (D. T. Gillespie, Phys. Rev. E 54 (1996) 2084):

    x(t + dt) = m + (x(t) - m) e + s sqrt(1 - e^2) n,   e = exp(-dt / tau),   n normal
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sim.models.photonics import checks, pole

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class OrnsteinUhlenbeck:
    """A random walk that returns to its mean; `deviation` is stationary, in the unit of the drifting quantity."""

    deviation: float
    time_constant_s: float
    mean: float = 0.0

    def __post_init__(self) -> None:
        checks.check_not_negative(deviation=self.deviation)
        checks.check_positive(time_constant_s=self.time_constant_s)
        checks.check_finite(mean=self.mean)


def advance_process(process: OrnsteinUhlenbeck, value: float, elapsed_s: float, normal: float) -> float:
    """Return the value of the process `elapsed_s` after `value`, for a standard normal number.

    By hand: after tau ln 2 half of the distance to the mean is left, and sqrt(3/4) of the stationary deviation is
    added.

    >>> bias = OrnsteinUhlenbeck(deviation=0.1, time_constant_s=600.0)
    >>> f"{advance_process(bias, 0.2, 600.0 * math.log(2.0), 0.0):.4f}"
    '0.1000'
    >>> f"{advance_process(bias, 0.2, 600.0 * math.log(2.0), 1.0):.4f}"
    '0.1866'
    """
    decay, spread = _step_coefficients(process, elapsed_s)
    return process.mean + (value - process.mean) * decay + spread * normal


def simulate_path(
    process: OrnsteinUhlenbeck, start: float, interval_s: float, normals: npt.ArrayLike
) -> Array:
    """Return the values (steps,) after 1, 2, ... intervals from `start`, for standard normal numbers (steps,).

    >>> bias = OrnsteinUhlenbeck(deviation=0.1, time_constant_s=1.0)
    >>> [round(v, 4) for v in simulate_path(bias, 0.2, math.log(2.0), [0.0, 0.0]).tolist()]
    [0.1, 0.05]
    """
    decay, spread = _step_coefficients(process, interval_s)
    increments = spread * np.asarray(normals, dtype=np.float64)
    if len(increments):
        increments[0] += decay * (start - process.mean)
    return process.mean + pole.accumulate(increments, decay)


def _step_coefficients(process: OrnsteinUhlenbeck, elapsed_s: float) -> tuple[float, float]:
    """Return e and s sqrt(1 - e^2) of the module docstring."""
    checks.check_not_negative(elapsed_s=elapsed_s)
    elapsed_time_constants = elapsed_s / process.time_constant_s
    return math.exp(-elapsed_time_constants), process.deviation * math.sqrt(
        -math.expm1(-2.0 * elapsed_time_constants)
    )


@dataclass(frozen=True, slots=True)
class BiasDrift:
    """Drift of the null of a modulator: random, and with temperature."""

    random_part: OrnsteinUhlenbeck = field(
        default_factory=lambda: OrnsteinUhlenbeck(deviation=0.05, time_constant_s=1800.0)
    )
    """Random part of the drift, in volts about 0."""
    volt_per_kelvin: float = 0.02
    reference_temperature_c: float = 25.0
    """Temperature at which the nominal null holds."""

    def __post_init__(self) -> None:
        checks.check_finite(
            volt_per_kelvin=self.volt_per_kelvin, reference_temperature_c=self.reference_temperature_c
        )


def compute_null_v(drift: BiasDrift, nominal_v: float, drift_v: float, temperature_c: float) -> float:
    """Return the voltage of the null: nominal, plus the random drift, plus temperature in first order.

    By hand: 0.4 V + 0.03 V + 0.02 V/K * 5 K = 0.53 V.

    >>> f"{compute_null_v(BiasDrift(), 0.4, 0.03, 30.0):.3f}"
    '0.530'
    """
    return nominal_v + drift_v + drift.volt_per_kelvin * (temperature_c - drift.reference_temperature_c)
