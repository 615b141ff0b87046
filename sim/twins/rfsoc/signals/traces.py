"""Cache of noiseless traces.

The key of a trace is the content of the signals that the plant reads for it. When anything else changes (version of the
plant, envelopes, lengths), all traces are dropped. Therefore the cache never returns a stale trace, and the thousand
equal shots of a loop need only one call of the plant.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sim.twins.rfsoc.plant import Plant, ReceivedSignal
from sim.twins.rfsoc.signals.track import RecordingOutputs, TimeLine, find_integer_ratio

MAX_MEMORY_BYTES = 64 << 20
MAX_GROUPINGS = 4
"""Maximum number of groupings. If the plant still reads more than before, each window is requested separately."""
READ_RANGE_MARGIN = 2
"""Number of samples by which the range that a plant reads may vary if the ratio of rates is not an integer."""

Position: TypeAlias = tuple[int, int]
"""Position on a generator's time line: whole samples, and the numerator of the remaining fraction of a sample."""


class Traces:
    """Traces that one readout of a plant receives."""

    def __init__(self, plant: Plant, readout: int) -> None:
        self._plant = plant
        self._readout = readout
        self.epoch: Any = None
        self._read_ranges: dict[int, tuple[int, int]] | None = None
        self._traces: dict[Any, ReceivedSignal] = {}
        self.plant_call_count = 0
        """Number of calls of the plant."""

    def set_epoch(self, epoch: Any) -> None:
        """Drop all traces if the epoch has changed."""
        if epoch != self.epoch:
            self.epoch = epoch
            self._read_ranges = None
            self._traces = {}

    def receive(self, timeline: TimeLine, rate_hz: float, first: int, count: int) -> ReceivedSignal:
        """Return the trace of `count` samples from number `first`. For the same trace, return the same object."""
        positions = [_split_position(first, generator.rate_hz / rate_hz) for generator in timeline.generators]
        key = None if self._read_ranges is None else self._make_key(timeline, positions, self._read_ranges)
        if key is not None and key in self._traces:
            return self._traces[key]
        recorder = RecordingOutputs(timeline)
        received_signal = _check_shapes(
            self._plant.receive(self._readout, rate_hz, first, count, recorder), count
        )
        self.plant_call_count += 1
        read_ranges = _extend_read_ranges(self._read_ranges or {}, recorder.requests, positions)
        if read_ranges != self._read_ranges:
            self._read_ranges, self._traces = read_ranges, {}  # keys of shorter read ranges are ambiguous
            key = self._make_key(timeline, positions, read_ranges)
        elif len(self._traces) * received_signal.level.nbytes * 2 > MAX_MEMORY_BYTES:
            self._traces = {}
        self._traces[key] = received_signal
        return received_signal

    def receive_windows(
        self, timeline: TimeLine, rate_hz: float, first_samples: npt.NDArray[np.int64], count: int
    ) -> tuple[list[ReceivedSignal], npt.NDArray[np.int64]]:
        """Return a list of traces, and (windows,) the number of the trace of each window of `count` samples.

        Windows with the same signals form a group and share a trace, so a thousand equal shots need one trace.
        """
        self.receive(timeline, rate_hz, int(first_samples[0]), count)
        for _ in range(MAX_GROUPINGS):
            read_ranges = self._read_ranges
            representatives, group_numbers = _group_windows(
                timeline, rate_hz, first_samples, read_ranges or {}
            )
            received_signal = [
                self.receive(timeline, rate_hz, first, count)
                for first in first_samples[representatives].tolist()
            ]
            if (
                self._read_ranges == read_ranges
            ):  # otherwise the plant has read more samples, and groups of shorter read ranges are ambiguous
                return received_signal, group_numbers
        received_signals = [self.receive(timeline, rate_hz, first, count) for first in first_samples.tolist()]
        return received_signals, np.arange(len(received_signals))

    @staticmethod
    def _make_key(
        timeline: TimeLine, positions: list[Position], read_ranges: dict[int, tuple[int, int]]
    ) -> Any:
        return tuple(
            (positions[g][1], timeline.make_signature(g, positions[g][0] + low, high - low))
            for g, (low, high) in read_ranges.items()
        )


def _group_windows(
    timeline: TimeLine,
    rate_hz: float,
    first_samples: npt.NDArray[np.int64],
    read_ranges: dict[int, tuple[int, int]],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return one window of each group, (groups,), and the group of each window, (windows,)."""
    columns = [np.zeros((len(first_samples), 1), np.int64)]
    for generator, (low, high) in read_ranges.items():
        numerator, denominator = find_integer_ratio(timeline.generators[generator].rate_hz / rate_hz)
        positions, remainders = np.divmod(first_samples * numerator, denominator)
        columns += [remainders[:, None], timeline.make_signatures(generator, positions + low, high - low)]
    key_rows = np.ascontiguousarray(np.column_stack(columns))
    rows = key_rows.view(np.dtype((np.void, key_rows.itemsize * key_rows.shape[1]))).ravel()
    _, representatives, group_numbers = np.unique(rows, return_index=True, return_inverse=True)
    return representatives, group_numbers.reshape(-1)


def _split_position(sample: int, ratio: float) -> Position:
    numerator, denominator = find_integer_ratio(ratio)
    return divmod(sample * numerator, denominator)


def _extend_read_ranges(
    earlier_ranges: dict[int, tuple[int, int]],
    requests: Iterable[tuple[int, int, int]],
    positions: list[Position],
) -> dict[int, tuple[int, int]]:
    """Return the range that a plant reads on each generator's time line, relative to the window."""
    read_ranges = dict(earlier_ranges)
    for generator, begin, length in requests:
        if generator >= len(positions):
            continue
        low, high = begin - positions[generator][0], begin - positions[generator][0] + length
        known_range = read_ranges.get(generator)
        if known_range is None or low < known_range[0] or high > known_range[1]:
            low, high = low - READ_RANGE_MARGIN, high + READ_RANGE_MARGIN
            read_ranges[generator] = (
                (low, high) if known_range is None else (min(low, known_range[0]), max(high, known_range[1]))
            )
    return read_ranges


def _check_shapes(received_signal: ReceivedSignal, count: int) -> ReceivedSignal:
    level = np.ascontiguousarray(received_signal.level, dtype=np.float64)
    noise = np.ascontiguousarray(received_signal.noise, dtype=np.float64)
    converter_noise = (
        None
        if received_signal.converter_noise is None
        else np.ascontiguousarray(received_signal.converter_noise, dtype=np.float64)
    )
    shapes = [array.shape for array in (level, noise, converter_noise) if array is not None]
    if any(shape != (count,) for shape in shapes):
        raise ValueError(
            f"a plant returned {' and '.join(map(str, shapes))} where {count} samples were requested"
        )
    return ReceivedSignal(level, noise, received_signal.correlation, converter_noise)
