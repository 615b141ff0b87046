"""Files of calibrations: one per device, in the user's data folder.

The folder is the argument `folder`, else `$LIGHTBED_CALIBRATIONS`, else `lightbed/calibrations` in the data folder
of the XDG base directory specification (`$XDG_DATA_HOME`, by default `~/.local/share`).
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lightbed.output_file import replace_file
from lightning import errors
from lightning.kit.calibration.document import HINT, MAX_AGE, Calibration
from lightning.kit.calibration.form import from_json, to_json, to_text
from lightning.kit.devices.identity import identity_of

FOLDER_VARIABLE = "LIGHTBED_CALIBRATIONS"
AGE_VARIABLE = "LIGHTBED_CALIBRATION_HOURS"

Raw = Mapping[str, npt.NDArray[Any]]


def folder(given: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder of calibrations, which need not exist yet."""
    if given is not None:
        return Path(given)
    if chosen := os.environ.get(FOLDER_VARIABLE):
        return Path(chosen)
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "lightbed" / "calibrations"


def path_of(device: str, given: str | os.PathLike[str] | None = None) -> Path:
    """Return the file of this device: its name made safe, with a hash so that two names never share a file.

    >>> path_of("ZCU111/lab 3", "/x").name
    'ZCU111-lab-3-653165d3.json'
    """
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", device).strip("-.") or "device"
    if safe != device:
        safe += "-" + hashlib.sha256(device.encode()).hexdigest()[:8]
    return folder(given) / f"{safe}.json"


