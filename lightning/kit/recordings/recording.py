"""Recording of a session with a device in a file, to share a fault with others.

    with lightning.record(soc, "fault.npz") as soc:
        LightningControl(soc, LightningConfig).acquire_decimated(soc)

The file is numpy's npz without pickles. It holds the device's identity and configuration, its calibration, the
settings, and every call with its arguments and its result or error: a JSON head, and the arrays of the calls.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lightbed.output_file import write_output
from lightning.errors import LightningError, RecordingError
from lightning.kit.devices.identity import read_identity

if TYPE_CHECKING:
    from lightning.kit.devices.guard import GuardedSoc

FORMAT = "lightbed.recording"
VERSION = 1
HEADER_ENTRY = "head"

_INVALID_FILE_ERRORS = (
    ValueError,
    KeyError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    SyntaxError,  # numpy parses array headers as Python
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
"""Errors of numpy and its archive for damaged files, or files of another format."""


@dataclass(slots=True)
class Event:
    """One call of a QickSoc's method. `times` counts consecutive equal calls with the same result."""

    call: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any = None
    error: tuple[str, str] | None = None
    """(name of the exception's class, its message), in place of a result."""
    times: int = 1

    def is_repeat_of(self, other: Event) -> bool:
        """Return whether both calls read the shot counter with the same result. Only such calls are merged."""
        own_fields = (self.call, self.args, self.kwargs, self.result, self.error)
        return self.call == "get_tproc_counter" and own_fields == (
            other.call,
            other.args,
            other.kwargs,
            other.result,
            other.error,
        )


@dataclass(slots=True)
class Recording:
    """Content of a recording file."""

    made_at: datetime
    device: Mapping[str, Any]
    soccfg: Mapping[str, Any]
    calibration: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] | None = None
    """Settings of the last acquisition by `LightningControl`, as `Settings.as_dict`; None for other programs."""
    events: list[Event] = field(default_factory=list)


class Recorder:
    """A soc that forwards all calls to another and records them."""

    def __init__(self, soc: Any, recording: Recording) -> None:
        self._soc = soc
        self._recording = recording

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._soc, name)
        if not callable(attribute) or name in {"get_cfg", "factory_calibration", "bench"}:
            return attribute

        def call_and_record(*args: Any, **kwargs: Any) -> Any:
            # Copies, because callers reuse buffers.
            event = Event(name, copy.deepcopy(args), copy.deepcopy(kwargs))
            try:
                result = attribute(*args, **kwargs)
            except Exception as error:
                event.error = (type(error).__name__, str(error))
                self._append(event)
                raise
            event.result = copy.deepcopy(result)
            self._append(event)
            return result

        return call_and_record

    def __getitem__(self, key: str) -> Any:
        return self._soc[key]

    def note_settings(self, settings: Mapping[str, Any]) -> None:
        """Store the settings of the next acquisition."""
        self._recording.settings = dict(settings)

    def _append(self, event: Event) -> None:
        events = self._recording.events
        if events and events[-1].is_repeat_of(event):
            events[-1].times += 1
        else:
            events.append(event)


@contextlib.contextmanager
def record(soc: Any, file: str | Path) -> Iterator[GuardedSoc]:
    """Yield the device and record its calls. Write the file at the end of the block, even after an error.

    Raise `RecordingError` if the file cannot be written.
    """
    from lightning.kit.devices.guard import GuardedSoc, guard_soc

    device = guard_soc(soc)
    recording = Recording(
        made_at=datetime.now(UTC),
        device=read_identity(device).as_dict(),
        soccfg=device.get_cfg(),
        calibration=_find_calibration_document(device),
    )
    try:
        yield GuardedSoc(
            Recorder(device.unguarded, recording), identity=device.identity, **device.make_guard_arguments()
        )
    finally:
        save(recording, file)


def _find_calibration_document(device: GuardedSoc) -> dict[str, Any] | None:
    """Return the device's calibration as a document, or None without a valid calibration."""
    from lightning.kit.calibration import find, to_json

    try:
        calibration = find(device)
    except LightningError:
        return None
    return None if calibration is None else to_json(calibration)


