"""Noiseless traces, kept under all that they depend on: what a plant answered to which stretch of which signals.

The key of a trace is the content of the signals that the plant looks at, and all traces are forgotten when
anything else changes (the plant's version, envelopes, lengths). So nothing stale can come back, whatever program
runs, and the thousand equal shots of a loop cost the plant one question.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sim.twins.rfsoc.plant import Plant, Received
from sim.twins.rfsoc.signals.track import Recorder, TimeLine, whole_ratio

MEMORY_BYTES = 64 << 20
LOOKS = 4
"""So often windows are grouped again because the plant looked further than before; then each is asked for alone."""
SLACK = 2
"""Samples by which a plant may ask for more at another time, where rates have no whole ratio."""

Place: TypeAlias = tuple[int, int]
"""On a generator's line: whole samples, and the rest in the smallest unit of the ratio of rates."""


class Traces:
    """Traces that one readout of a plant receives."""

    def __init__(self, plant: Plant, readout: int) -> None:
        self._plant = plant
        self._readout = readout
        self.epoch: Any = None
        self._reach: dict[int, tuple[int, int]] | None = None
        self._traces: dict[Any, Received] = {}
        self.questions = 0
        """How often the plant was asked."""

    def begin(self, epoch: Any) -> None:
        """Forget everything unless this is the epoch of before."""
        if epoch != self.epoch:
            self.epoch = epoch
            self._reach = None
            self._traces = {}

    def receive(self, timeline: TimeLine, rate_hz: float, first: int, count: int) -> Received:
        """Return the trace of `count` samples from number `first` on; the same object for the same trace."""
        places = [_place(first, generator.rate_hz / rate_hz) for generator in timeline.generators]
        key = None if self._reach is None else self._key(timeline, places, self._reach)
        if key is not None and key in self._traces:
            return self._traces[key]
        recorder = Recorder(timeline)
        received = _check(self._plant.receive(self._readout, rate_hz, first, count, recorder), count)
        self.questions += 1
        reach = _reach(self._reach or {}, recorder.asked, places)
        if reach != self._reach:
            self._reach, self._traces = reach, {}  # keys of a shorter reach say too little
            key = self._key(timeline, places, reach)
        elif len(self._traces) * received.level.nbytes * 2 > MEMORY_BYTES:
            self._traces = {}
        self._traces[key] = received
        return received

    def of_windows(
        self, timeline: TimeLine, rate_hz: float, firsts: npt.NDArray[np.int64], count: int
    ) -> tuple[list[Received], npt.NDArray[np.int64]]:
        """Return the traces in windows of `count` samples from each of `firsts` on, and the trace of each.

        Windows are sorted into groups that see the same, so that a thousand equal shots are looked at together.
        """
        self.receive(timeline, rate_hz, int(firsts[0]), count)
        for _ in range(LOOKS):
            reach = self._reach
            heads, group = _groups(timeline, rate_hz, firsts, reach or {})
            seen = [self.receive(timeline, rate_hz, first, count) for first in firsts[heads].tolist()]
            if (
                self._reach == reach
            ):  # else the plant looked further, and groups of a shorter reach say too little
                return seen, group
        each = [self.receive(timeline, rate_hz, first, count) for first in firsts.tolist()]
        return each, np.arange(len(each))

    @staticmethod
    def _key(timeline: TimeLine, places: list[Place], reach: dict[int, tuple[int, int]]) -> Any:
        return tuple(
            (places[g][1], timeline.signature(g, places[g][0] + low, high - low))
            for g, (low, high) in reach.items()
        )


def _groups(
    timeline: TimeLine, rate_hz: float, firsts: npt.NDArray[np.int64], reach: dict[int, tuple[int, int]]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return (groups,) one window of each group, and (windows,) the group of each window."""
    columns = [np.zeros((len(firsts), 1), np.int64)]
    for g, (low, high) in reach.items():
        step, lanes = whole_ratio(timeline.generators[g].rate_hz / rate_hz)
        places, rest = np.divmod(firsts * step, lanes)
        columns += [rest[:, None], timeline.signatures(g, places + low, high - low)]
    table = np.ascontiguousarray(np.column_stack(columns))
    rows = table.view(np.dtype((np.void, table.itemsize * table.shape[1]))).ravel()
    _, heads, group = np.unique(rows, return_index=True, return_inverse=True)
    return heads, group.reshape(-1)


def _place(sample: int, ratio: float) -> Place:
    step, lanes = whole_ratio(ratio)
    return divmod(sample * step, lanes)


def _reach(
    before: dict[int, tuple[int, int]], asked: Iterable[tuple[int, int, int]], places: list[Place]
) -> dict[int, tuple[int, int]]:
    """Return the interval that a plant sees on each generator's line, relative to the window."""
    reach = dict(before)
    for generator, begin, length in asked:
        if generator >= len(places):
            continue
        low, high = begin - places[generator][0], begin - places[generator][0] + length
        known = reach.get(generator)
        if known is None or low < known[0] or high > known[1]:
            low, high = low - SLACK, high + SLACK
            reach[generator] = (low, high) if known is None else (min(low, known[0]), max(high, known[1]))
    return reach


def _check(received: Received, count: int) -> Received:
    level = np.ascontiguousarray(received.level, dtype=np.float64)
    noise = np.ascontiguousarray(received.noise, dtype=np.float64)
    own = None if received.own is None else np.ascontiguousarray(received.own, dtype=np.float64)
    shapes = [one.shape for one in (level, noise, own) if one is not None]
    if any(shape != (count,) for shape in shapes):
        raise ValueError(
            f"a plant returned {' and '.join(map(str, shapes))} where {count} samples were requested"
        )
    return Received(level, noise, received.correlation, own)
