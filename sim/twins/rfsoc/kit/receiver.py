"""The receiver: from the power on the detector to level and noise at the analogue-to-digital converter."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from sim.models.photonics import pole
from sim.models.photonics.amplifier import Amplifier, amplify_v, small_signal_gain
from sim.models.photonics.converter import Converter, converter_v2, jitter_v2
from sim.models.photonics.detector import Detector, photocurrent_a
from sim.models.photonics.noise import receiver_a2
from sim.twins.rfsoc.kit.optics import full_product_w
from sim.twins.rfsoc.kit.parameters import KitParameters

Samples = npt.NDArray[np.float64]

_NEGLIGIBLE_WEIGHT = 1e-17
"""Weight below which earlier samples are neglected; less than the rounding error of the sum."""


def detector(kit: KitParameters) -> Detector:
    """Return the kit's detector."""
    return Detector(kit.responsivity_a_w, kit.bandwidth_hz, kit.dark_current_a, kit.thermal_a_rthz)


def memory(kit: KitParameters, rate_hz: float) -> float:
    """Return the fraction of a sample that remains in the next, which is also the correlation of their noise.

    >>> round(memory(KitParameters(), 3.072e9), 5)
    0.00547
    """
    return pole.memory(detector(kit).pole_hz, rate_hz)


def count_remembered(kit: KitParameters, rate_hz: float) -> int:
    """Return the number of earlier samples that contribute to a sample.

    >>> count_remembered(KitParameters(), 6.144e9)
    16
    """
    times = 2.0 * math.pi * detector(kit).pole_hz / rate_hz
    return max(1, math.ceil(-math.log(_NEGLIGIBLE_WEIGHT) / times))


def current_a(kit: KitParameters, power_w: Samples) -> Samples:
    """Return the photocurrent in A for light (samples,), before the pole and without dark current."""
    return photocurrent_a(detector(kit), power_w)


def level(kit: KitParameters, light_a: Samples) -> Samples:
    """Return the level as a fraction of the converter's full scale, for the photocurrent after the pole."""
    volts = _linear_v(kit, light_a)
    if math.isfinite(kit.saturation_v):
        volts = amplify_v(_amplifier(kit), volts)
    return (volts + kit.offset_v) / kit.adc_full_scale_v


def noise(kit: KitParameters, light_a: Samples) -> Samples:
    """Return the standard deviation of the noise before the converter at each sample, as a fraction of full scale.

    `light_a` is the photocurrent after the pole. The amplifier amplifies noise like any small signal: where light
    saturates it, the noise is smaller. `constant` noise, that of the published emulation, does not depend on the light.
    """
    if kit.noise == "off":
        return np.zeros(len(light_a))
    if kit.noise == "constant":
        step_a = kit.responsivity_a_w * full_product_w(kit) / 255.0
        return np.full(len(light_a), kit.noise_lsb * step_a * kit.transimpedance_ohm / kit.adc_full_scale_v)
    deviation_a = np.sqrt(receiver_a2(detector(kit), kit.rin_db_hz, light_a))
    return np.asarray(deviation_a * _per_ampere(kit, light_a))


def converter_noise(kit: KitParameters, light_a: Samples, slope_a_s: Samples) -> Samples | None:
    """Return the standard deviation of the converter's noise and rounding, as a fraction of full scale.

    Return None if it only rounds. `slope_a_s` is the slope of the current, which the converter's jitter turns into
    noise.
    """
    if kit.noise != "on":
        return None
    adc = Converter(bits=32, full_scale_v=2.0, effective_bits=kit.adc_enob, jitter_s=kit.jitter_s)
    return np.sqrt(converter_v2(adc) + jitter_v2(adc, slope_a_s * _per_ampere(kit, light_a)))


def _per_ampere(kit: KitParameters, light_a: Samples) -> Samples | float:
    """Return the change of the level, as a fraction of full scale, for a change of the current by one ampere."""
    small: Samples | float = 1.0
    if math.isfinite(kit.saturation_v):
        small = small_signal_gain(_amplifier(kit), _linear_v(kit, light_a))
    return small * kit.transimpedance_ohm / kit.adc_full_scale_v


def _linear_v(kit: KitParameters, light_a: Samples) -> Samples:
    return (light_a + kit.dark_current_a) * kit.transimpedance_ohm


def _amplifier(kit: KitParameters) -> Amplifier:
    return Amplifier(gain=1.0, saturation_v=kit.saturation_v)


def slope_a_s(kit: KitParameters, before_a: Samples, behind_a: Samples) -> Samples:
    """Return the slope of the current after the pole in A/s: 2 pi f_3dB times the difference of both currents."""
    return 2.0 * math.pi * detector(kit).pole_hz * (before_a - behind_a)
