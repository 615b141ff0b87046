"""A supply of four voltages with the commands of Keysight's N6700, including channel lists (`VOLT 3.1,(@1:4)`).

Output n drives the bias electrode of modulator n - 1. An output that is off supplies 0 V. All commands are in the
vendor's command summaries. Assumptions: outputs have 0 to 20.4 V in steps of 1 mV, and settle before the next command
is executed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from sim.twins.frontends.scpi import ErrorQueue, Handler, ScpiError
from sim.twins.rfsoc.kit.bench.instrument import make_common_commands, parse_bool, parse_number
from sim.twins.rfsoc.kit.parameters import MODULATOR_COUNT
from sim.twins.rfsoc.kit.state import KitState

VOLTAGE_RANGE_V = (0.0, 20.4)
_STEPS_PER_V = 1000

_CHANNEL_LIST = re.compile(r"\(@(\d{1,3}(?::\d{1,3})?(?:,\d{1,3}(?::\d{1,3})?)*)\)")


class SupplyTwin:
    """Commands of the bias supply of a kit."""

    def __init__(self, state: KitState, error_queue: ErrorQueue) -> None:
        self._state = state
        self._errors = error_queue
        self._off_voltages_v: dict[int, float] = {}
        """Voltage settings of outputs that are off, by channel."""

    def make_handlers(self, serial: str) -> Mapping[str, Handler]:
        """Return the command handlers by header."""
        voltage_header = "[SOURce:]VOLTage[:LEVel][:IMMediate][:AMPLitude]"
        return {
            **make_common_commands(f"Keysight Technologies,N6700C,{serial},E.02.07.3067", self._errors),
            "SYSTem:CHANnel[:COUNt]?": lambda *_: str(MODULATOR_COUNT),
            voltage_header: lambda _, texts: self._set_voltages(texts),
            f"{voltage_header}?": lambda _, texts: _read_channels(
                texts,
                lambda channel: _format_volts(
                    self._off_voltages_v.get(channel, self._read_voltage_v(channel))
                ),
            ),
            "OUTPut[:STATe]": lambda _, texts: self._switch_outputs(texts),
            "OUTPut[:STATe]?": lambda _, texts: _read_channels(
                texts, lambda channel: str(int(channel not in self._off_voltages_v))
            ),
            "MEASure[:SCALar]:VOLTage[:DC]?": lambda _, texts: _read_channels(
                texts, lambda channel: _format_volts(self._read_voltage_v(channel))
            ),
        }

    def _set_voltages(self, parameters: Sequence[str]) -> None:
        text, channels = _split_value(parameters)
        voltage_v = round(parse_number(text, *VOLTAGE_RANGE_V) * _STEPS_PER_V) / _STEPS_PER_V
        for channel in channels:
            if channel in self._off_voltages_v:
                self._off_voltages_v[channel] = voltage_v
            else:
                self._apply_voltage_v(channel, voltage_v)

    def _switch_outputs(self, parameters: Sequence[str]) -> None:
        text, channels = _split_value(parameters)
        is_on = parse_bool(text)
        for channel in channels:
            if is_on and channel in self._off_voltages_v:
                self._apply_voltage_v(channel, self._off_voltages_v.pop(channel))
            elif not is_on and channel not in self._off_voltages_v:
                self._off_voltages_v[channel] = self._read_voltage_v(channel)
                self._apply_voltage_v(channel, 0.0)

    def _read_voltage_v(self, channel: int) -> float:
        return self._state.snapshot.parameters.modulators[channel - 1].bias_v

    def _apply_voltage_v(self, channel: int, voltage_v: float) -> None:
        self._state.change(lambda kit: kit.with_modulator(channel - 1, bias_v=voltage_v))


def _format_volts(voltage_v: float) -> str:
    return f"{voltage_v:+.6E}"


def _read_channels(parameters: Sequence[str], read_channel: Callable[[int], str]) -> str:
    """Return the answer to a query with a channel list, which has one value for each channel."""
    return ",".join(read_channel(channel) for channel in _parse_channels(",".join(parameters)))


def _split_value(parameters: Sequence[str]) -> tuple[str, list[int]]:
    if len(parameters) < 2:
        raise ScpiError(-109)
    return parameters[0], _parse_channels(",".join(parameters[1:]))


def _parse_channels(text: str) -> list[int]:
    """Return the channels of a channel list. Raise `ScpiError` for an invalid list or channel.

    >>> _parse_channels("(@1,3:4)")
    [1, 3, 4]
    """
    match = _CHANNEL_LIST.fullmatch(text.replace(" ", ""))
    if not match:
        raise ScpiError(-224 if text else -109, text[:40])
    ranges = [part.partition(":") for part in match[1].split(",")]
    channels = [channel for low, _, high in ranges for channel in range(int(low), int(high or low) + 1)]
    if not all(1 <= channel <= MODULATOR_COUNT for channel in channels):
        raise ScpiError(-222, text[:40])
    return channels
