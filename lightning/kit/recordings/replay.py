"""`replay://FILE`: a device that does what a recording says.

A program that is loaded must be one of the recorded, with the recorded tables, envelopes and windows; what is then
read comes in the recorded order, errors too. So the same lines that met a fault meet it again, anywhere, and other
operands are refused.

A program is the same whatever its tables hold. So a replay compares these, too, by a digest of each.
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

Sent = dict[Hashable, str]
"""Place -> digest of what was written there last."""

_COMPARED: Mapping[str, tuple[tuple[str, Any], ...]] = {
    "load_mem": (("data", ()), ("mem_sel", "dmem"), ("addr", 0)),
    "load_envelope": (("ch", 0), ("data", ()), ("addr", 0)),
    "configure_readout": (("ch", 0), ("ro_regs", ())),
    "config_avg": (("ch", 0), ("address", 0), ("length", 1)),
    "config_buf": (("ch", 0), ("address", 0), ("length", 1)),
}
"""Calls of QickSoc that are compared: names and defaults of their arguments."""
_CONTENT = frozenset({"data", "ro_regs", "length"})
"""Arguments that say what is written; the others say where."""

PREFIX = "replay://"
_READS = ("get_decimated", "get_accumulated", "poll_data", "get_tproc_counter")
_STARTS = ("start_tproc", "start_readout")
_REPEATED = {
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


def note(sent: Sent, call: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Hashable | None:
    """Enter what this call writes, and return its place; None for a call that is not compared.

    >>> sent = {}
    >>> note(sent, "load_mem", ([1, 2],), {"addr": 16})
    ('load_mem', 'dmem', '16')
    >>> before = dict(sent)
    >>> note(sent, "load_mem", (np.array([1, 2]), "dmem", 16), {}), sent == before
    (('load_mem', 'dmem', '16'), True)
    """
    if call not in _COMPARED:
        return None
    names = _COMPARED[call]
    given = {**dict(names), **dict(zip((name for name, _ in names), args, strict=False)), **kwargs}
    place = (call, *(str(given[name]) for name, _ in names if name not in _CONTENT))
    content = [given[name] for name, _ in names if name in _CONTENT]
    sent[place] = hashlib.sha256(repr([_plain(each) for each in content]).encode()).hexdigest()
    return place


def _plain(value: Any) -> Any:
    """Return the same for lists and arrays, and for numbers of any width: over a network QICK sends lists."""
    if isinstance(value, Mapping):
        return sorted((str(key), _plain(each)) for key, each in value.items())
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray | list | tuple):
        return value
    numbers = _whole_numbers(value)
    if numbers is None:
        return [_plain(each) for each in value]
    return numbers.shape, hashlib.sha256(numbers.tobytes()).hexdigest()


def _whole_numbers(value: Any) -> npt.NDArray[np.int64] | None:
    """Return the words as one array, where they are whole numbers: envelopes are long."""
    try:
        found = np.asarray(value)
    except ValueError:  # of unequal lengths
        return None
    return found.astype(np.int64) if found.dtype.kind in "iu" else None


def connect(address: str) -> ReplayedSoc:
    """Return the device that the file makes. Raises `AddressError`, `RecordingError`."""
    path = address.removeprefix(PREFIX)
    if not path:
        raise AddressError(f"{address!r} names no file", hint="Write replay://FILE, as in replay://fault.npz")
    return ReplayedSoc(file_format.load(Path(path)))


class ReplayedSoc(QickConfig):  # type: ignore[misc]
    """A QickSoc that answers from a recording.

    Raises `RecordingError` for a program or a question that was not recorded.
    """

    def __init__(self, recording: Recording) -> None:
        super().__init__(dict(recording.soccfg))
        self.identity = str(recording.device["name"])
        self.simulated = bool(recording.device["simulated"])
        self.made = recording.made
        """When it was recorded: a calibration was of that age then."""
        self.about = f"recording of {self.identity}, made {recording.made.isoformat(timespec='seconds')}"
        self.autoproxy: list[Any] = []
        self._recording = recording
        self._acquisitions = _by_program(recording.events)
        self._next = 0
        self._candidates: list[int] = []
        """Acquisitions that ran the loaded program, the next first; empty once it has started."""
        self._sent: Sent = {}
        self._fresh: set[Hashable] = set()
        """Places that were written since the last program began."""
        self._answers: dict[str, deque[Event]] = _queues(recording.events)

    @property
    def config(self) -> Configuration:
        """The configuration of the recorded acquisition. Raises `RecordingError` when another program was."""
        if self._recording.settings is None:
            raise RecordingError(
                "the recording is not an acquisition by LightningControl",
                hint="Run the recorded program itself",
            )
        return Configuration(Settings.from_dict(self._recording.settings))

    def factory_calibration(self) -> dict[str, Any] | None:
        """Return the calibration that was in use; None when there was none."""
        found = self._recording.calibration
        return None if found is None else dict(found)

    def clocks_locked(self) -> bool:
        """Return whether they were locked, as recorded; they were when nobody asked."""
        found = [each.result for each in self._recording.events if each.call == "clocks_locked"]
        return bool(found[-1]) if found else True

    def get_sample_rates(self) -> Any:
        """Return the rates as recorded, or as the configuration says."""
        found = [each.result for each in self._recording.events if each.call == "get_sample_rates"]
        tiles = self["rf"]["tiles"]
        nominal = {kind: {tile: each["fs"] for tile, each in tiles[kind].items()} for kind in ("dac", "adc")}
        return found[-1] if found else nominal

    def load_bin_program(self, binprog: Any, load_mem: bool = True) -> None:
        """Turn to the next acquisition that ran this program, from the beginning again after the last."""
        count = len(self._acquisitions)
        order = [(self._next + step) % count for step in range(count)]
        self._candidates = [i for i in order if _equal(self._acquisitions[i].program, binprog)]
        if not self._candidates:
            raise RecordingError(
                f"this program is not among the {count} recorded",
                device=self.identity,
                hint="Use the recorded configuration: LightningControl(soc, soc.config)",
            )
        self._turn_to(self._candidates[0])

    def start_tproc(self) -> None:
        """Begin the acquisition that ran this program on these tables. Raises `RecordingError` when none did."""
        self._begin()
        self._answer("start_tproc")

    def start_readout(self, *_: Any, **__: Any) -> None:
        """Start a readout, as `start_tproc` does a program, for sums that are streamed."""
        self._begin()
        self._answer("start_readout")

    def _begin(self) -> None:
        if not self._candidates:  # a further run of the same acquisition
            return
        fitting = (i for i in self._candidates if self._acquisitions[i].fits(self._sent, self._fresh))
        chosen = next(fitting, None)
        if chosen is None:
            raise RecordingError(
                "this program was recorded with other operands or windows",
                device=self.identity,
                hint="Repeat the recorded calls; a recording holds no other answers",
            )
        self._turn_to(chosen)
        self._candidates, self._fresh = [], set()

    def _turn_to(self, index: int) -> None:
        self._next = (index + 1) % len(self._acquisitions)
        self._answers = _queues(self._acquisitions[index].events)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        recorded = {each.call for each in self._recording.events}
        if name not in recorded and not name.startswith(("load_", "config", "set_", "reset")):
            raise AttributeError(f"{name} was not recorded")
        return partial(self._answer, name)

    def _answer(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Return what was recorded next for this call; what it sends is noted."""
        place = note(self._sent, name, args, kwargs)
        if place is not None:
            self._fresh.add(place)
        waiting = self._answers.get(name)
        if not waiting:
            if name in _READS:
                raise RecordingError(
                    f"the recording ends before this {name}",
                    device=self.identity,
                    hint="Record the whole session",
                )
            return None
        # A counter stays where it was last seen: that is how a stuck device looks.
        stays = name == "get_tproc_counter" and len(waiting) == 1
        event = waiting[0] if stays else waiting.popleft()
        if event.error is not None:
            raise _error(*event.error)
        return event.result


