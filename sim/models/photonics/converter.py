"""Converters between voltages and codes: steps, clipping, effective bits, aperture jitter."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sim.models.photonics import checks

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Converter:
    """An analogue-to-digital or digital-to-analogue converter, two's complement about 0 V."""

    bits: int = 12
    full_scale_v: float = 1.0
    """Peak to peak: codes represent -full_scale/2 to one step below +full_scale/2."""
    effective_bits: float = 9.0
    """ENOB, with all noise and distortion of the converter; equal to `bits` for an ideal converter."""
    jitter_s: float = 0.0
    """Standard deviation of the sampling instant. The ENOB of a data sheet often includes this jitter at the test
    frequency."""

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 32:
            raise ValueError(f"bits is {self.bits}: it must be between 1 and 32")
        checks.check_positive(full_scale_v=self.full_scale_v)
        checks.check_not_negative(jitter_s=self.jitter_s)
        if not 0.0 < self.effective_bits <= self.bits:
            raise ValueError(
                f"effective_bits is {self.effective_bits}: it must be above 0 and no more than the {self.bits} bits"
            )

    @property
    def step_v(self) -> float:
        """Voltage of one code.

        >>> f"{Converter(bits=12, full_scale_v=1.0).step_v * 1e6:.1f} uV"
        '244.1 uV'
        """
        return math.ldexp(self.full_scale_v, -self.bits)


def quantise_voltages(converter: Converter, voltage_v: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return the code of each voltage: the nearest code, ties to even, clipped to the range.

    >>> quantise_voltages(
    ...     Converter(bits=4, full_scale_v=16.0, effective_bits=4.0), [-99.0, -0.4, 2.6, 99.0]
    ... ).tolist()
    [-8, 0, 3, 7]
    """
    half_range = 1 << (converter.bits - 1)
    nearest_code = np.rint(np.asarray(voltage_v, dtype=np.float64) / converter.step_v)
    return np.clip(nearest_code, -half_range, half_range - 1).astype(np.int64)


def compute_voltages_v(converter: Converter, code: npt.ArrayLike) -> Array:
    """Return the voltage of each code."""
    volts: Array = np.asarray(code, dtype=np.float64) * converter.step_v
    return volts


def is_clipped(converter: Converter, voltage_v: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Return a mask of voltages more than half a step outside the range, whose code is not the nearest."""
    steps = np.asarray(voltage_v, dtype=np.float64) / converter.step_v
    half_range = 1 << (converter.bits - 1)
    return np.asarray((steps < -half_range - 0.5) | (steps > half_range - 0.5))


def compute_quantisation_noise_v2(converter: Converter) -> float:
    """Return the variance of the rounding error of a signal that spans many steps: step^2 / 12.

    W. R. Bennett, "Spectra of quantized signals", Bell System Technical Journal 27 (1948) 446.

    >>> f"{compute_quantisation_noise_v2(Converter(bits=12)) ** 0.5 * 1e6:.1f} uV"
    '70.5 uV'
    """
    return converter.step_v**2 / 12.0


def compute_converter_noise_v2(converter: Converter) -> float:
    """Return the variance of all noise of the converter, which an ideal converter of ENOB bits has, too.

    (full scale / 2^ENOB)^2 / 12 (IEEE Standard 1241, definition of the effective number of bits). 9 bits of
    255 LSB: 255 / (3.4641 * 512) = 0.144 LSB.

    >>> f"{compute_converter_noise_v2(Converter(full_scale_v=255.0)) ** 0.5:.4f}"
    '0.1438'
    """
    return float((converter.full_scale_v / 2.0**converter.effective_bits) ** 2 / 12.0)


def compute_excess_noise_v2(converter: Converter) -> float:
    """Return the variance to add before rounding, so that the sum with rounding is `compute_converter_noise_v2`.

    The result is 0 for an ideal converter.

    >>> ideal = Converter(bits=12, effective_bits=12.0)
    >>> compute_excess_noise_v2(ideal)
    0.0
    """
    return compute_converter_noise_v2(converter) - compute_quantisation_noise_v2(converter)


def compute_jitter_noise_v2(converter: Converter, slope_v_s: npt.ArrayLike) -> Array:
    """Return the variance of the error due to jitter of the sampling instant, (dV/dt t_j)^2, in first order.

    W. Kester, Analog Devices tutorial MT-007, "Aperture time, aperture jitter, aperture delay time". A step
    of 1 V in 100 ps, 100 fs of jitter: 1 mV.

    >>> f"{compute_jitter_noise_v2(Converter(jitter_s=100e-15), 1e10) ** 0.5 * 1e3:.1f} mV"
    '1.0 mV'
    """
    error_v = np.asarray(slope_v_s, dtype=np.float64) * converter.jitter_s
    return np.square(error_v)


def compute_jitter_snr_db(frequency_hz: float, jitter_s: float) -> float:
    """Return the signal-to-noise ratio of a sine with jitter only: -20 log10(2 pi f t_j) (Kester, MT-007).

    1 GHz with 100 fs: 64.0 dB, the quantisation noise of 10.3 bits.

    >>> snr_db = compute_jitter_snr_db(1e9, 100e-15)
    >>> f"{snr_db:.1f} dB, {compute_effective_bits(snr_db):.1f} bits"
    '64.0 dB, 10.3 bits'
    """
    checks.check_positive(frequency_hz=frequency_hz, jitter_s=jitter_s)
    return -20.0 * math.log10(2.0 * math.pi * frequency_hz * jitter_s)


def compute_ideal_snr_db(bits: float) -> float:
    """Return the ratio of a full-scale sine to quantisation noise: 10 log10(3/2 * 4^N), or 6.02 N + 1.76 dB.

    W. Kester, Analog Devices tutorial MT-001.

    >>> f"{compute_ideal_snr_db(12.0):.2f}"
    '74.01'
    """
    return 10.0 * (math.log10(1.5) + bits * math.log10(4.0))


def compute_effective_bits(snr_db: float) -> float:
    """Return the bits of an ideal converter with this signal-to-noise ratio: the inverse of `compute_ideal_snr_db`."""
    return (snr_db / 10.0 - math.log10(1.5)) / math.log10(4.0)
