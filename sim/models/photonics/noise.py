"""Noise of a receiver as a function of the light.

Results are variances of the current in A^2, in a noise-equivalent bandwidth B: one-sided densities times B. (`pole`
converts B to and from the 3 dB bandwidth.) Variances of independent sources add.

    shot        2 q I B            the deviation grows with the square root of the current
    thermal     i_n^2 B            constant
    intensity   10^(RIN/10) I^2 B  the deviation is proportional to the current

Functions of a current take a number or an array and return the same type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from sim.models.photonics import checks, pole
from sim.models.photonics.constants import (
    BOLTZMANN_J_K,
    ELEMENTARY_CHARGE_C,
    ROOM_TEMPERATURE_K,
)
from sim.models.photonics.decibels import convert_db_to_power_ratio
from sim.models.photonics.detector import Detector

Array = npt.NDArray[np.float64]
Quantity = TypeVar("Quantity", float, Array)


def compute_shot_noise_a2(current_a: Quantity, bandwidth_hz: float) -> Quantity:
    """Return the shot noise, 2 q I B, of the whole current, with dark current.

    W. Schottky 1918; S. Kumar and M. J. Deen, Fiber Optic Communications, equations 5.70 and 5.72. 1 mA in 4
    GHz: 2 * 1.602e-19 * 1e-3 * 4e9 = 1.282e-12 A^2, a deviation of 1.13 uA.

    >>> f"{compute_shot_noise_a2(1e-3, 4e9) ** 0.5 * 1e6:.3f} uA"
    '1.132 uA'
    """
    return 2.0 * ELEMENTARY_CHARGE_C * bandwidth_hz * current_a


def compute_thermal_noise_a2(density_a_rthz: float, bandwidth_hz: float) -> float:
    """Return the noise of the transimpedance amplifier, i_n^2 B, from its input-referred density in A per root Hz.

    20 pA per root Hz in 4 GHz: 20e-12 * 63246 = 1.265 uA.

    >>> f"{compute_thermal_noise_a2(20e-12, 4e9) ** 0.5 * 1e6:.3f} uA"
    '1.265 uA'
    """
    return density_a_rthz**2 * bandwidth_hz


def compute_resistor_noise_a_rthz(
    resistance_ohm: float, temperature_k: float = ROOM_TEMPERATURE_K, noise_figure_db: float = 0.0
) -> float:
    """Return the noise density of a load resistor followed by an amplifier, sqrt(4 k T F / R), in A per root Hz.

    H. Nyquist, Phys. Rev. 32 (1928) 110; with the noise figure, G. P. Agrawal, Fiber-Optic Communication
    Systems, on receiver noise. 50 ohm at 290 K: 17.9 pA per root Hz.

    >>> f"{compute_resistor_noise_a_rthz(50.0) * 1e12:.1f}"
    '17.9'
    """
    checks.check_positive(resistance_ohm=resistance_ohm, temperature_k=temperature_k)
    power = 4.0 * BOLTZMANN_J_K * temperature_k * convert_db_to_power_ratio(noise_figure_db)
    return float(np.sqrt(power / resistance_ohm))


def compute_intensity_noise_a2(current_a: Quantity, rin_db_hz: float, bandwidth_hz: float) -> Quantity:
    """Return the relative intensity noise of the laser, 10^(RIN/10) I^2 B, for the photocurrent I without dark current.

    Agrawal, on intensity noise: sigma_I = R P r_I with r_I^2 the integral of RIN. -140 dB/Hz in 4 GHz:
    sqrt(1e-14 * 4e9) = 0.632 % of the current.

    >>> f"{compute_intensity_noise_a2(1e-3, -140.0, 4e9) ** 0.5 * 1e6:.3f} uA"
    '6.325 uA'
    """
    return convert_db_to_power_ratio(rin_db_hz) * bandwidth_hz * current_a * current_a


NoiseFunction = Callable[[Detector, float, Any], Any]
"""A function from detector, RIN of the laser in dB/Hz and photocurrent in A (number or array) to a variance in A^2."""


def _compute_detector_shot_noise(detector: Detector, _: float, current_a: Quantity) -> Quantity:
    return compute_shot_noise_a2(current_a + detector.dark_current_a, detector.noise_bandwidth_hz)


def _compute_detector_thermal_noise(detector: Detector, _: float, __: Quantity) -> float:
    return compute_thermal_noise_a2(detector.thermal_a_rthz, detector.noise_bandwidth_hz)


def _compute_detector_intensity_noise(detector: Detector, rin_db_hz: float, current_a: Quantity) -> Quantity:
    return compute_intensity_noise_a2(current_a, rin_db_hz, detector.noise_bandwidth_hz)


NOISE_SOURCES: Mapping[str, NoiseFunction] = {
    "shot": _compute_detector_shot_noise,
    "thermal": _compute_detector_thermal_noise,
    "intensity": _compute_detector_intensity_noise,
}
"""Noise sources of a receiver. The simulated kit, the budget of a link and the documentation use this table."""


def compute_receiver_noise_a2(detector: Detector, rin_db_hz: float, current_a: Quantity) -> Quantity:
    """Return the sum of all `NOISE_SOURCES` for a photocurrent. Shot noise includes the noise of the dark current.

    By hand at 1 mA: 1.132^2 + 1.265^2 + 6.325^2 = 42.88 uA^2, a deviation of 6.548 uA.

    >>> f"{compute_receiver_noise_a2(Detector(), -140.0, 1e-3) ** 0.5 * 1e6:.3f} uA"
    '6.548 uA'
    """
    total: Quantity = sum(noise(detector, rin_db_hz, current_a) for noise in NOISE_SOURCES.values())
    return total


def draw_correlated_normals(
    generator: np.random.Generator, shape: tuple[int, ...], correlation: float
) -> Array:
    """Draw normal numbers of variance 1 whose neighbours along the last axis are correlated.

    A stationary first-order autoregression, z[n] = rho z[n-1] + sqrt(1 - rho^2) w[n] (Box and Jenkins, Time Series
    Analysis). Samples of white noise after a pole have this form; multiply the result by the deviation of each sample.
    Raise ValueError unless 0 <= correlation < 1.
    """
    if not 0.0 <= correlation < 1.0:
        raise ValueError(f"correlation is {correlation}: it must be at least 0 and below 1")
    numbers = generator.standard_normal(shape)
    if correlation == 0.0 or not shape[-1]:
        return numbers
    numbers[..., 1:] *= np.sqrt(1.0 - correlation**2)
    return pole.accumulate(numbers, correlation)