def save(recording: Recording, file: str | Path) -> None:
    """Write a recording to a file. Raise `RecordingError` if it cannot be written."""
    arrays: list[npt.NDArray[Any]] = []
    header = {
        "format": FORMAT,
        "version": VERSION,
        "made": recording.made_at.isoformat(),
        "device": recording.device,
        "soccfg": pack(recording.soccfg, arrays),
        "calibration": recording.calibration,
        "settings": recording.settings,
        "events": [_event_to_json(event, arrays) for event in recording.events],
    }
    content = io.BytesIO()
    named_arrays: dict[str, Any] = {f"array{i}": array for i, array in enumerate(arrays)}
    np.savez_compressed(content, **{HEADER_ENTRY: np.array(json.dumps(header)), **named_arrays})
    try:
        write_output(file, content.getvalue())
    except OSError as error:
        raise RecordingError(
            f"{file} cannot be written ({error.strerror})", hint="Give another path"
        ) from error


def load(file: str | Path) -> Recording:
    """Return the recording in a file. Raise `RecordingError` if it cannot be read or is not valid."""
    hint = "Record it again with lightning.record(soc, FILE)"
    try:
        with np.load(io.BytesIO(Path(file).read_bytes()), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(str(arrays.pop(HEADER_ENTRY)))
    except OSError as error:
        raise RecordingError(
            f"{file} cannot be read ({error.strerror or error})", hint="Check the path"
        ) from error
    except _INVALID_FILE_ERRORS as error:
        raise RecordingError(f"{file} is not a valid recording ({error})", hint=hint) from error
    try:
        return _parse_recording(header, arrays)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordingError(f"{file} is not a lightbed recording ({error!r})", hint=hint) from error


def _parse_recording(header: Any, arrays: Mapping[str, npt.NDArray[Any]]) -> Recording:
    if header["format"] != FORMAT or header["version"] != VERSION:
        raise ValueError(
            f"format {header['format']!r}, version {header['version']!r}, not {FORMAT!r}, version {VERSION}"
        )
    return Recording(
        made_at=datetime.fromisoformat(header["made"]),
        device={"simulated": False, **header["device"], "name": str(header["device"]["name"])},
        soccfg=unpack(header["soccfg"], arrays),
        calibration=header["calibration"],
        settings=header["settings"],
        events=[_event_from_json(event, arrays) for event in header["events"]],
    )


def _event_to_json(event: Event, arrays: list[npt.NDArray[Any]]) -> dict[str, Any]:
    return {
        "call": event.call,
        "args": pack(event.args, arrays),
        "kwargs": pack(event.kwargs, arrays),
        "result": pack(event.result, arrays),
        "error": event.error,
        "times": event.times,
    }


def _event_from_json(document: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Event:
    error = document["error"]
    return Event(
        call=str(document["call"]),
        args=tuple(unpack(document["args"], arrays)),
        kwargs=unpack(document["kwargs"], arrays),
        result=unpack(document["result"], arrays),
        error=(str(error[0]), str(error[1])) if error else None,
        times=int(document["times"]),
    )


def pack(value: Any, arrays: list[npt.NDArray[Any]]) -> Any:
    """Return a value as JSON. Append arrays to `arrays`; convert tuples and dictionaries to tagged objects."""
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"": "array", "name": f"array{len(arrays) - 1}"}
    if isinstance(value, tuple):
        return {"": "tuple", "items": [pack(item, arrays) for item in value]}
    if isinstance(value, list):
        return [pack(item, arrays) for item in value]
    if isinstance(value, Mapping):
        pairs = [[pack(key, arrays), pack(item, arrays)] for key, item in value.items()]
        return {"": "dict", "items": pairs}
    # Objects of other types cannot be restored, so only their repr is stored.
    number = value.item() if isinstance(value, np.generic) else value
    if number is None or isinstance(number, (bool, int, float, str)):
        return number
    return {"": "other", "text": repr(value)}


def unpack(value: Any, arrays: Mapping[str, npt.NDArray[Any]]) -> Any:
    """Return the value that `pack` converted. `arrays` maps names to arrays."""
    if isinstance(value, list):
        return [unpack(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    type_tag = value[""]
    if type_tag == "array":
        return arrays[value["name"]]
    if type_tag == "tuple":
        return tuple(unpack(item, arrays) for item in value["items"])
    if type_tag == "dict":
        return {unpack(key, arrays): unpack(item, arrays) for key, item in value["items"]}
    return value["text"]
