"""What is looked at before anything is sent to a device: channels, buffers, clocks."""

from __future__ import annotations

from typing import Any

from lightning import profiles
from lightning.errors import ProgramError, ReadoutTooLong, UnsupportedClock, WrongChannel
from lightning.settings import Settings

SAME_RATE = 1e-6
"""Relative difference below which two clock rates are the same."""


def check(soccfg: Any, settings: Settings) -> None:
    """Raise `WrongChannel`, `ReadoutTooLong` or `UnsupportedClock` when the firmware cannot do this."""
    check_channels(soccfg, settings)
    check_buffers(soccfg, settings)
    check_clocks(soccfg)


def check_channels(soccfg: Any, settings: Settings) -> None:
    """Generators and readouts are there."""
    gens, readouts = len(soccfg["gens"]), len(soccfg["readouts"])
    for modulator, channel in settings.driven.items():
        if channel >= gens:
            raise WrongChannel(
                f"modulator {modulator} is driven by generator {channel}, and the firmware has 0..{gens - 1}",
                cure=f"Set channel_{modulator} to one of these, or to None when there is no such modulator",
            )
    for readout in settings.readouts:
        if readout >= readouts:
            raise WrongChannel(
                f"readout {readout} is asked for, and the firmware has 0..{readouts - 1}",
                cure="Set readouts to one or more of these",
            )


def check_buffers(soccfg: Any, settings: Settings) -> None:
    """All shots of a run fit into the decimated buffer."""
    for readout in settings.readouts:
        room = int(soccfg["readouts"][readout]["buf_maxlen"])
        wanted = settings.readout_length * settings.reps
        if wanted > room:
            raise ReadoutTooLong(
                f"{settings.reps} shots of {settings.readout_length} samples are {wanted}, and the buffer of"
                f" readout {readout} holds {room}",
                cure=f"Lower reps or readout_length: {settings.reps} shots can have {room // settings.reps} samples"
                "; soft_avgs costs no room",
            )


def check_clocks(soccfg: Any) -> None:
    """Reference clock and converters run at rates for which the profiles of this board are made."""
    known = profiles.of_board(str(soccfg["board"]))
    if not known:
        return
    _allowed(
        "reference clock", soccfg["refclk_freq"], [mhz for each in known for mhz in each.refclk_mhz], "MHz"
    )
    for kind, name in (("dacs", "generator converter"), ("adcs", "readout converter")):
        rates = [rate for each in known for rate in (each.dac_msps if kind == "dacs" else each.adc_msps)]
        channels = soccfg["gens"] if kind == "dacs" else soccfg["readouts"]
        for channel in channels:
            _allowed(name, channel["fs"], rates, "MS/s")


def check_same_firmware(compiled_for: Any, device: Any) -> None:
    """A program runs only on the kind of firmware that it was compiled for. Raises `ProgramError`."""
    wanted, found = _rates(compiled_for), _rates(device)
    if wanted != found:
        raise ProgramError(
            f"the program was compiled for {wanted[0]} with other firmware than this device has ({found[0]})",
            device=_name(device),
            cure="Give the device itself to LightningControl, in place of a configuration",
        )


def _rates(soccfg: Any) -> tuple[Any, ...]:
    """What a compiled program depends on."""
    processor = soccfg["tprocs"][0]
    gens = tuple((each["type"], each["fs"], each["tproc_ch"]) for each in soccfg["gens"])
    readouts = tuple((each["ro_type"], each["fs"], each["f_output"]) for each in soccfg["readouts"])
    return soccfg["board"], processor["type"], processor["f_time"], gens, readouts


def check_running_clocks(soc: Any) -> None:
    """The converters of a live device are locked, and run at the rates of its configuration."""
    if not soc.clocks_locked():
        raise UnsupportedClock("the clocks of the converters are not locked", device=_name(soc), cure=_RELOAD)
    rates = soc.get_sample_rates()
    for kind, tiles in rates.items():
        for tile, found in tiles.items():
            wanted = soc["rf"]["tiles"][kind][_key(soc["rf"]["tiles"][kind], tile)]["fs"]
            if not _same(found, wanted):
                raise UnsupportedClock(
                    f"the {kind.upper()} tile {tile} runs at {found:g} MS/s, and its firmware is made for {wanted:g}",
                    device=_name(soc),
                    cure=_RELOAD,
                )


_RELOAD = "Set the clocks again (QickSoc(force_init_clks=True)), or power the board off and on"


def _key(tiles: dict[Any, Any], tile: Any) -> Any:
    """Numbers of tiles are texts in a configuration that went through JSON."""
    return tile if tile in tiles else str(tile)


def _allowed(what: str, found: float, allowed: list[float], unit: str) -> None:
    if not any(_same(found, each) for each in allowed):
        choices = " or ".join(f"{each:g}" for each in sorted(set(allowed)))
        raise UnsupportedClock(
            f"the {what} runs at {found:g} {unit}; this board is supported at {choices} {unit}",
            cure="Load firmware made for these rates, or describe yours as a profile and say so to us",
        )


def _same(one: float, other: float) -> bool:
    return abs(float(one) - float(other)) <= SAME_RATE * abs(float(other))


def _name(soc: Any) -> str:
    return str(getattr(soc, "identity", ""))
