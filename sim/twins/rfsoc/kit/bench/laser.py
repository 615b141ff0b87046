"""A tunable laser with the commands of Santec's TSL-550/570/710/770 (command set "legacy": wavelengths in nm).

Public drivers show the headers, that `0` opens the shutter and `1` closes it, that `*OPC?` answers 0 while the laser
settles, and that lines may end with CR. Assumptions: the settling time, the error of an out-of-range setting (-222),
and the text of alerts. The two spectral lines, 0.8 nm apart, have the same power and are switched together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sim.twins.frontends.scpi import ErrorQueue, Handler
from sim.twins.rfsoc.kit.bench.instrument import (
    SettlingKnobs,
    get_single_parameter,
    make_common_commands,
    parse_bool,
    parse_number,
)
from sim.twins.rfsoc.kit.state import KitState

POWER_RANGE_DBM = (-15.0, 13.0)
WAVELENGTH_RANGE_NM = (1480.0, 1640.0)
SETTLING_S = 0.02
_DARK_DBM = -99.0


class LaserTwin:
    """Commands of the laser of a kit."""

    def __init__(self, state: KitState, settling_knobs: SettlingKnobs, error_queue: ErrorQueue) -> None:
        self._state = state
        self._settling = settling_knobs
        self._errors = error_queue
        self._uses_milliwatt = False

    def make_handlers(self, serial: str) -> Mapping[str, Handler]:
        """Return the command handlers by header."""
        return {
            **make_common_commands(f"SANTEC,TSL-770,{serial},0001.000.0001", self._errors),
            "*OPC?": lambda *_: str(int(self._settling.is_settled)),
            "SYSTem:ALERt?": lambda *_: self._describe_alert(),
            "[SOURce:]POWer:STATe": lambda _, texts: self._settling.set_knobs(
                laser=parse_bool(get_single_parameter(texts))
            ),
            "[SOURce:]POWer:STATe?": lambda *_: str(int(self._settling.get_setting("laser"))),
            "[SOURce:]POWer:SHUTter": lambda _, texts: self._settling.set_knobs(
                shutter_open=not parse_bool(get_single_parameter(texts))
            ),
            "[SOURce:]POWer:SHUTter?": lambda *_: str(int(not self._settling.get_setting("shutter_open"))),
            "[SOURce:]POWer:UNIT": lambda _, texts: self._set_power_unit(texts),
            "[SOURce:]POWer:UNIT?": lambda *_: str(int(self._uses_milliwatt)),
            "[SOURce:]POWer[:LEVel]": lambda _, texts: self._set_power(texts),
            "[SOURce:]POWer[:LEVel]?": lambda *_: self._format_power(self._settling.get_setting("laser_dbm")),
            "[SOURce:]POWer:ACTual[:LEVel]?": lambda *_: self._format_power(self._read_actual_power_dbm()),
            "[SOURce:]WAVelength": lambda _, texts: self._settling.set_knobs(
                wavelength_nm=round(parse_number(get_single_parameter(texts), *WAVELENGTH_RANGE_NM), 4)
            ),
            "[SOURce:]WAVelength?": lambda *_: f"{self._settling.get_setting('wavelength_nm'):+.4f}",
            "[SOURce:]WAVelength:MINimum?": lambda *_: f"{WAVELENGTH_RANGE_NM[0]:+.4f}",
            "[SOURce:]WAVelength:MAXimum?": lambda *_: f"{WAVELENGTH_RANGE_NM[1]:+.4f}",
        }

    def _describe_alert(self) -> str:
        is_dropped = self._state.snapshot.parameters.laser_dropped
        return "No07.,Inter lock detection" if is_dropped else "No alerts."

    def _set_power_unit(self, parameters: Sequence[str]) -> None:
        self._uses_milliwatt = parse_bool(get_single_parameter(parameters))

    def _set_power(self, parameters: Sequence[str]) -> None:
        low, high = (_to_milliwatt(end) if self._uses_milliwatt else end for end in POWER_RANGE_DBM)
        value = parse_number(get_single_parameter(parameters), low, high)
        self._settling.set_knobs(laser_dbm=10.0 * math.log10(value) if self._uses_milliwatt else value)

    def _format_power(self, power_dbm: float) -> str:
        return f"{_to_milliwatt(power_dbm) if self._uses_milliwatt else power_dbm:+.4f}"

    def _read_actual_power_dbm(self) -> float:
        snapshot = self._state.snapshot
        return snapshot.parameters.laser_dbm if snapshot.is_lit else _DARK_DBM


def _to_milliwatt(power_dbm: float) -> float:
    return math.pow(10.0, power_dbm / 10.0)
