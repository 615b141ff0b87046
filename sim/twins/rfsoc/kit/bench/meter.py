"""An optical power meter with the commands of Thorlabs' PM100/PM103 (`MEAS:POW?`), at the tap before the detector.

The meter is slow, so it reads the light only while the generators are idle. The power is the photocurrent divided by
the responsivity at the wavelength setting. The responsivity is proportional to the wavelength, so a wrong wavelength
setting results in a wrong power. Public drivers confirm the headers. Assumptions: a reading has 20 pW of noise, a mean
of n readings has sqrt(n) times less noise, and a mean takes no additional time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from sim.twins.frontends.scpi import ErrorQueue, Handler, ScpiError
from sim.twins.rfsoc.kit.bench.instrument import get_single_parameter, make_common_commands, parse_number
from sim.twins.rfsoc.kit.optics import compute_tap_power_w
from sim.twins.rfsoc.kit.state import KitState

WAVELENGTH_RANGE_NM = (800.0, 1700.0)
AVERAGES_RANGE = (1.0, 10_000.0)
READING_NOISE_W = 20e-12
_NOT_A_NUMBER = "9.91000000E+37"
"""Not a number (SCPI-99 volume 1, 7.2.1.5)."""


class MeterTwin:
    """Commands of the power meter at the tap of a kit."""

    def __init__(self, state: KitState, rng: np.random.Generator, error_queue: ErrorQueue) -> None:
        self._state = state
        self._rng = rng
        self._errors = error_queue
        self._unit = "W"
        self._wavelength_nm = 1550.0
        self._average_count = 1

    def make_handlers(self, serial: str) -> Mapping[str, Handler]:
        """Return the command handlers by header."""
        return {
            **make_common_commands(f"Thorlabs,PM103E,{serial},1.2.0", self._errors),
            "MEASure[:SCALar][:POWer]?": lambda *_: self._format_reading(),
            "READ?": lambda *_: self._format_reading(),
            "[SENSe:]POWer[:DC]:UNIT": lambda _, texts: self._set_power_unit(texts),
            "[SENSe:]POWer[:DC]:UNIT?": lambda *_: self._unit,
            "[SENSe:]CORRection:WAVelength": lambda _, texts: self._set_wavelength(texts),
            "[SENSe:]CORRection:WAVelength?": lambda *_: f"{self._wavelength_nm:.8E}",
            "[SENSe:]AVERage[:COUNt]": lambda _, texts: self._set_averages(texts),
            "[SENSe:]AVERage[:COUNt]?": lambda *_: str(self._average_count),
        }

    def _set_power_unit(self, parameters: Sequence[str]) -> None:
        text = get_single_parameter(parameters)
        if text.upper() not in ("W", "DBM"):
            raise ScpiError(-224, text[:40])
        self._unit = text.upper()

    def _set_wavelength(self, parameters: Sequence[str]) -> None:
        self._wavelength_nm = parse_number(get_single_parameter(parameters), *WAVELENGTH_RANGE_NM)

    def _set_averages(self, parameters: Sequence[str]) -> None:
        self._average_count = round(parse_number(get_single_parameter(parameters), *AVERAGES_RANGE))

    def _format_reading(self) -> str:
        power_w = self._measure_power_w()
        if self._unit == "W":
            return f"{power_w:.8E}"
        return f"{10.0 * math.log10(power_w / 1e-3):.8E}" if power_w > 0 else _NOT_A_NUMBER

    def _measure_power_w(self) -> float:
        snapshot = self._state.snapshot
        power_w = compute_tap_power_w(snapshot) * snapshot.parameters.wavelength_nm / self._wavelength_nm
        if snapshot.parameters.noise == "off":
            return power_w
        return power_w + READING_NOISE_W / math.sqrt(self._average_count) * float(self._rng.standard_normal())
