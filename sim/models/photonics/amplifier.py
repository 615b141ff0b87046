"""A driver or receiver amplifier: gain, saturation, added noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sim.models.photonics import checks
from sim.models.photonics.constants import BOLTZMANN_J_K, ROOM_TEMPERATURE_K
from sim.models.photonics.decibels import convert_db_to_power_ratio

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Amplifier:
    """A memoryless voltage amplifier, such as a differential amplifier that drives a modulator."""

    gain: float = 12.0
    """Volts per volt for small signals."""
    saturation_v: float = 12.0
    """Limit of the output, for both signs."""
    sharpness: float = 4.0
    """Sharpness p of the saturation: 1 is soft, 10 is almost a hard limit."""
    noise_figure_db: float = 10.0

    def __post_init__(self) -> None:
        checks.check_positive(saturation_v=self.saturation_v, sharpness=self.sharpness)
        checks.check_finite(gain=self.gain)
        checks.check_not_negative(noise_figure_db=self.noise_figure_db)


def amplify_v(amplifier: Amplifier, input_v: npt.ArrayLike) -> Array:
    """Return the output voltage, g v / (1 + |g v / V_sat|^(2p))^(1 / (2p)).

    C. Rapp, "Effects of HPA-nonlinearity on a 4-DPSK/OFDM-signal", 2nd European Conference on Satellite
    Communications, 1991.

    By hand with p = 1 and a linear output of V_sat: V_sat / sqrt(2).

    >>> soft = Amplifier(gain=10.0, saturation_v=5.0, sharpness=1.0)
    >>> f"{amplify_v(soft, 0.5):.4f} {amplify_v(soft, 0.001):.5f}"
    '3.5355 0.01000'
    """
    linear_v = amplifier.gain * np.asarray(input_v, dtype=np.float64)
    overdrive = np.power(np.abs(linear_v / amplifier.saturation_v), 2.0 * amplifier.sharpness)
    output: Array = linear_v / np.power(1.0 + overdrive, 0.5 / amplifier.sharpness)
    return output


def compute_small_signal_gain(amplifier: Amplifier, input_v: npt.ArrayLike) -> Array:
    """Return the gain for small signals, such as noise, about an input voltage.

    The derivative of `amplify_v`: g (1 + |g v / V_sat|^(2p))^(-1 / (2p) - 1).

    By hand with p = 1 and a linear output of V_sat: g / 2^(3/2).

    >>> soft = Amplifier(gain=10.0, saturation_v=5.0, sharpness=1.0)
    >>> f"{compute_small_signal_gain(soft, 0.5):.4f} {compute_small_signal_gain(soft, 0.0):.1f}"
    '3.5355 10.0'
    """
    overdrive = np.power(
        np.abs(amplifier.gain * np.asarray(input_v, dtype=np.float64) / amplifier.saturation_v),
        2.0 * amplifier.sharpness,
    )
    slope: Array = amplifier.gain * np.power(1.0 + overdrive, -0.5 / amplifier.sharpness - 1.0)
    return slope


def compute_compression_point_v(amplifier: Amplifier, compression_db: float = 1.0) -> float:
    """Return the output voltage at which the gain is `compression_db` below the small-signal gain.

    The solution of the equation of `amplify_v` with c = 10^(-dB/20): V_sat (1 - c^(2p))^(1 / (2p)).

    >>> f"{compute_compression_point_v(Amplifier(saturation_v=1.0, sharpness=1.0)):.4f}"
    '0.4535'
    """
    checks.check_positive(compression_db=compression_db)
    gain_ratio = convert_db_to_power_ratio(-compression_db * amplifier.sharpness)
    return float(amplifier.saturation_v * (1.0 - gain_ratio) ** (0.5 / amplifier.sharpness))


def compute_output_noise_v2(amplifier: Amplifier, bandwidth_hz: float, resistance_ohm: float = 50.0) -> float:
    """Return the variance of the noise that the amplifier adds at its output, k T0 (F - 1) B R g^2.

    Input noise k T0 (F - 1) B into a matched `resistance_ohm` (H. T. Friis, Proc. IRE 32 (1944) 419). 10 dB
    in 4 GHz at 50 ohm and a gain of 12: 1.3806e-23 * 290 * 9 * 4e9 * 50 * 144 gives 1.02 mV.

    >>> f"{compute_output_noise_v2(Amplifier(), 4e9) ** 0.5 * 1e3:.2f} mV"
    '1.02 mV'
    """
    checks.check_positive(bandwidth_hz=bandwidth_hz, resistance_ohm=resistance_ohm)
    added_w = (
        BOLTZMANN_J_K
        * ROOM_TEMPERATURE_K
        * (convert_db_to_power_ratio(amplifier.noise_figure_db) - 1.0)
        * bandwidth_hz
    )
    return added_w * resistance_ohm * amplifier.gain**2


def compute_cascade_noise_figure_db(*stages: tuple[float, float]) -> float:
    """Return the noise figure of cascaded stages, each given as (noise figure, power gain) in dB.

    F1 + (F2 - 1) / G1 + ... (Friis). 3 dB with 20 dB of gain before 10 dB: 1.995 + 9 / 100 = 2.085, 3.19 dB.

    >>> f"{compute_cascade_noise_figure_db((3.0, 20.0), (10.0, 0.0)):.2f}"
    '3.19'
    """
    factor, gain = 1.0, 1.0
    for figure_db, gain_db in stages:
        factor += (convert_db_to_power_ratio(figure_db) - 1.0) / gain
        gain *= convert_db_to_power_ratio(gain_db)
    return float(10.0 * np.log10(factor))
