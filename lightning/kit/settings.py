"""Settings of one acquisition, as a frozen record that checks every number.

>>> Settings(values=(100, 50, 0, 0)).with_value(3, 7).values
(100, 50, 0, 7)
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from lightning.errors import ConfigError, OutOfRange, UnknownKey

MODULATOR_COUNT = 4
MAX_VALUE = 255
MAX_WORD = 32766
"""Largest gain word of a generator: full scale of the converter."""
LINEAR_MAX_WORD = 20000
"""Gain word of value 255 without a calibration, as in the published library. It is about the half-wave voltage."""


def check_integer(name: str, value: Any, low: int, high: int) -> int:
    """Return the value as an int. Raise `OutOfRange` unless it is an integer from `low` to `high`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise OutOfRange(f"{name} is {value!r}, not an integer", hint=_make_range_hint(low, high)) from None
    if isinstance(value, bool) or not low <= number <= high:
        raise OutOfRange(f"{name} is {value!r}, outside {low}..{high}", hint=_make_range_hint(low, high))
    return number


def check_real(name: str, value: Any, low: float, high: float) -> float:
    """Return the value as a float. Raise `OutOfRange` unless it is a finite number from `low` to `high`."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise OutOfRange(f"{name} is {value!r}, not a number", hint=_make_range_hint(low, high)) from None
    if isinstance(value, bool) or not (math.isfinite(number) and low <= number <= high):
        raise OutOfRange(f"{name} is {value!r}, outside {low:g}..{high:g}", hint=_make_range_hint(low, high))
    return number


def _make_range_hint(low: float, high: float) -> str:
    return f"Give a number from {low:g} to {high:g}"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one acquisition.

    Raise `OutOfRange` for a number outside its range, `ConfigError` for contradictory settings.
    """

    values: tuple[int | None, ...] = (0, 0, 0, 0)
    """Operand of each modulator, 0..255; None for a modulator with a gain word."""
    words: tuple[int | None, ...] = (None, None, None, None)
    """Gain word of each modulator's generator, 0..32766; None for a modulator with a value."""
    channels: tuple[int | None, ...] = (0, 1, 2, 3)
    """Generator that drives each modulator; None for a modulator without a generator."""
    readouts: tuple[int, ...] = (1,)
    """Readouts to record, in this order."""
    reps: int = 4
    """Shots in one run of the program. Each is recorded separately."""
    soft_avgs: int = 100
    """Runs of the program. The result is their mean."""
    length: int = 100
    """Length of the pulses, in ticks of the generator's clock."""
    readout_length: int = 250
    """Decimated samples of one shot."""
    adc_trig_offset: int = 100
    """Time from the start of the pulses to the start of the readout, in ticks of the processor's clock."""
    relax_delay_us: float = 1.0
    """Pause after each shot."""
    pulse_freq_mhz: float = 0.0
    phase_deg: float = 0.0

    def __post_init__(self) -> None:
        """Check every field and convert it to plain numbers."""
        checked_values = {name: convert(getattr(self, name)) for name, convert in CHECK_BY_FIELD.items()}
        for name, value in checked_values.items():
            object.__setattr__(self, name, value)
        for modulator, (value, word) in enumerate(zip(self.values, self.words, strict=True)):
            if (value is None) == (word is None):
                raise ConfigError(
                    f"modulator {modulator} needs either a value or a gain word", hint="Give one of them"
                )
            if self.channels[modulator] is None and (value or word):
                raise ConfigError(
                    f"modulator {modulator} has no generator, so it takes no operand",
                    hint=f"Set channel_{modulator} first, or leave its value 0",
                )

    @property
    def channel_by_modulator(self) -> dict[int, int]:
        """Generator by modulator, without modulators that have none."""
        return {modulator: channel for modulator, channel in enumerate(self.channels) if channel is not None}

    def with_value(self, modulator: int, value: int) -> Settings:
        """Return the settings with this operand, which replaces a gain word."""
        return replace(
            self,
            values=replace_entry(self.values, modulator, value),
            words=replace_entry(self.words, modulator, None),
        )

    def with_word(self, modulator: int, word: int) -> Settings:
        """Return the settings with this gain word, which replaces a value."""
        return replace(
            self,
            words=replace_entry(self.words, modulator, word),
            values=replace_entry(self.values, modulator, None),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the settings for a file, as lists and numbers by field name."""
        pairs = ((settings_field.name, getattr(self, settings_field.name)) for settings_field in fields(self))
        return {name: list(value) if isinstance(value, tuple) else value for name, value in pairs}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Settings:
        """Return the settings that `as_dict` converted. Raise `UnknownKey` for a name that is not a field."""
        field_names = {settings_field.name for settings_field in fields(cls)}
        for name in document:
            if name not in field_names:
                raise UnknownKey(
                    f"settings have no {name!r}", hint=f"Known are {', '.join(sorted(field_names))}"
                )
        arguments: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in document.items()
        }
        return cls(**arguments)


def replace_entry(entries: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    """Return the tuple with the entry of modulator `index` replaced. Raise `OutOfRange` for another index."""
    index = check_integer("modulator", index, 0, MODULATOR_COUNT - 1)
    return (*entries[:index], value, *entries[index + 1 :])


def _check_per_modulator(name: str, value: Any, high: int) -> tuple[int | None, ...]:
    entries = _read_entries(name, value)
    if len(entries) != MODULATOR_COUNT:
        raise OutOfRange(
            f"{name} has {len(entries)} entries", hint=f"Give {MODULATOR_COUNT}, one per modulator"
        )
    return tuple(
        None if entry is None else check_integer(f"{name[:-1]}_{modulator}", entry, 0, high)
        for modulator, entry in enumerate(entries)
    )


def _read_entries(name: str, value: Any, *, allow_single: bool = False) -> tuple[Any, ...]:
    """Return the entries of a list, an array or a tuple. With `allow_single`, accept a single integer too."""
    if allow_single and hasattr(value, "__index__") and not hasattr(value, "__len__"):
        return (value,)
    try:
        return tuple(value)
    except TypeError:
        raise OutOfRange(f"{name} are {value!r}, not a list", hint="Give a list of numbers") from None


def _check_channels(value: Any) -> tuple[int | None, ...]:
    channels = _check_per_modulator("channels", value, 15)
    used_channels = [channel for channel in channels if channel is not None]
    if not used_channels or len(set(used_channels)) != len(used_channels):
        raise ConfigError(
            (
                f"channels are {list(channels)}: every modulator needs its own generator, and there must be at "
                "least one"
            ),
            hint="Make all different; None is for a modulator without a generator",
        )
    return channels


def _check_readouts(value: Any) -> tuple[int, ...]:
    readouts = _read_entries("readouts", value, allow_single=True)
    if not readouts or len(set(readouts)) != len(readouts):
        raise ConfigError(f"readouts are {list(readouts)}", hint="Name at least one, and each only once")
    return tuple(check_integer("readout", readout, 0, 63) for readout in readouts)


CHECK_BY_FIELD: dict[str, Any] = {
    "values": lambda value: _check_per_modulator("values", value, MAX_VALUE),
    "words": lambda value: _check_per_modulator("words", value, MAX_WORD),
    "channels": _check_channels,
    "readouts": _check_readouts,
    "reps": lambda value: check_integer("reps", value, 1, 2**30),
    "soft_avgs": lambda value: check_integer("soft_avgs", value, 1, 10**9),
    "length": lambda value: check_integer("length", value, 3, 65535),
    "readout_length": lambda value: check_integer("readout_length", value, 1, 65535),
    "adc_trig_offset": lambda value: check_integer("adc_trig_offset", value, 0, 65535),
    "relax_delay_us": lambda value: check_real("relax_delay_us", value, 0, 1e6),
    "pulse_freq_mhz": lambda value: check_real("pulse_freq_mhz", value, -12000, 12000),
    "phase_deg": lambda value: check_real("phase_deg", value, -360, 360),
}
"""For each field, a function that checks a value and returns it as plain numbers."""
