"""Checks of channels, buffers and clocks, made before anything is sent to a device."""

from __future__ import annotations

from typing import Any

from lightning.errors import (
    OutOfRange,
    ProgramError,
    ReadoutTooLong,
    UnsupportedClock,
    WrongChannel,
)
from lightning.kit import profiles
from lightning.kit.settings import Settings

RATE_TOLERANCE = 1e-6
"""Two clock rates are equal up to this relative difference."""
MIN_RELAX_US = 0.2
"""Shortest pause between shots. After a window the processor loads the next shot's four pulses, which takes 31 clocks
of 384 MHz, or 0.08 us (version 2: 20 clocks of 430 MHz). With a shorter pause the pulses start too late. The limit is a
little more than twice the loading time."""


def check_settings(soccfg: Any, settings: Settings) -> None:
    """Raise `WrongChannel`, `OutOfRange` or `UnsupportedClock` if the firmware cannot run these settings."""
    check_channels(soccfg, settings)
    check_pause(settings)
    check_clocks(soccfg)


def check_channels(soccfg: Any, settings: Settings) -> None:
    """Raise `WrongChannel` if the firmware lacks a generator or a readout."""
    generator_count, readout_count = len(soccfg["gens"]), len(soccfg["readouts"])
    for modulator, channel in settings.channel_by_modulator.items():
        if channel >= generator_count:
            raise WrongChannel(
                f"modulator {modulator} is driven by generator {channel},"
                f" but the firmware has only 0..{generator_count - 1}",
                hint=f"Set channel_{modulator} to one of these, or to None if there is no such modulator",
            )
    for readout in settings.readouts:
        if readout >= readout_count:
            raise WrongChannel(
                f"readout {readout} is requested, but the firmware has only 0..{readout_count - 1}",
                hint="Set readouts to one or more of these",
            )


def check_pause(settings: Settings) -> None:
    """Raise `OutOfRange` if the pause is too short for the next shot to start on time."""
    if settings.reps > 1 and settings.relax_delay_us < MIN_RELAX_US:
        raise OutOfRange(
            f"relax_delay_us is {settings.relax_delay_us:g}, too short to have the next shot's pulses ready",
            hint=f"Give at least {MIN_RELAX_US:g}, or reps=1, which needs no pause",
        )


def check_buffers(soccfg: Any, settings: Settings) -> None:
    """Raise `ReadoutTooLong` if the shots of a run exceed the decimated buffer."""
    for readout in settings.readouts:
        buffer_length = int(soccfg["readouts"][readout]["buf_maxlen"])
        # QICK leaves the last sample unused.
        sample_count, max_samples = settings.readout_length * settings.reps, buffer_length - 1
        if sample_count > max_samples:
            raise ReadoutTooLong(
                (
                    f"{settings.reps} shots of {settings.readout_length} samples need {sample_count}, but the buffer "
                    f"of readout {readout} holds {buffer_length}, one of which cannot be used"
                ),
                hint=_suggest_smaller_readout(settings, max_samples),
            )


def _suggest_smaller_readout(settings: Settings, max_samples: int) -> str:
    """Return a hint for settings that fit the buffer: shorter shots, or fewer shots."""
    suggestions = []
    if max_readout_length := max_samples // settings.reps:
        suggestions.append(f"readout_length to {max_readout_length} or less")
    if max_shots := max_samples // settings.readout_length:
        suggestions.append(f"reps to {max_shots} or less")
    return f"Set {' or '.join(suggestions) or 'both to less'}; more soft_avgs cost no room"


def check_clocks(soccfg: Any) -> None:
    """Raise `UnsupportedClock` if the rate of the reference clock or a converter is in no profile of this board."""
    profiles_of_board = profiles.find_for_board(str(soccfg["board"]))
    if not profiles_of_board:
        return
    _check_allowed(
        "reference clock",
        soccfg["refclk_freq"],
        [rate_mhz for profile in profiles_of_board for rate_mhz in profile.refclk_mhz],
        "MHz",
    )
    for kind, name in (("dacs", "generator converter"), ("adcs", "readout converter")):
        rates = [
            rate
            for profile in profiles_of_board
            for rate in (profile.dac_msps if kind == "dacs" else profile.adc_msps)
        ]
        channels = soccfg["gens"] if kind == "dacs" else soccfg["readouts"]
        for channel in channels:
            _check_allowed(name, channel["fs"], rates, "MS/s")


def check_same_firmware(compiled_config: Any, device: Any) -> None:
    """Raise `ProgramError` if the program was compiled for other firmware than the device has."""
    expected, actual = _read_firmware_properties(compiled_config), _read_firmware_properties(device)
    if expected != actual:
        raise ProgramError(
            f"the program was compiled for {expected[0]} with other firmware than this device has ({actual[0]})",
            device=_find_device_name(device),
            hint="Pass the device itself to LightningControl instead of a configuration",
        )


def _read_firmware_properties(soccfg: Any) -> tuple[Any, ...]:
    """Return the firmware's properties on which a compiled program depends."""
    processor = soccfg["tprocs"][0]
    generators = tuple(
        (generator["type"], generator["fs"], generator["tproc_ch"]) for generator in soccfg["gens"]
    )
    readouts = tuple(
        (readout["ro_type"], readout["fs"], readout["f_output"]) for readout in soccfg["readouts"]
    )
    return soccfg["board"], processor["type"], processor["f_time"], generators, readouts


def check_running_clocks(soc: Any) -> None:
    """Raise `UnsupportedClock` unless the converters are locked and run at the rates of the configuration."""
    if not soc.clocks_locked():
        raise UnsupportedClock(
            "the converter clocks are not locked", device=_find_device_name(soc), hint=_RELOAD_HINT
        )
    rates = soc.get_sample_rates()
    for kind, tiles in rates.items():
        for tile, rate in tiles.items():
            configured_rate = soc["rf"]["tiles"][kind][_find_key(soc["rf"]["tiles"][kind], tile)]["fs"]
            if not _is_same_rate(rate, configured_rate):
                raise UnsupportedClock(
                    (
                        f"the {kind.upper()} tile {tile} runs at {rate:g} MS/s, but its firmware is made for "
                        f"{configured_rate:g}"
                    ),
                    device=_find_device_name(soc),
                    hint=_RELOAD_HINT,
                )


_RELOAD_HINT = "Set the clocks again (QickSoc(force_init_clks=True)), or power the board off and on"


def _find_key(tiles: dict[Any, Any], tile: Any) -> Any:
    """Return the key of a tile: its number, or a string if the configuration has been JSON."""
    return tile if tile in tiles else str(tile)


def _check_allowed(clock: str, rate: float, allowed_rates: list[float], unit: str) -> None:
    if not any(_is_same_rate(rate, allowed_rate) for allowed_rate in allowed_rates):
        choices = " or ".join(f"{allowed_rate:g}" for allowed_rate in sorted(set(allowed_rates)))
        raise UnsupportedClock(
            f"the {clock} runs at {rate:g} {unit}; this board is supported at {choices} {unit}",
            hint="Load firmware made for these rates, or add a profile for your board",
        )


def _is_same_rate(rate: float, allowed_rate: float) -> bool:
    return abs(float(rate) - float(allowed_rate)) <= RATE_TOLERANCE * abs(float(allowed_rate))


def _find_device_name(soc: Any) -> str:
    return str(getattr(soc, "identity", ""))
