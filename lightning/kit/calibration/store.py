"""Calibration files: one per device, in the user's data folder.

The folder is the argument `chosen_folder` of `find_folder`, else `$LIGHTBED_CALIBRATIONS`, else `lightbed/calibrations`
in the data folder of the XDG base directory specification (`$XDG_DATA_HOME`, by default `~/.local/share`).
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
from lightning.kit.calibration.document import CALIBRATE_HINT, MAX_AGE, Calibration
from lightning.kit.calibration.form import from_json, to_json, to_text
from lightning.kit.devices.identity import read_identity

FOLDER_VARIABLE = "LIGHTBED_CALIBRATIONS"
AGE_VARIABLE = "LIGHTBED_CALIBRATION_HOURS"

RawData = Mapping[str, npt.NDArray[Any]]


def find_folder(chosen_folder: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder of calibrations. It may not exist yet."""
    if chosen_folder is not None:
        return Path(chosen_folder)
    if chosen_folder := os.environ.get(FOLDER_VARIABLE):
        return Path(chosen_folder)
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "lightbed" / "calibrations"


def find_path(device: str, chosen_folder: str | os.PathLike[str] | None = None) -> Path:
    """Return the path of the calibration of this device.

    Unsafe characters become `-`. A name with unsafe characters also gets a hash, which keeps the path unique.

    >>> find_path("ZCU111/lab 3", "/x").name
    'ZCU111-lab-3-653165d3.json'
    """
    safe_name = re.sub(r"[^A-Za-z0-9._-]+", "-", device).strip("-.") or "device"
    if safe_name != device:
        safe_name += "-" + hashlib.sha256(device.encode()).hexdigest()[:8]
    return find_folder(chosen_folder) / f"{safe_name}.json"


