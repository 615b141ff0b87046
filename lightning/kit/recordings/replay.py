"""`replay://FILE`: a device that replays a recording.

A loaded program must be a recorded one, with the recorded tables, envelopes and windows. The device then returns the
recorded readings and errors in order. Code that was recorded therefore shows the same fault on any computer. Other
operands are rejected.

A program does not contain its tables. A replay therefore also compares a digest of each table.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from qick import QickConfig

from lightning.errors import AddressError, RecordingError
from lightning.kit.config import Configuration
from lightning.kit.recordings import recording as file_format
from lightning.kit.recordings.recording import Event, Recording
from lightning.kit.settings import Settings

Digests = dict[Hashable, str]
"""Digest of the content last written to each place. A place is a call with its address or channel."""

_COMPARED_CALLS: Mapping[str, tuple[tuple[str, Any], ...]] = {
    "load_mem": (("data", ()), ("mem_sel", "dmem"), ("addr", 0)),
    "load_envelope": (("ch", 0), ("data", ()), ("addr", 0)),
    "configure_readout": (("ch", 0), ("ro_regs", ())),
    "config_avg": (("ch", 0), ("address", 0), ("length", 1)),
    "config_buf": (("ch", 0), ("address", 0), ("length", 1)),
}
"""QickSoc calls that a replay compares, with names and defaults of their arguments."""
_CONTENT_ARGUMENTS = frozenset({"data", "ro_regs", "length"})
"""Arguments that hold the content. The others determine the place."""

PREFIX = "replay://"
_READ_CALLS = ("get_decimated", "get_accumulated", "poll_data", "get_tproc_counter")
_START_CALLS = ("start_tproc", "start_readout")
_ERROR_CLASS_BY_NAME = {
    class_name.__name__: class_name
    for class_name in (
        AttributeError,
        BrokenPipeError,
        ConnectionError,
        ConnectionResetError,
        IndexError,
        KeyError,
        OSError,
        RuntimeError,
        TimeoutError,
        TypeError,
        ValueError,
    )
}


def record_digest(
    digests: Digests, method_name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Hashable | None:
    """Store the digest of the content that this call writes, and return its place, or None for a call not compared.

    >>> sent = {}
    >>> record_digest(sent, "load_mem", ([1, 2],), {"addr": 16})
    ('load_mem', 'dmem', '16')
    >>> before = dict(sent)
    >>> record_digest(sent, "load_mem", (np.array([1, 2]), "dmem", 16), {}), sent == before
    (('load_mem', 'dmem', '16'), True)
    """
    if method_name not in _COMPARED_CALLS:
        return None
    parameters = _COMPARED_CALLS[method_name]
    arguments = {
        **dict(parameters),
        **dict(zip((name for name, _ in parameters), args, strict=False)),
        **kwargs,
    }
    location = (
        method_name,
        *(str(arguments[name]) for name, _ in parameters if name not in _CONTENT_ARGUMENTS),
    )
    content = [arguments[name] for name, _ in parameters if name in _CONTENT_ARGUMENTS]
    digests[location] = hashlib.sha256(repr([_normalise(value) for value in content]).encode()).hexdigest()
    return location


def _normalise(value: Any) -> Any:
    """Return a form that is equal for lists and arrays of any integer width, since QICK sends lists over a network."""
    if isinstance(value, Mapping):
        return sorted((str(key), _normalise(entry)) for key, entry in value.items())
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray | list | tuple):
        return value
    integer_array = _join_whole_numbers(value)
    if integer_array is None:
        return [_normalise(entry) for entry in value]
    return integer_array.shape, hashlib.sha256(integer_array.tobytes()).hexdigest()


def _join_whole_numbers(value: Any) -> npt.NDArray[np.int64] | None:
    """Return the value as one array if it holds only integers, else None. This is fast for long envelopes."""
    try:
        array = np.asarray(value)
    except ValueError:  # rows of unequal lengths
        return None
    return array.astype(np.int64) if array.dtype.kind in "iu" else None


def connect(address: str) -> ReplayedSoc:
    """Return a device that replays the file. Raise `AddressError` without a file, `RecordingError` if it is invalid."""
    path = address.removeprefix(PREFIX)
    if not path:
        raise AddressError(f"{address!r} names no file", hint="Write replay://FILE, as in replay://fault.npz")
    return ReplayedSoc(file_format.load(Path(path)))


class ReplayedSoc(QickConfig):  # type: ignore[misc]
    """A QickSoc that replays a recording.

    Calls raise `RecordingError` for a program or a reading that was not recorded.
    """

    def __init__(self, recording: Recording) -> None:
        super().__init__(dict(recording.soccfg))
        self.identity = str(recording.device["name"])
        self.simulated = bool(recording.device["simulated"])
        self.made = recording.made_at
        """Date of the recording. The age of a calibration is counted up to this date."""
        self.announcement = (
            f"recording of {self.identity}, made {recording.made_at.isoformat(timespec='seconds')}"
        )
        self.autoproxy: list[Any] = []
        self._recording = recording
        self._acquisitions = _group_by_program(recording.events)
        self._next_index = 0
        self._candidates: list[int] = []
        """Indices of the acquisitions with the loaded program, next acquisition first; empty once one has started."""
        self._digests: Digests = {}
        self._written_locations: set[Hashable] = set()
        """Places written since the start of the previous program."""
        self._events_by_call: dict[str, deque[Event]] = _queue_by_call(recording.events)

    @property
    def config(self) -> Configuration:
        """The configuration of the recorded acquisition. Raise `RecordingError` if the recording has none."""
        if self._recording.settings is None:
            raise RecordingError(
                "the recording is not an acquisition by LightningControl",
                hint="Run the recorded program itself",
            )
        return Configuration(Settings.from_dict(self._recording.settings))

    def factory_calibration(self) -> dict[str, Any] | None:
        """Return the recorded calibration, or None."""
        calibration = self._recording.calibration
        return None if calibration is None else dict(calibration)

    def clocks_locked(self) -> bool:
        """Return the last recorded state of the clocks, or True if none was recorded."""
        results = [event.result for event in self._recording.events if event.call == "clocks_locked"]
        return bool(results[-1]) if results else True

    def get_sample_rates(self) -> Any:
        """Return the last recorded rates, or those of the configuration if no rates were recorded."""
        results = [event.result for event in self._recording.events if event.call == "get_sample_rates"]
        tiles = self["rf"]["tiles"]
        nominal_rates = {
            class_name: {tile: tile_config["fs"] for tile, tile_config in tiles[class_name].items()}
            for class_name in ("dac", "adc")
        }
        return results[-1] if results else nominal_rates

    def load_bin_program(self, binprog: Any, load_mem: bool = True) -> None:
        """Select the next acquisition with this program, cyclically. Raise `RecordingError` if there is none."""
        acquisition_count = len(self._acquisitions)
        indices = [(self._next_index + step) % acquisition_count for step in range(acquisition_count)]
        self._candidates = [
            index for index in indices if _are_equal(self._acquisitions[index].program, binprog)
        ]
        if not self._candidates:
            raise RecordingError(
                f"this program is not among the {acquisition_count} recorded",
                device=self.identity,
                hint="Use the recorded configuration: LightningControl(soc, soc.config)",
            )
        self._select_acquisition(self._candidates[0])

    def start_tproc(self) -> None:
        """Start the acquisition with this program and these tables. Raise `RecordingError` if there is none."""
        self._start_acquisition()
        self._replay_call("start_tproc")

    def start_readout(self, *_: Any, **__: Any) -> None:
        """Start the acquisition like `start_tproc`, for streamed sums."""
        self._start_acquisition()
        self._replay_call("start_readout")

    def _start_acquisition(self) -> None:
        if not self._candidates:  # a further run of the same acquisition
            return
        matching_indices = (
            candidate
            for candidate in self._candidates
            if self._acquisitions[candidate].matches_state(self._digests, self._written_locations)
        )
        index = next(matching_indices, None)
        if index is None:
            raise RecordingError(
                "this program was recorded with other operands or windows",
                device=self.identity,
                hint="Repeat the recorded calls; a recording holds no other results",
            )
        self._select_acquisition(index)
        self._candidates, self._written_locations = [], set()

    def _select_acquisition(self, index: int) -> None:
        self._next_index = (index + 1) % len(self._acquisitions)
        self._events_by_call = _queue_by_call(self._acquisitions[index].events)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        recorded_calls = {event.call for event in self._recording.events}
        if name not in recorded_calls and not name.startswith(("load_", "config", "set_", "reset")):
            raise AttributeError(f"{name} was not recorded")
        return partial(self._replay_call, name)

    def _replay_call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Store the digest of the written content. Return the next recorded result of this call, or raise its error."""
        location = record_digest(self._digests, name, args, kwargs)
        if location is not None:
            self._written_locations.add(location)
        queue = self._events_by_call.get(name)
        if not queue:
            if name in _READ_CALLS:
                raise RecordingError(
                    f"the recording ends before this {name}",
                    device=self.identity,
                    hint="Record the whole session",
                )
            return None
        # The last reading of the counter repeats, as on a stuck device.
        is_repeated = name == "get_tproc_counter" and len(queue) == 1
        event = queue[0] if is_repeated else queue.popleft()
        if event.error is not None:
            raise _make_error(*event.error)
        return event.result


