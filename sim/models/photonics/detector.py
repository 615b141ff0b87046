"""Photodiode and receiver: light to current, with limited bandwidth and noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sim.models.photonics import checks, pole
from sim.models.photonics.constants import ELEMENTARY_CHARGE_C
from sim.models.photonics.laser import compute_photon_energy_j

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Detector:
    """A PIN photodiode with its transimpedance amplifier. Raise ValueError for impossible parameters."""

    responsivity_a_w: float = 1.0
    noise_bandwidth_hz: float = 4e9
    """Noise-equivalent bandwidth of the whole receiver up to the converter; its 3 dB pole is `pole_hz`."""
    dark_current_a: float = 5e-9
    thermal_a_rthz: float = 20e-12
    """Input-referred current noise of the transimpedance amplifier, in A per square root of Hz."""

    def __post_init__(self) -> None:
        checks.check_positive(
            responsivity_a_w=self.responsivity_a_w, noise_bandwidth_hz=self.noise_bandwidth_hz
        )
        checks.check_not_negative(dark_current_a=self.dark_current_a, thermal_a_rthz=self.thermal_a_rthz)

    @property
    def pole_hz(self) -> float:
        """Frequency at which the power of a sine has fallen to a half: the noise bandwidth times 2 / pi."""
        return pole.compute_pole_hz(self.noise_bandwidth_hz)


def compute_photocurrent_a(detector: Detector, power_w: npt.ArrayLike) -> Array:
    """Return the photocurrent without dark current, R P (S. Kumar and M. J. Deen, Fiber Optic Communications, 5.2).

    >>> f"{compute_photocurrent_a(Detector(responsivity_a_w=0.95), 1e-3) * 1e3:.2f} mA"
    '0.95 mA'
    """
    current_a: Array = detector.responsivity_a_w * np.asarray(power_w, dtype=np.float64)
    return current_a


def detect_current_a(detector: Detector, power_w: npt.ArrayLike, rate_hz: float) -> Array:
    """Return the current (samples,) after the pole, with dark current, of light (samples,) sampled at `rate_hz`.

    By hand, one sample after a step from dark to 1 mW at 3.072 GS/s: 1 - exp(-5.208) = 0.9945 of 1 mA.

    >>> step = [0.0, 1e-3, 1e-3]
    >>> [f"{i * 1e3:.4f}" for i in detect_current_a(Detector(dark_current_a=0.0), step, 3.072e9)]
    ['0.0000', '0.9945', '1.0000']
    """
    decay = pole.compute_decay(detector.pole_hz, rate_hz)
    return pole.filter_staircase(compute_photocurrent_a(detector, power_w), decay) + detector.dark_current_a


def compute_responsivity_a_w(quantum_efficiency: float, wavelength_m: float) -> float:
    """Return the responsivity, R = eta q wavelength / (h c) (Kumar and Deen, 5.2).

    A perfect photodiode at 1550 nm gives 1.25 A/W; 1 A/W corresponds to a quantum efficiency of 80 %.

    >>> f"{compute_responsivity_a_w(0.8, 1550e-9):.3f}"
    '1.000'
    """
    return quantum_efficiency * ELEMENTARY_CHARGE_C / compute_photon_energy_j(wavelength_m)
