"""Conversions of decibels.

A ratio in dB is ten times the decimal logarithm of a ratio of powers, or twenty times the decimal logarithm of a ratio
of voltages.
"""

from __future__ import annotations

import math


def convert_db_to_power_ratio(value_db: float) -> float:
    """Return the ratio of powers of a gain in dB: 10 ** (dB / 10).

    >>> f"{convert_db_to_power_ratio(3.0):.4f} {convert_db_to_power_ratio(-140.0):.0e}"
    '1.9953 1e-14'
    """
    return math.pow(10.0, value_db / 10.0)


def convert_loss_to_transmission(loss_db: float) -> float:
    """Return the fraction of the power that a loss in dB (a positive number) transmits.

    >>> f"{convert_loss_to_transmission(4.0):.4f}"
    '0.3981'
    """
    return convert_db_to_power_ratio(-loss_db)


def convert_db_to_voltage_ratio(value_db: float) -> float:
    """Return the ratio of voltages of a gain in dB: 10 ** (dB / 20).

    >>> f"{convert_db_to_voltage_ratio(20.0):.1f}"
    '10.0'
    """
    return math.pow(10.0, value_db / 20.0)


def convert_power_ratio_to_db(ratio: float) -> float:
    """Return a ratio of powers in dB. Raise ValueError unless the ratio is above zero.

    A modulator that leaks 1 of 255 steps has an extinction of 24.1 dB:

    >>> f"{convert_power_ratio_to_db(255.0):.2f}"
    '24.07'
    """
    if not ratio > 0.0:
        raise ValueError(f"a ratio of {ratio} has no decibels: it must be above 0")
    return 10.0 * math.log10(ratio)


def convert_dbm_to_watts(power_dbm: float) -> float:
    """Convert a power from dBm to W.

    >>> f"{convert_dbm_to_watts(0.0):.3f} {convert_dbm_to_watts(10.0):.3f}"
    '0.001 0.010'
    """
    return 1e-3 * convert_db_to_power_ratio(power_dbm)


def convert_watts_to_dbm(power_w: float) -> float:
    """Convert a power from W to dBm. Raise ValueError unless the power is above zero.

    >>> f"{convert_watts_to_dbm(0.5e-3):.2f}"
    '-3.01'
    """
    return convert_power_ratio_to_db(power_w / 1e-3)