@dataclass(slots=True)
class Acquisition:
    """A loaded program, and the calls that followed."""

    program: Any
    digests: Digests
    """Digests of the device's content when the program started."""
    written_locations: set[Hashable]
    """Places written since the start of the previous program."""
    events: list[Event] = field(default_factory=list)
    has_begun: bool = False

    def matches_state(self, digests: Digests, written_locations: set[Hashable]) -> bool:
        """Return whether the contents are equal in all places that either side has written since the previous start."""
        return all(
            self.digests.get(location) == digests.get(location)
            for location in self.written_locations | written_locations
        )


def _group_by_program(events: list[Event]) -> list[Acquisition]:
    """Group events into acquisitions, one for each loaded program, in order."""
    acquisitions: list[Acquisition] = []
    digests: Digests = {}
    written_locations: set[Hashable] = set()
    for event in events:
        if event.call == "load_bin_program":
            program = event.args[0] if event.args else event.kwargs["binprog"]
            acquisitions.append(Acquisition(program, dict(digests), set(written_locations)))
            continue
        if (location := record_digest(digests, event.call, event.args, event.kwargs)) is not None:
            written_locations.add(location)
        if not acquisitions:
            continue
        acquisition = acquisitions[-1]
        acquisition.events.append(event)
        if event.call in _START_CALLS and not acquisition.has_begun:
            acquisition.digests, acquisition.written_locations, acquisition.has_begun = (
                dict(digests),
                written_locations,
                True,
            )
            written_locations = set()
    return acquisitions


def _queue_by_call(events: list[Event]) -> dict[str, deque[Event]]:
    events_by_call: dict[str, deque[Event]] = {}
    for event in events:
        events_by_call.setdefault(event.call, deque()).append(event)
    return events_by_call


def _are_equal(left: Any, right: Any) -> bool:
    """Return whether two programs are equal: lists of words (version 1), or dictionaries of arrays (version 2)."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_are_equal(left[key], right[key]) for key in left)
    if left is None or right is None:
        return left is right
    return np.array_equal(np.asarray(left), np.asarray(right))


def _make_error(class_name: str, message: str) -> Exception:
    """Return the recorded error if it is a known builtin, else a `ConnectionError`."""
    error_class = _ERROR_CLASS_BY_NAME.get(class_name)
    return ConnectionError(f"{class_name}: {message}") if error_class is None else error_class(message)
