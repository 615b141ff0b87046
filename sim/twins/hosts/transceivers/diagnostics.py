"""Measurements of a module, in the units of its memory: the standards share these and differ in the places.

Power is in 0.1 uW, bias current in 2 uA, voltage in 0.1 mV, temperature in 1/256 degree Celsius, each in two bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sim.models.light import milliwatt

TEMPERATURE_C = 38.5
VOLTAGE_V = 3.3
BIAS_MA = 45.0
_LARGEST = 0xFFFF
# High and low alarm, high and low warning: of a module that fits the laser of the lab, so that a healthy lab raises
# none of them. A receiver bears 3 dB more than the laser sends, and needs some 14 dB less, as long-reach modules do.
_TRANSMIT_DB = (3.0, -4.0, 2.0, -3.0)
_RECEIVE_DB = (3.0, -14.0, 2.0, -11.0)


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds of one quantity in the order of every standard: high and low alarm, high and low warning."""

    values: tuple[int, int, int, int]

    @property
    def memory(self) -> bytes:
        """The eight bytes of the thresholds."""
        return b"".join(word(value) for value in self.values)

    def flags(self, value: int) -> tuple[bool, bool, bool, bool]:
        """Return which thresholds a value crosses, in the same order."""
        high_alarm, low_alarm, high_warning, low_warning = self.values
        return value > high_alarm, value < low_alarm, value > high_warning, value < low_warning


@dataclass(frozen=True, slots=True)
class Quantity:
    """A measured quantity, one value or one a lane, with its thresholds."""

    values: tuple[int, ...]
    limits: Limits

    @property
    def memory(self) -> bytes:
        """The values, two bytes each."""
        return b"".join(word(value) for value in self.values)

    @property
    def flags(self) -> tuple[tuple[bool, bool, bool, bool], ...]:
        """The crossed thresholds, by value."""
        return tuple(self.limits.flags(value) for value in self.values)


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """Everything that a module measures; bias and powers are by lane."""

    temperature: Quantity
    voltage: Quantity
    bias: Quantity
    transmit: Quantity
    receive: Quantity


def measure(lanes: int, laser_dbm: float, transmitted_dbm: float, received_dbm: float) -> Diagnostics:
    """Return what a module of so many lanes measures.

    The lanes are wavelengths on one fibre and share its light equally. `laser_dbm` is what the lab's lasers send,
    `transmitted_dbm` what this one does now: minus infinity where it is off.
    """
    share_db = 10 * math.log10(lanes)
    lane_dbm = laser_dbm - share_db
    bias = scaled(BIAS_MA, 500) if transmitted_dbm > -math.inf else 0
    return Diagnostics(
        temperature=_quantity([TEMPERATURE_C], (75, -5, 70, 0), 256),
        voltage=_quantity([VOLTAGE_V], (3.63, 2.97, 3.465, 3.135), 10_000),
        bias=Quantity((bias,) * lanes, _limits((100, 10, 90, 15), 500)),
        transmit=_power(transmitted_dbm - share_db, lanes, lane_dbm, _TRANSMIT_DB),
        receive=_power(received_dbm - share_db, lanes, lane_dbm, _RECEIVE_DB),
    )


def _quantity(values: Sequence[float], limits: Sequence[float], scale: float) -> Quantity:
    return Quantity(tuple(scaled(value, scale) for value in values), _limits(limits, scale))


def _limits(limits: Sequence[float], scale: float) -> Limits:
    high_alarm, low_alarm, high_warning, low_warning = (scaled(value, scale) for value in limits)
    return Limits((high_alarm, low_alarm, high_warning, low_warning))


def _power(dbm: float, lanes: int, laser_dbm: float, limits_db: Sequence[float]) -> Quantity:
    limits = [milliwatt(laser_dbm + difference) for difference in limits_db]
    return Quantity((scaled(milliwatt(dbm), 10_000),) * lanes, _limits(limits, 10_000))


def scaled(value: float, scale: float) -> int:
    """Return a value in units of the memory, as large as two bytes hold at most.

    >>> scaled(milliwatt(-3.0), 10_000), scaled(milliwatt(float("-inf")), 10_000)
    (5012, 0)
    """
    return min(round(value * scale), _LARGEST)


def word(value: int) -> bytes:
    """Return two bytes, the high one first; negative values are in two's complement.

    >>> word(-1280).hex()
    'fb00'
    """
    return (value & _LARGEST).to_bytes(2, "big")
