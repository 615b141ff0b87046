"""The receiver: from the power on the detector to level and noise at the analogue-to-digital converter."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from sim.models.photonics import pole
from sim.models.photonics.amplifier import Amplifier, amplify_v, compute_small_signal_gain
from sim.models.photonics.converter import Converter, compute_converter_noise_v2, compute_jitter_noise_v2
from sim.models.photonics.detector import Detector, compute_photocurrent_a
from sim.models.photonics.noise import compute_receiver_noise_a2
from sim.twins.rfsoc.kit.optics import compute_full_product_w
from sim.twins.rfsoc.kit.parameters import KitParameters

Samples = npt.NDArray[np.float64]

_NEGLIGIBLE_WEIGHT = 1e-17
"""Earlier samples with less weight are neglected. This weight is less than the rounding error of the sum."""


def make_detector(kit: KitParameters) -> Detector:
    """Return the kit's detector."""
    return Detector(kit.responsivity_a_w, kit.bandwidth_hz, kit.dark_current_a, kit.thermal_a_rthz)


def compute_decay(kit: KitParameters, rate_hz: float) -> float:
    """Return the fraction of a sample that remains in the next sample. The noise of both has the same correlation.

    >>> round(compute_decay(KitParameters(), 3.072e9), 5)
    0.00547
    """
    return pole.compute_decay(make_detector(kit).pole_hz, rate_hz)


def count_contributing_samples(kit: KitParameters, rate_hz: float) -> int:
    """Return the number of earlier samples that contribute to a sample.

    >>> count_contributing_samples(KitParameters(), 6.144e9)
    16
    """
    decay_exponent = 2.0 * math.pi * make_detector(kit).pole_hz / rate_hz
    return max(1, math.ceil(-math.log(_NEGLIGIBLE_WEIGHT) / decay_exponent))


def compute_current_a(kit: KitParameters, power_w: Samples) -> Samples:
    """Return the photocurrent in A, before the pole and without dark current, for light (samples,)."""
    return compute_photocurrent_a(make_detector(kit), power_w)


def compute_level(kit: KitParameters, photocurrent_a: Samples) -> Samples:
    """Return the level as a fraction of the converter's full scale, for the photocurrent after the pole."""
    volts = _compute_linear_v(kit, photocurrent_a)
    if math.isfinite(kit.saturation_v):
        volts = amplify_v(_make_amplifier(kit), volts)
    return (volts + kit.offset_v) / kit.adc_full_scale_v


def compute_noise(kit: KitParameters, photocurrent_a: Samples) -> Samples:
    """Return the standard deviation of the noise before the converter at each sample, as a fraction of full scale.

    `photocurrent_a` is the photocurrent after the pole. The amplifier treats noise as a small signal, so the noise is
    smaller where light saturates the amplifier. `constant` noise is the noise of the published emulation, and does not
    depend on the light.
    """
    if kit.noise == "off":
        return np.zeros(len(photocurrent_a))
    if kit.noise == "constant":
        step_a = kit.responsivity_a_w * compute_full_product_w(kit) / 255.0
        return np.full(
            len(photocurrent_a), kit.noise_lsb * step_a * kit.transimpedance_ohm / kit.adc_full_scale_v
        )
    deviation_a = np.sqrt(compute_receiver_noise_a2(make_detector(kit), kit.rin_db_hz, photocurrent_a))
    return np.asarray(deviation_a * _compute_level_per_ampere(kit, photocurrent_a))


def compute_converter_noise(
    kit: KitParameters, photocurrent_a: Samples, slope_a_s: Samples
) -> Samples | None:
    """Return the standard deviation of the converter's noise and rounding, as a fraction of full scale.

    Return None if the converter only rounds. `slope_a_s` is the slope of the current. The converter's jitter makes
    noise from this slope.
    """
    if kit.noise != "on":
        return None
    adc = Converter(bits=32, full_scale_v=2.0, effective_bits=kit.adc_enob, jitter_s=kit.jitter_s)
    return np.sqrt(
        compute_converter_noise_v2(adc)
        + compute_jitter_noise_v2(adc, slope_a_s * _compute_level_per_ampere(kit, photocurrent_a))
    )


def _compute_level_per_ampere(kit: KitParameters, photocurrent_a: Samples) -> Samples | float:
    """Return the change of the level, as a fraction of full scale, per ampere of the current."""
    relative_gain: Samples | float = 1.0
    if math.isfinite(kit.saturation_v):
        relative_gain = compute_small_signal_gain(
            _make_amplifier(kit), _compute_linear_v(kit, photocurrent_a)
        )
    return relative_gain * kit.transimpedance_ohm / kit.adc_full_scale_v


def _compute_linear_v(kit: KitParameters, photocurrent_a: Samples) -> Samples:
    return (photocurrent_a + kit.dark_current_a) * kit.transimpedance_ohm


def _make_amplifier(kit: KitParameters) -> Amplifier:
    return Amplifier(gain=1.0, saturation_v=kit.saturation_v)


def compute_slope_a_s(kit: KitParameters, unfiltered_a: Samples, filtered_a: Samples) -> Samples:
    """Return the slope of the current after the pole in A/s: 2 pi f_3dB (current before - current after the pole)."""
    return 2.0 * math.pi * make_detector(kit).pole_hz * (unfiltered_a - filtered_a)