def save(
    calibration: Calibration, *, raw: Raw | None = None, folder: str | os.PathLike[str] | None = None
) -> Path:
    """Keep it, and the raw data with it, each whole or not at all. Returns the document's path."""
    path = path_of(calibration.device, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    if raw:
        kept = path.with_suffix(".npz")
        packed = io.BytesIO()
        arrays: dict[str, Any] = dict(raw)
        np.savez_compressed(packed, **arrays)
        with replace_file(kept) as file:
            file.write(packed.getvalue())
        calibration = replace(calibration, raw=kept.name)
    with replace_file(path) as file:
        file.write(to_text(calibration).encode())
    return path


def load(path: str | os.PathLike[str]) -> Calibration:
    """Return the calibration in this file, not checked against a device.

    Raises `CalibrationError` when the file cannot be read or is not a valid calibration of ours.
    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise errors.CalibrationError(f"{path} cannot be read ({error.strerror})", hint=HINT) from error
    except (ValueError, RecursionError) as error:
        raise errors.UnknownVersion(f"{path} is not a JSON document ({error})", hint=HINT) from error
    return from_json(document, source=str(path))


def load_raw(path: str | os.PathLike[str]) -> dict[str, npt.NDArray[Any]]:
    """Return the raw data of the calibration in this file: empty where none were kept."""
    calibration = load(path)
    if not calibration.raw:
        return {}
    with np.load(Path(path).with_name(calibration.raw), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def find(
    device: Any,
    *,
    folder: str | os.PathLike[str] | None = None,
    max_age: timedelta | None = None,
    now: datetime | None = None,
) -> Calibration | None:
    """Return the calibration for this device (a soc, or its name), or None where there is none.

    What the user measured comes before what a twin brings along. Raises `ForeignCalibration`, `StaleCalibration`
    or another `CalibrationError` for a file that must not be used.
    """
    path = path_of(identity(device), folder)
    found = load(path) if path.exists() else _load_delivered(device)
    if found is not None:
        check(found, device, max_age=max_age, now=now)
    return found


def check(
    calibration: Calibration, device: Any, *, max_age: timedelta | None = None, now: datetime | None = None
) -> None:
    """Raise `ForeignCalibration` or `StaleCalibration` where this one must not be used for this device.

    It may be as old as `max_age`, else `$LIGHTBED_CALIBRATION_HOURS`, else a day; and its ticks and counts are those of
    one build of the firmware. That it is a factory calibration, which does not age, is believed of what the device
    itself brings along, not of what a file says. Raises `CalibrationError` for one made in the future, or with
    generators or a readout that the device has not.
    """
    holds = _max_age() if max_age is None else max_age
    ageless = calibration.origin == "factory" and _is_delivered(calibration, device)
    calibration.check(identity(device), now=now or datetime.now(UTC), max_age=None if ageless else holds)
    if _other_firmware(calibration, device):
        raise errors.StaleCalibration(
            (
                f"this calibration was measured with firmware {calibration.conditions['firmware']}, but "
                f"firmware {identity_of(device).firmware} is loaded"
            ),
            device=identity(device),
            hint=HINT,
        )
    # Unknown firmware passes.
    used = {
        "gens": ("generator", max(modulator.channel for modulator in calibration.modulators)),
        "readouts": ("readout", calibration.readout),
    }
    for key, (name, highest) in used.items():
        there = _length(device, key)
        if there is not None and highest >= there:
            raise errors.CalibrationError(
                f"this calibration uses {name} {highest}, but the firmware has 0 to {there - 1}",
                device=identity(device),
                hint=HINT,
            )


def require(
    device: Any,
    *,
    folder: str | os.PathLike[str] | None = None,
    max_age: timedelta | None = None,
    now: datetime | None = None,
) -> Calibration:
    """Return the calibration as `find` does; raise `NotCalibrated` where there is none."""
    found = find(device, folder=folder, max_age=max_age, now=now)
    if found is None:
        raise errors.NotCalibrated(
            "it has no calibration, so light cannot be converted to values",
            device=identity(device),
            hint=HINT,
        )
    return found


def fitting(device: Any, calibration: Calibration | None = None) -> Calibration:
    """Return the calibration given, checked for this device, or the one kept for it.

    Of a recording the age is that at its time. Raises as `check` and `require`.
    """
    now = find_date(device)
    if calibration is None:
        return require(device, now=now)
    check(calibration, device, now=now)
    return calibration


def find_date(device: Any) -> datetime | None:
    """Return when a recording was made; None for a device that works now."""
    found = getattr(device, "made", None)
    return found if isinstance(found, datetime) else None


def identity(device: Any) -> str:
    """Return the stable name of a device: a text is taken as it is, a soc is asked."""
    return device if isinstance(device, str) else identity_of(device).name


def _load_delivered(device: Any) -> Calibration | None:
    """Return the calibration that a twin brings along; with another firmware than its factory's it has none."""
    ask = getattr(device, "factory_calibration", None)
    document = ask() if callable(ask) else None
    if not document:
        return None
    found = from_json(document, source="the factory calibration")
    return None if _other_firmware(found, device) else found


def _is_delivered(calibration: Calibration, device: Any) -> bool:
    """Return whether it is, to the last digit, what this device brings along."""
    own = _load_delivered(device)
    return own is not None and to_json(own) == to_json(calibration)


def _length(device: Any, key: str) -> int | None:
    """Return how many the device's configuration lists; None for a name, or a device without a configuration."""
    try:
        return None if isinstance(device, str) else len(device[key])
    except (KeyError, TypeError):
        return None


def _other_firmware(calibration: Calibration, device: Any) -> bool:
    """Return whether both builds of the firmware are known, and differ."""
    measured = str(calibration.conditions.get("firmware", ""))
    running = "" if isinstance(device, str) else identity_of(device).firmware
    return bool(measured and running) and measured != running


def _max_age() -> timedelta:
    hours = os.environ.get(AGE_VARIABLE)
    if not hours:
        return MAX_AGE
    try:
        holds = timedelta(hours=float(hours))
        if holds <= timedelta(0):
            raise ValueError("not above 0")
    except (ValueError, OverflowError) as error:
        raise errors.OutOfRange(
            f"{AGE_VARIABLE}={hours!r} is not a valid number of hours",
            hint="set it to a number above 0, as in 24",
        ) from error
    return holds
