"""A device: whether it answers, fits, counts shots, is calibrated, and still holds to its calibration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from lightning.doctor.finding import Finding, found_by
from lightning.errors import LightningError, NotCalibrated, ProgramError
from lightning.kit import checks, profiles
from lightning.kit.calibration import store
from lightning.kit.config import Settings
from lightning.kit.connection import connect
from lightning.kit.devices.identity import identity_of


def device(address: str) -> Iterator[Finding]:
    """Return a device: whether it answers, fits, counts shots, is calibrated, and still holds to its calibration."""
    yield exposure(address)
    try:
        soc = connect(address)
    except LightningError as error:
        yield found_by(error, "device")
        return
    yield _introduced(soc)
    yield firmware(soc)
    yield coupling(soc)
    for name, look in (("clocks", _clocks), ("shots", _shots)):
        finding = _inspected(name, look, soc)
        yield finding
        if finding.state == "bad":
            return
    finding = calibration(soc)
    yield finding
    if finding.state == "ok":
        yield _inspected("light", _light, soc)


def exposure(address: str) -> Finding:
    """Return whether the way to the device leads through Pyro4 over a network."""
    if not address.startswith("qick://") or address == "qick://local":
        return Finding("network", "ok", f"{address} needs no Pyro4")
    from lightning.kit.devices.board import parse

    try:
        at = parse(address)
    except LightningError as error:
        return found_by(error, "network")
    if at.loopback:
        return Finding("network", "ok", f"{address} stays on this machine")
    return Finding(
        "network",
        "warning",
        f"{at.host} is reached through Pyro4: it authenticates nobody, and both ends run what they are sent",
        "keep board and computer in a network of their own, with nothing else in it",
    )


def firmware(soc: Any) -> Finding:
    """Return which profile the firmware is."""
    board = str(soc["board"])
    found = profile_of(soc)
    if found is not None:
        return Finding("firmware", "ok", f"{found.name}: {found.about}")
    known = [each.name for each in profiles.of_board(board)]
    if known:
        return Finding(
            "firmware",
            "warning",
            f"another build for {board} than {', '.join(known)}",
            "nothing needs to be done if the findings below are well",
        )
    return Finding(
        "firmware",
        "warning",
        f"no profile for the board {board!r}",
        f"known are {', '.join(profiles.NAMES)}; clocks and coupling of others are not checked",
    )


def profile_of(soc: Any) -> profiles.Profile | None:
    """Return the profile of exactly this firmware; None where it is another build."""
    for each in profiles.of_board(str(soc["board"])):
        if each.config["fw_timestamp"] == soc["fw_timestamp"]:
            return each
    return None


def coupling(soc: Any) -> Finding:
    """Return how the board is coupled: the kit's pulses have frequency 0, which does not pass through a balun."""
    found = profile_of(soc)
    paths = {"DAC": _coupled(soc, "dac"), "ADC": _coupled(soc, "adc")}
    if found is not None:
        paths = {"DAC": found.dac_coupling, "ADC": found.adc_coupling}
    through_baluns = [name for name, kind in paths.items() if kind == "AC"]
    if not through_baluns:
        return Finding("coupling", "ok", f"DAC {paths['DAC']}, ADC {paths['ADC']}")
    note = f" {found.coupling_note}" if found is not None else ""
    return Finding(
        "coupling",
        "warning",
        f"{' and '.join(through_baluns)} AC coupled: pulses with pulse_freq 0 droop in the baluns.{note}",
        "use the DC coupled connectors, or set pulse_freq_mhz to a carrier that passes",
    )


def _coupled(soc: Any, kind: str) -> str:
    """Return the coupling as QICK reads it from the firmware; AC, which is the warning, where it does not say."""
    tiles = soc["rf"]["tiles"][kind].values()
    return "DC" if all(tile.get("coupling") == "DC" for tile in tiles) else "AC"


def calibration(soc: Any, *, now: datetime | None = None) -> Finding:
    """Return whether there is one, for this device, and how old it is."""
    try:
        found = store.require(soc, now=now or getattr(soc, "made", None))
    except NotCalibrated as error:
        return Finding("calibration", "warning", error.what, error.hint)
    except LightningError as error:
        return found_by(error, "calibration")
    age_h = ((now or datetime.now(UTC)) - found.made).total_seconds() / 3600
    age = "" if found.origin == "factory" else f", {age_h:.1f} h old"
    return Finding("calibration", "ok", f"{found.describe()}{age}")


def _introduced(soc: Any) -> Finding:
    identity = identity_of(soc)
    return Finding("device", "ok", f"{identity.label}, board {identity.board}")


def _clocks(soc: Any) -> Finding:
    checks.check_clocks(soc)
    checks.check_running_clocks(soc)
    return Finding("clocks", "ok", f"locked, reference {float(soc['refclk_freq']):g} MHz")


def _shots(soc: Any) -> Finding:
    """Acquire in the dark on the last readout: the program is loaded, and its shots are counted."""
    from lightning.kit.programs import build

    settings = Settings(readouts=(len(soc["readouts"]) - 1,), channels=_generators(soc), soft_avgs=1)
    words = dict.fromkeys(settings.driven.values(), 0)
    shots = build(soc, settings, words).acquire_decimated(soc, progress=False)[0]
    return Finding("shots", "ok", f"{len(shots)} of {settings.reps} shots counted and recorded")


def _generators(soc: Any) -> tuple[int | None, ...]:
    """Return as many of the four generators as the board has."""
    return tuple(index if index < len(soc["gens"]) else None for index in range(4))


def _light(soc: Any) -> Finding:
    """Known products, decoded: dark fibres and drifted biases show here."""
    from lightning.kit.calibration.drift import drift
    from lightning.kit.compute import LightningCompute

    try:
        compute = LightningCompute(soc)
    except ProgramError as error:
        return Finding("light", "warning", f"not looked at: {error.what}", error.hint)
    seen = drift(compute.rows, compute.calibration)
    if seen.recalibrate:
        found = f"known products come out wrong by {seen.rms:.2f} of 255 (limit {seen.limit:.2f})"
        return Finding(
            "light",
            "bad",
            found,
            "see that the laser is on; if it is, the biases have drifted: lightning calibrate",
        )
    return Finding("light", "ok", f"known products are off by {seen.rms:.2f} of 255 rms")


def _inspected(name: str, inspect: Callable[[Any], Finding], soc: Any) -> Finding:
    try:
        return inspect(soc)
    except LightningError as error:
        return found_by(error, name)