@dataclass(slots=True)
class Acquisition:
    """A program that was loaded, and what followed."""

    program: Any
    sent: Sent
    """What stood in the device when it began."""
    fresh: set[Hashable]
    """Places that had been written since the program before began."""
    events: list[Event] = field(default_factory=list)
    begun: bool = False

    def fits(self, sent: Sent, fresh: set[Hashable]) -> bool:
        """Return whether the same is sent now, in all places that this program or the recorded one has written."""
        return all(self.sent.get(place) == sent.get(place) for place in self.fresh | fresh)


def _by_program(events: list[Event]) -> list[Acquisition]:
    """Return every program that was loaded."""
    found: list[Acquisition] = []
    sent: Sent = {}
    fresh: set[Hashable] = set()
    for event in events:
        if event.call == "load_bin_program":
            program = event.args[0] if event.args else event.kwargs["binprog"]
            found.append(Acquisition(program, dict(sent), set(fresh)))
            continue
        if (place := note(sent, event.call, event.args, event.kwargs)) is not None:
            fresh.add(place)
        if not found:
            continue
        found[-1].events.append(event)
        if event.call in _STARTS and not found[-1].begun:
            found[-1].sent, found[-1].fresh, found[-1].begun = dict(sent), fresh, True
            fresh = set()
    return found


def _queues(events: list[Event]) -> dict[str, deque[Event]]:
    answers: dict[str, deque[Event]] = {}
    for event in events:
        answers.setdefault(event.call, deque()).append(event)
    return answers


def _equal(one: Any, other: Any) -> bool:
    """Return whether two programs are equal: lists of words (version 1), or dictionaries of arrays (version 2)."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if one is None or other is None:
        return one is other
    return np.array_equal(np.asarray(one), np.asarray(other))


def _error(kind: str, message: str) -> Exception:
    """Return the recorded error as itself where it is a builtin one, else as a broken connection."""
    found = _REPEATED.get(kind)
    return ConnectionError(f"{kind}: {message}") if found is None else found(message)
