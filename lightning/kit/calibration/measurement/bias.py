"""Bias points of a modulator: null, quadrature and peak, found with the bias supply.

With a word of zero on the generator a modulator stands where its bias puts it. The kit wants the null there: no
word, no light. The supply is swept, the light fitted by a fringe in volts, and the null nearest to the present
voltage taken that the supply reaches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lightning.kit.calibration.fringe import Floats, Fringe, fit
from lightning.kit.calibration.measurement.transfer import GUESSES, PARTNER, Rows

POINTS = 33
SPAN_V = 10.0
"""Of a sweep, inside the supply's limits: about one period of a modulator with V_pi = 5 V."""


class Supply(Protocol):
    """Functions of `lightning.kit.instruments.BiasSupply` that are needed; outputs are counted from 1."""

    @property
    def limit_v(self) -> float:
        """The highest voltage that may be set."""
        ...

    def set_voltage_v(self, output: int, voltage_v: float) -> None:
        """Set an output."""
        ...

    def voltage_v(self, output: int) -> float:
        """Voltage at an output."""
        ...


@dataclass(frozen=True, slots=True)
class BiasPoint:
    """The bias of one modulator, in volts."""

    null_v: float
    quadrature_v: float
    peak_v: float
    half_wave_v: float
    before_v: float
    """What was set before."""
    visibility: float
    """Swing of the light over the sweep against the residuals of its fit."""


def search(rows: Rows, supply: Supply, index: int, *, shots: int = 4) -> BiasPoint:
    """Sweep the bias of modulator `index` and set it to the null.

    Of a few words for the partner the one that shows the greatest swing is believed. The old voltage is set again
    when no fringe is found, which raises `ValueError`.
    """
    output = index + 1
    before = supply.voltage_v(output)
    volts = _volts(before, supply.limit_v)
    try:
        levels = _swept(rows, supply, index, volts, shots)
        curve = fit(volts - before, levels[:, int(np.argmax(np.ptp(levels, axis=0)))])
        point = _point(curve, before, supply.limit_v)
    except ValueError:
        supply.set_voltage_v(output, before)
        raise
    supply.set_voltage_v(output, point.null_v)
    return point


def _swept(rows: Rows, supply: Supply, index: int, volts: Floats, shots: int) -> Floats:
    """Return (volts, guesses): detector counts with the modulator's word at zero, idle level added back."""
    table = np.zeros((len(GUESSES), 4), dtype=np.int64)
    table[:, PARTNER[index]] = GUESSES
    levels = np.empty((volts.size, len(GUESSES)))
    for row, voltage in enumerate(volts):
        supply.set_voltage_v(index + 1, float(voltage))
        readings = rows.read(table, shots=shots)
        levels[row] = readings.levels + readings.idle
    return levels


def _volts(before: float, limit: float) -> Floats:
    low = min(max(0.0, before - SPAN_V / 2), max(0.0, limit - SPAN_V))
    return np.linspace(low, min(limit, low + SPAN_V), POINTS)


def _point(curve: Fringe, before: float, limit: float) -> BiasPoint:
    """Raise `ValueError` when the sweep shows no fringe, or none of its nulls is within the supply's reach."""
    visibility = curve.amplitude / max(curve.rms, 1e-12)
    if visibility < 10:
        raise ValueError(
            f"the light does not follow the bias (swing is {visibility:.1f} times the residuals)"
        )
    period = 2 * curve.half_wave
    nulls = [before + curve.null + n * period for n in (-1, 0, 1)]
    reached = [null for null in nulls if 0.0 <= null <= limit]
    if not reached:
        raise ValueError(f"no null lies between 0 V and {limit:.1f} V")
    null = min(reached, key=lambda candidate: abs(candidate - before))
    half = curve.half_wave
    return BiasPoint(null, null + half / 2, null + half, half, before, visibility)
