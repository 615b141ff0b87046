"""The users' configuration: a dictionary that checks every write.

>>> from lightning.kit.config import Configuration
>>> config = Configuration()
>>> config["dac_0"] = 100  # value of the first modulator, 0..255
>>> config["dac_0"], config.settings.values[0]
(100, 100)

In the library published for the kit, `dac_0` is a channel number and `dac_gain_0` the drive; in the talk, `dac_0` is a
value. Nothing here guesses: `from_slide` reads a dictionary of the talk, `from_lts` one of the published library.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from lightning.errors import AmbiguousConfig, ConfigError, OutOfRange, UnknownKey
from lightning.kit.settings import (
    CHECK_BY_FIELD,
    LINEAR_MAX_WORD,
    MAX_VALUE,
    MAX_WORD,
    MODULATOR_COUNT,
    Settings,
    check_integer,
    check_real,
    replace_entry,
)

__all__ = ["Configuration", "LightningConfig", "Settings", "from_lts", "from_slide", "to_settings"]

_INDEXED_KEY = re.compile(r"(dac|dac_gain|value|word|channel)_(\d+)")

_ALIASES = {
    "adc_1": "readouts",
    "relax_delay": "relax_delay_us",
    "pulse_freq": "pulse_freq_mhz",
    "res_phase": "phase_deg",
    **{f"value_{i}": f"dac_{i}" for i in range(MODULATOR_COUNT)},
}
"""Other accepted names: names of the published library with the same meaning, and clearer names of the talk's keys."""

_FIELD_BY_PREFIX = {"dac": "values", "word": "words", "channel": "channels"}
_KEYS = (
    *(f"{kind}_{i}" for kind in _FIELD_BY_PREFIX for i in range(MODULATOR_COUNT)),
    *(name for name in CHECK_BY_FIELD if name not in _FIELD_BY_PREFIX.values()),
)