def save(
    calibration: Calibration, *, raw: RawData | None = None, folder: str | os.PathLike[str] | None = None
) -> Path:
    """Write the calibration and its raw data, each atomically, and return the path of the document."""
    path = find_path(calibration.device, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    if raw:
        raw_path = path.with_suffix(".npz")
        archive = io.BytesIO()
        arrays: dict[str, Any] = dict(raw)
        np.savez_compressed(archive, **arrays)
        with replace_file(raw_path) as file:
            file.write(archive.getvalue())
        calibration = replace(calibration, raw=raw_path.name)
    with replace_file(path) as file:
        file.write(to_text(calibration).encode())
    return path


def load(path: str | os.PathLike[str]) -> Calibration:
    """Return the calibration in this file, not checked against a device.

    Raise `CalibrationError` if the file cannot be read or is not a valid calibration.
    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise errors.CalibrationError(
            f"{path} cannot be read ({error.strerror})", hint=CALIBRATE_HINT
        ) from error
    except (ValueError, RecursionError) as error:
        raise errors.UnknownVersion(
            f"{path} is not a JSON document ({error})", hint=CALIBRATE_HINT
        ) from error
    return from_json(document, source=str(path))


def load_raw(path: str | os.PathLike[str]) -> dict[str, npt.NDArray[Any]]:
    """Return the raw data of the calibration in this file, or an empty dictionary if it has none."""
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
    """Return the calibration for this device (a soc, or its name), or None if there is none.

    A measured calibration takes precedence over the factory calibration of a twin. Raise `ForeignCalibration`,
    `StaleCalibration` or another `CalibrationError` for a calibration that is not valid for the device.
    """
    path = find_path(get_identity(device), folder)
    calibration = load(path) if path.exists() else _load_factory_calibration(device)
    if calibration is not None:
        check(calibration, device, max_age=max_age, now=now)
    return calibration


def check(
    calibration: Calibration, device: Any, *, max_age: timedelta | None = None, now: datetime | None = None
) -> None:
    """Raise `ForeignCalibration` or `StaleCalibration` if the calibration is not valid for this device.

    The age limit is `max_age`, else `$LIGHTBED_CALIBRATION_HOURS`, else a day. A factory calibration has no age limit
    if it equals the device's own; the origin in a file is not trusted. A calibration contains ticks and counts of one
    firmware build, so it is stale for other firmware. Raise `CalibrationError` for a date in the future, and for
    generators or a readout that the device lacks.
    """
    age_limit = _read_max_age() if max_age is None else max_age
    has_no_age_limit = calibration.origin == "factory" and _is_factory_calibration(calibration, device)
    calibration.check(
        get_identity(device), now=now or datetime.now(UTC), max_age=None if has_no_age_limit else age_limit
    )
    if _has_other_firmware(calibration, device):
        raise errors.StaleCalibration(
            (
                f"this calibration was measured with firmware {calibration.conditions['firmware']}, but "
                f"firmware {read_identity(device).firmware} is loaded"
            ),
            device=get_identity(device),
            hint=CALIBRATE_HINT,
        )

    used_entries = {
        "gens": ("generator", max(modulator.channel for modulator in calibration.modulators)),
        "readouts": ("readout", calibration.readout),
    }
    for key, (name, highest_index) in used_entries.items():
        count = _count_entries(device, key)
        if count is not None and highest_index >= count:
            raise errors.CalibrationError(
                f"this calibration uses {name} {highest_index}, but the firmware has 0 to {count - 1}",
                device=get_identity(device),
                hint=CALIBRATE_HINT,
            )


def require(
    device: Any,
    *,
    folder: str | os.PathLike[str] | None = None,
    max_age: timedelta | None = None,
    now: datetime | None = None,
) -> Calibration:
    """Return the calibration that `find` returns; raise `NotCalibrated` if there is none."""
    calibration = find(device, folder=folder, max_age=max_age, now=now)
    if calibration is None:
        raise errors.NotCalibrated(
            "it has no calibration, so light cannot be converted to values",
            device=get_identity(device),
            hint=CALIBRATE_HINT,
        )
    return calibration


def choose_calibration(device: Any, calibration: Calibration | None = None) -> Calibration:
    """Return `calibration` after a check for this device, or by default the stored calibration.

    For a recording, the age counts up to the date of the recording. Raise the errors of `check` and `require`.
    """
    recorded_at = get_recording_date(device)
    if calibration is None:
        return require(device, now=recorded_at)
    check(calibration, device, now=recorded_at)
    return calibration


def get_recording_date(device: Any) -> datetime | None:
    """Return the date of a recording; None for a live device."""
    date = getattr(device, "made", None)
    return date if isinstance(date, datetime) else None


def get_identity(device: Any) -> str:
    """Return the stable name of a device (a soc, or its name)."""
    return device if isinstance(device, str) else read_identity(device).name


def _load_factory_calibration(device: Any) -> Calibration | None:
    """Return the factory calibration of a twin, or None if it has none or runs other firmware."""
    read_document = getattr(device, "factory_calibration", None)
    document = read_document() if callable(read_document) else None
    if not document:
        return None
    factory_calibration = from_json(document, source="the factory calibration")
    return None if _has_other_firmware(factory_calibration, device) else factory_calibration


def _is_factory_calibration(calibration: Calibration, device: Any) -> bool:
    """Return whether the calibration is exactly the factory calibration of this device."""
    factory_calibration = _load_factory_calibration(device)
    return factory_calibration is not None and to_json(factory_calibration) == to_json(calibration)


def _count_entries(device: Any, key: str) -> int | None:
    """Return the number of entries under `key` in the device's configuration, or None if unknown."""
    try:
        return None if isinstance(device, str) else len(device[key])
    except (KeyError, TypeError):
        return None


def _has_other_firmware(calibration: Calibration, device: Any) -> bool:
    """Return whether the firmware builds differ. An unknown build counts as equal."""
    measured_firmware = str(calibration.conditions.get("firmware", ""))
    running_firmware = "" if isinstance(device, str) else read_identity(device).firmware
    return bool(measured_firmware and running_firmware) and measured_firmware != running_firmware


def _read_max_age() -> timedelta:
    hours = os.environ.get(AGE_VARIABLE)
    if not hours:
        return MAX_AGE
    try:
        max_age = timedelta(hours=float(hours))
        if max_age <= timedelta(0):
            raise ValueError("not above 0")
    except (ValueError, OverflowError) as error:
        raise errors.OutOfRange(
            f"{AGE_VARIABLE}={hours!r} is not a valid number of hours",
            hint="set it to a number above 0, as in 24",
        ) from error
    return max_age
