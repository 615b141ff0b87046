"""`replay://FILE`: a device that replays a recording.

A loaded program must be a recorded one, with the recorded tables, envelopes and windows. The device then returns the
recorded readings and errors in order. The same code thus reproduces a fault anywhere; other operands are rejected.

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
"""Digest of the last content by place."""

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
_REPLAYED_ERRORS = {
    kind.__name__: kind
    for kind in (
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


def note_content(
    digests: Digests, call: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Hashable | None:
    """Store the digest of the content that this call writes, and return its place, or None for a call not compared.

    >>> sent = {}
    >>> note_content(sent, "load_mem", ([1, 2],), {"addr": 16})
    ('load_mem', 'dmem', '16')
    >>> before = dict(sent)
    >>> note_content(sent, "load_mem", (np.array([1, 2]), "dmem", 16), {}), sent == before
    (('load_mem', 'dmem', '16'), True)
    """
    if call not in _COMPARED_CALLS:
        return None
    names = _COMPARED_CALLS[call]
    arguments = {**dict(names), **dict(zip((name for name, _ in names), args, strict=False)), **kwargs}
    key = (call, *(str(arguments[name]) for name, _ in names if name not in _CONTENT_ARGUMENTS))
    content = [arguments[name] for name, _ in names if name in _CONTENT_ARGUMENTS]
    digests[key] = hashlib.sha256(repr([_normalise(value) for value in content]).encode()).hexdigest()
    return key


def _normalise(value: Any) -> Any:
    """Return a form that is equal for lists and arrays of any integer width, since QICK sends lists over a network."""
    if isinstance(value, Mapping):
        return sorted((str(key), _normalise(entry)) for key, entry in value.items())
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray | list | tuple):
        return value
    numbers = _join_whole_numbers(value)
    if numbers is None:
        return [_normalise(entry) for entry in value]
    return numbers.shape, hashlib.sha256(numbers.tobytes()).hexdigest()


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
        self.made = recording.made
        """Date of the recording, at which the age of a calibration is computed."""
        self.announcement = (
            f"recording of {self.identity}, made {recording.made.isoformat(timespec='seconds')}"
        )
        self.autoproxy: list[Any] = []
        self._recording = recording
        self._acquisitions = _group_by_program(recording.events)
        self._next = 0
        self._candidates: list[int] = []
        """Indices of the acquisitions with the loaded program, next acquisition first; empty after the start."""
        self._digests: Digests = {}
        self._new_keys: set[Hashable] = set()
        """Places written since the start of the previous program."""
        self._answers: dict[str, deque[Event]] = _queue_by_call(recording.events)

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
        """Return the last recorded state of the clocks, or True without one."""
        results = [event.result for event in self._recording.events if event.call == "clocks_locked"]
        return bool(results[-1]) if results else True

    def get_sample_rates(self) -> Any:
        """Return the last recorded rates, or the configuration's rates without any."""
        results = [event.result for event in self._recording.events if event.call == "get_sample_rates"]
        tiles = self["rf"]["tiles"]
        nominal = {
            kind: {tile: tile_config["fs"] for tile, tile_config in tiles[kind].items()}
            for kind in ("dac", "adc")
        }
        return results[-1] if results else nominal

    def load_bin_program(self, binprog: Any, load_mem: bool = True) -> None:
        """Select the next acquisition with this program, cyclically. Raise `RecordingError` if there is none."""
        count = len(self._acquisitions)
        order = [(self._next + step) % count for step in range(count)]
        self._candidates = [i for i in order if _are_equal(self._acquisitions[i].program, binprog)]
        if not self._candidates:
            raise RecordingError(
                f"this program is not among the {count} recorded",
                device=self.identity,
                hint="Use the recorded configuration: LightningControl(soc, soc.config)",
            )
        self._select(self._candidates[0])

    def start_tproc(self) -> None:
        """Start the acquisition with this program and these tables. Raise `RecordingError` if there is none."""
        self._start()
        self._answer("start_tproc")

    def start_readout(self, *_: Any, **__: Any) -> None:
        """Start the acquisition like `start_tproc`, for streamed sums."""
        self._start()
        self._answer("start_readout")

    def _start(self) -> None:
        if not self._candidates:  # a further run of the same acquisition
            return
        fitting = (
            i for i in self._candidates if self._acquisitions[i].matches_state(self._digests, self._new_keys)
        )
        index = next(fitting, None)
        if index is None:
            raise RecordingError(
                "this program was recorded with other operands or windows",
                device=self.identity,
                hint="Repeat the recorded calls; a recording holds no other results",
            )
        self._select(index)
        self._candidates, self._new_keys = [], set()

    def _select(self, index: int) -> None:
        self._next = (index + 1) % len(self._acquisitions)
        self._answers = _queue_by_call(self._acquisitions[index].events)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        recorded_calls = {event.call for event in self._recording.events}
        if name not in recorded_calls and not name.startswith(("load_", "config", "set_", "reset")):
            raise AttributeError(f"{name} was not recorded")
        return partial(self._answer, name)

    def _answer(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Store the digest of what this call writes; return its next recorded result, or raise its error."""
        content_key = note_content(self._digests, name, args, kwargs)
        if content_key is not None:
            self._new_keys.add(content_key)
        queue = self._answers.get(name)
        if not queue:
            if name in _READ_CALLS:
                raise RecordingError(
                    f"the recording ends before this {name}",
                    device=self.identity,
                    hint="Record the whole session",
                )
            return None
        # The last reading of the counter repeats, as on a stuck device.
        repeats = name == "get_tproc_counter" and len(queue) == 1
        event = queue[0] if repeats else queue.popleft()
        if event.error is not None:
            raise _make_error(*event.error)
        return event.result


@dataclass(slots=True)
class Acquisition:
    """A loaded program, and the calls that followed."""

    program: Any
    digests: Digests
    """Digests of the device's content when the program started."""
    fresh_keys: set[Hashable]
    """Places written since the start of the previous program."""
    events: list[Event] = field(default_factory=list)
    has_begun: bool = False

    def matches_state(self, digests: Digests, fresh_keys: set[Hashable]) -> bool:
        """Return whether all places that either session has newly written have the same content."""
        return all(
            self.digests.get(content_key) == digests.get(content_key)
            for content_key in self.fresh_keys | fresh_keys
        )


def _group_by_program(events: list[Event]) -> list[Acquisition]:
    """Group events into acquisitions, one for each loaded program, in order."""
    acquisitions: list[Acquisition] = []
    digests: Digests = {}
    fresh_keys: set[Hashable] = set()
    for event in events:
        if event.call == "load_bin_program":
            program = event.args[0] if event.args else event.kwargs["binprog"]
            acquisitions.append(Acquisition(program, dict(digests), set(fresh_keys)))
            continue
        if (content_key := note_content(digests, event.call, event.args, event.kwargs)) is not None:
            fresh_keys.add(content_key)
        if not acquisitions:
            continue
        acquisition = acquisitions[-1]
        acquisition.events.append(event)
        if event.call in _START_CALLS and not acquisition.has_begun:
            acquisition.digests, acquisition.fresh_keys, acquisition.has_begun = (
                dict(digests),
                fresh_keys,
                True,
            )
            fresh_keys = set()
    return acquisitions


def _queue_by_call(events: list[Event]) -> dict[str, deque[Event]]:
    answers: dict[str, deque[Event]] = {}
    for event in events:
        answers.setdefault(event.call, deque()).append(event)
    return answers


def _are_equal(left: Any, right: Any) -> bool:
    """Return whether two programs are equal: lists of words (version 1), or dictionaries of arrays (version 2)."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_are_equal(left[key], right[key]) for key in left)
    if left is None or right is None:
        return left is right
    return np.array_equal(np.asarray(left), np.asarray(right))


def _make_error(kind: str, message: str) -> Exception:
    """Return the recorded error if it is a known builtin, else a `ConnectionError`."""
    error_class = _REPLAYED_ERRORS.get(kind)
    return ConnectionError(f"{kind}: {message}") if error_class is None else error_class(message)