class Configuration(Mapping[str, Any]):
    """A dictionary over `Settings` that checks every write.

    Keys: `dac_0`..`dac_3` (value 0..255; also `value_i`), `word_i` (gain word 0..32766, in place of a value),
    `channel_i` (generator, or None), `readouts`, `reps`, `soft_avgs`, `length`, `readout_length`, `adc_trig_offset`,
    `relax_delay_us`, `pulse_freq_mhz`, `phase_deg`. A write raises `UnknownKey`, `OutOfRange` or `AmbiguousConfig`, and
    then changes nothing.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings or Settings()

    @property
    def settings(self) -> Settings:
        """The current settings, as a frozen record that later writes do not change."""
        return self._settings

    def __getitem__(self, key: str) -> Any:
        name = _resolve_key(key)
        prefix, _, index = name.rpartition("_")
        if prefix in _FIELD_BY_PREFIX:
            return getattr(self._settings, _FIELD_BY_PREFIX[prefix])[int(index)]
        value = getattr(self._settings, name)
        return list(value) if isinstance(value, tuple) else value

    def __setitem__(self, key: str, value: Any) -> None:
        self._settings = _write_setting(self._settings, key, value)

    def __iter__(self) -> Iterator[str]:
        return iter(_KEYS)

    def __len__(self) -> int:
        return len(_KEYS)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and (key in _KEYS or key in _ALIASES)

    def update(self, other: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Write several keys, all or none."""
        settings = self._settings
        pairs = [*(other or {}).items(), *more.items()]
        channels = {key: value for key, value in pairs if str(key).startswith("channel_")}
        settings = _set_channels(settings, channels)
        for key, value in pairs:
            if key not in channels:
                settings = _write_setting(settings, key, value)
        self._settings = settings

    def copy(self) -> Configuration:
        """Return an independent configuration with the same settings."""
        return Configuration(self._settings)

    def reset(self) -> None:
        """Restore the defaults: all values 0, the kit's pulse and readout."""
        self._settings = Settings()

    def __copy__(self) -> Configuration:
        return self.copy()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Configuration):
            return self._settings == other._settings
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Return the keys that differ from the defaults."""
        default_config = Configuration()
        changed = {key: self[key] for key in self if self[key] != default_config[key]}
        return f"Configuration({changed})"


def _resolve_key(key: object) -> str:
    name = _ALIASES.get(key, key) if isinstance(key, str) else ""
    if name in _KEYS:
        return name
    match = _INDEXED_KEY.fullmatch(key) if isinstance(key, str) else None
    if match and match[1] == "dac_gain":
        raise AmbiguousConfig(
            f"{key!r} belongs to the library published for the kit, where dac_0..dac_3 are channels",
            hint=(
                "Pass the whole dictionary to lightning.from_lts(mapping); here dac_0..dac_3 are values "
                "0..255"
            ),
        )
    if match:
        raise UnknownKey(
            f"there is no {key!r}: the kit has modulators 0..{MODULATOR_COUNT - 1}", hint="Use one of these"
        )
    raise UnknownKey(f"the configuration has no key {key!r}", hint=f"Known keys: {', '.join(_KEYS)}")


def _write_setting(settings: Settings, key: str, value: Any) -> Settings:
    name = _resolve_key(key)
    prefix, _, index = name.rpartition("_")
    if prefix == "dac":
        return settings.with_value(int(index), check_integer(key, value, 0, MAX_VALUE))
    if prefix == "word":
        return settings.with_word(int(index), check_integer(key, value, 0, MAX_WORD))
    if prefix == "channel":
        return _set_channels(settings, {name: value})
    return replace(settings, **{name: value})


def _set_channels(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """Return the settings with all channels changed at once. Swapping two channels one by one would collide."""
    channels = settings.channels
    for key, value in changes.items():
        _resolve_key(key)
        channels = replace_entry(channels, int(key.rpartition("_")[2]), value)
    return replace(settings, channels=channels)


def from_slide(mapping: Mapping[str, Any]) -> Configuration:
    """Return the configuration of a dictionary in the talk's vocabulary, where `dac_0`..`dac_3` are values 0..255.

    Raise `AmbiguousConfig` for a key `dac_gain_i`, which only the published library uses. Raise `UnknownKey` or
    `OutOfRange` for other invalid keys and values.
    """
    config = Configuration()
    config.update(mapping)
    return config


def from_lts(mapping: Mapping[str, Any]) -> Configuration:
    """Return the configuration of a dictionary in the published vocabulary: `dac_i` (generator), `dac_gain_i` (0..1).

    As in the published library, `dac_gain_i` is a fraction of the gain word 20000 (default 1), without an encoder.
    Other keys mean the same as in the talk. Raise `OutOfRange`, `UnknownKey` or `ConfigError`.

    >>> from_lts({"dac_0": 0, "dac_gain_0": 0.5})["word_0"]
    10000
    """
    gains = [
        check_real(f"dac_gain_{i}", mapping.get(f"dac_gain_{i}", 1), 0, 1) for i in range(MODULATOR_COUNT)
    ]
    channels = [_check_lts_channel(i, mapping.get(f"dac_{i}", i)) for i in range(MODULATOR_COUNT)]
    lts_keys = {f"{kind}_{i}" for kind in ("dac", "dac_gain") for i in range(MODULATOR_COUNT)}
    config = Configuration(
        Settings(
            values=(None,) * MODULATOR_COUNT,
            words=tuple(int(gain * LINEAR_MAX_WORD) for gain in gains),
            channels=tuple(channels),
        )
    )
    config.update({key: value for key, value in mapping.items() if key not in lts_keys})
    return config


def _check_lts_channel(modulator: int, value: Any) -> int:
    try:
        return check_integer(f"dac_{modulator}", value, 0, 15)
    except OutOfRange as error:
        hint = (
            "In this vocabulary dac_i is a generator's number; for values use lightning.from_slide(mapping)"
        )
        raise OutOfRange(error.problem, hint=hint) from None


def to_settings(config: Settings | Configuration | Mapping[str, Any]) -> Settings:
    """Return the settings of a `Settings`, a `Configuration` or a plain dictionary.

    Raise `AmbiguousConfig` for a plain dictionary with a key `dac_i` or `dac_gain_i`, which could mean a value or a
    channel. Raise `ConfigError` for other types.
    """
    if isinstance(config, Settings):
        return config
    if isinstance(config, Configuration):
        return config.settings
    if not isinstance(config, Mapping):
        raise ConfigError(
            f"{config!r:.60} is not a valid configuration",
            hint="Pass a lightning.LightningConfig, or a Configuration of yours",
        )
    if any(re.fullmatch(r"dac(_gain)?_\d+", str(key)) for key in config):
        raise AmbiguousConfig(
            "in a plain dictionary dac_0..dac_3 may be values (the talk) or channels (the published library)",
            hint="Choose: lightning.from_slide(mapping) or lightning.from_lts(mapping)",
        )
    return from_slide(config).settings


LightningConfig = Configuration()
"""The configuration that users write into. The library itself only reads it."""
