"""A readout of the board: triggered windows of its converter's signal, mixed down, decimated and stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.twins.rfsoc.plant import Plant
from sim.twins.rfsoc.signals import conversion
from sim.twins.rfsoc.signals.decimation import DECIMATION, count_margin_samples
from sim.twins.rfsoc.signals.level import Levels, Mixing, make_levels
from sim.twins.rfsoc.signals.traces import Traces
from sim.twins.rfsoc.signals.track import PHASE_TURN, TimeLine, Track
from sim.twins.rfsoc.signals.waves import INPUT, OSCILLATOR, PRODUCT

SOURCES = {"product": PRODUCT, "dds": OSCILLATOR, "input": INPUT}
MAX_LEVELS_BYTES = 64 << 20
"""Maximum size of the noiseless traces that are kept for the next round of the same run."""
BATCH_SAMPLES = 1 << 19
"""Maximum number of samples that are converted at once. It bounds the memory use of a long run."""
MIN_WINDOW_GAP = 2
"""Minimum number of output ticks between the end of a window and the start of the next."""

Ticks = npt.NDArray[np.int64]


class AverageBuffer:
    """Memories of a readout (`axis_avg_buffer`): `avg_maxlen` sums (I, Q) of 32 bits, `buf_maxlen` samples of 16 bits.

    While a memory is enabled, it is written from its start address upwards, and wraps around at its end. QICK's driver
    has the same length limits and error types.
    """

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        self._sums = np.zeros((cfg["avg_maxlen"], 2), np.int32)
        self._samples = np.zeros((cfg["buf_maxlen"], 2), np.int16)
        self._sum_range = (0, 1)
        self._sample_range = (0, 1)
        self._next_sum = 0
        self._next_sample = 0
        self.is_summing = False
        self.is_sampling = False

    @property
    def length(self) -> int:
        """Length of a window in decimated samples. It is 0 if neither memory is enabled."""
        lengths = ([self._sum_range[1]] if self.is_summing else []) + (
            [self._sample_range[1]] if self.is_sampling else []
        )
        return max(lengths, default=0)

    @property
    def last_sum(self) -> npt.NDArray[np.int32]:
        """I and Q of the last stored sum. The processor reads them at its input."""
        return np.asarray(self._sums[(self._next_sum - 1) % len(self._sums)])

    def config_avg(self, address: int, length: int) -> None:
        """Set the start address of sums, and the number of samples in a sum. Disable both memories."""
        self.disable()
        self._sum_range = (int(address), int(length))

    def config_buf(self, address: int, length: int) -> None:
        """Set the start address of samples, and their number per window. Disable both memories.

        Raise `RuntimeError` if the number is too large.
        """
        self.disable()
        _check_length(length, len(self._samples), "samples")
        self._sample_range = (int(address), int(length))

    def enable(self, *, avg: bool, buf: bool) -> None:
        """Enable sums (`avg`), samples (`buf`) or both, from their start addresses."""
        if avg:
            self._next_sum, self.is_summing = self._sum_range[0], True
        if buf:
            self._next_sample, self.is_sampling = self._sample_range[0], True

    def disable(self) -> None:
        """Disable both memories, so that triggers are ignored."""
        self.is_summing = self.is_sampling = False

    def store(self, windows: npt.NDArray[np.int16]) -> None:
        """Store windows (windows, length, 2) in the enabled memories."""
        if self.is_summing:
            sums = windows[:, : self._sum_range[1]].sum(axis=1, dtype=np.int64).astype(np.int32)
            self._next_sum = _write(self._sums, self._next_sum, sums)
        if self.is_sampling:
            samples = windows[:, : self._sample_range[1]].reshape(-1, 2)
            self._next_sample = _write(self._samples, self._next_sample, samples)

    def read_sums(self, address: int, length: int) -> npt.NDArray[np.int32]:
        """Return a copy (length, 2) of sums from an address. Raise `RuntimeError` if the length is too large."""
        _check_length(length, len(self._sums), "sums")
        return _read(self._sums, address, length)

    def read_samples(self, address: int, length: int) -> npt.NDArray[np.int16]:
        """Return a copy (length, 2) of samples from an address. Raise `RuntimeError` if the length is too large."""
        _check_length(length, len(self._samples), "samples")
        return _read(self._samples, address, length)


def _check_length(length: int, size: int, quantity: str) -> None:
    """Raise `RuntimeError` if a length does not fit. QICK's driver leaves one place of a memory unused."""
    if length >= size:
        raise RuntimeError(
            f"{length} {quantity} at once are too many: the memory has {size} places, one of which cannot be "
            "used; shorten the readout, or use fewer repetitions"
        )


def _write(memory: npt.NDArray[Any], address: int, rows: npt.NDArray[Any]) -> int:
    """Write rows from an address, with wrap-around, and return the address after the last row."""
    end = address + len(rows)
    if end <= len(memory):
        memory[address:end] = rows
    else:
        last_rows = rows[-len(memory) :]
        memory[np.arange(end - len(last_rows), end) % len(memory)] = last_rows
    return end % len(memory)


def _read(memory: npt.NDArray[Any], address: int, length: int) -> npt.NDArray[Any]:
    if address + length <= len(memory):
        return memory[address : address + length].copy()
    return memory[np.arange(address, address + length) % len(memory)]


def find_trigger_rises(pins: npt.NDArray[Any], readout: Mapping[str, Any]) -> Ticks:
    """Return the ticks of the processor at which the trigger of a readout rises."""
    pin_kind = 1 if readout["trigger_type"] == "tport" else 0
    trigger_pins = pins[(pins["kind"] == pin_kind) & (pins["port"] == readout["trigger_port"])]
    bit = 0 if pin_kind else readout["trigger_bit"]
    is_high = (trigger_pins["word"] >> bit & 1).astype(np.bool_)
    was_high = np.concatenate([[False], is_high[:-1]])
    return np.asarray(trigger_pins["time"][is_high & ~was_high], dtype=np.int64)


def find_window_starts(trigger_ticks: Ticks, ticks_per_processor_tick: float, length: int) -> Ticks:
    """Return the first output tick of each window of `length` that a rise opens (`avg.sv`, `buffer.sv`).

    Ignore rises during a window, and up to `MIN_WINDOW_GAP` ticks after its end.

    >>> find_window_starts(np.array([0, 50, 100, 205]), 1.0, 100).tolist()
    [0, 205]
    """
    starts = np.ceil(trigger_ticks * ticks_per_processor_tick - 1e-9).astype(np.int64)
    if len(starts) < 2 or (np.diff(starts) >= length + MIN_WINDOW_GAP).all():
        return np.asarray(starts)
    window_starts: list[int] = []
    for start in starts.tolist():
        if not window_starts or start >= window_starts[-1] + length + MIN_WINDOW_GAP:
            window_starts.append(start)
    return np.array(window_starts, np.int64)


@dataclass(frozen=True, slots=True)
class Tuning:
    """Settings of a readout that the host configures."""

    freq: int = 0
    phase: int = 0
    source: int = PRODUCT


@dataclass(frozen=True, slots=True)
class Converter:
    """Settings of the converters. They are the same for all readouts of the board."""

    bits: int
    taps: npt.NDArray[np.float64]
    clock_factor: float
    """Ratio of the clock rates to the configured rates."""


@dataclass(frozen=True, slots=True)
class ReadoutRun:
    """The part of a run that concerns one readout: signals, triggers and settings."""

    timeline: TimeLine
    trigger_ticks: npt.NDArray[np.int64]
    """Ticks of the processor at which the trigger of the readout rises."""
    settings_track: Track | None
    """Settings of a readout that the processor controls, or None for a readout that the host configures."""


class Readout:
    """A converter with its readout and memories. `number` is its index in `soccfg["readouts"]`."""

    def __init__(
        self, number: int, cfg: Mapping[str, Any], f_time: float, plant: Plant, rng: np.random.Generator
    ) -> None:
        self.cfg = cfg
        self.buffer = AverageBuffer(cfg)
        self.tuning = Tuning()
        self.traces = Traces(plant, number)
        self._ticks_per_processor_tick = cfg["f_output"] / f_time
        self._rng = rng
        self._readout_run: ReadoutRun | None = None
        self._window_starts = np.zeros(0, np.int64)
        self._stored_count = 0
        self._levels: dict[bytes, Levels] = {}
        self._levels_key: tuple[TimeLine, Any] | None = None
        self._window_starts_cache: (
            tuple[npt.NDArray[np.int64], dict[tuple[int, int], npt.NDArray[np.int64]]] | None
        ) = None

    def configure(self, regs: Mapping[str, Any]) -> None:
        """Set frequency, phase and output from the values of `QickConfig.calc_ro_regs`."""
        self.tuning = Tuning(
            int(regs["f_int"]) % PHASE_TURN,
            int(regs.get("phase_int", 0)) % PHASE_TURN,
            SOURCES[regs.get("sel", "product")],
        )

    def begin_run(self, readout_run: ReadoutRun) -> None:
        """Start a run. The enabled memories store its windows."""
        self._readout_run = readout_run
        self.open_windows(since_tick=0.0)

    def open_windows(self, *, since_tick: float) -> None:
        """Open windows for the enabled memories at triggers from tick `since_tick` of the processor."""
        self._stored_count = 0
        self._window_starts = np.zeros(0, np.int64)
        if self.buffer.length and self._readout_run is not None:
            self._window_starts = self._find_windows(
                self._readout_run.trigger_ticks,
                int(np.searchsorted(self._readout_run.trigger_ticks, since_tick)),
            )

    def _find_windows(self, trigger_ticks: npt.NDArray[np.int64], first: int) -> npt.NDArray[np.int64]:
        """Return the starts of windows for triggers from number `first`. Results are cached for the same run."""
        if self._window_starts_cache is None or self._window_starts_cache[0] is not trigger_ticks:
            self._window_starts_cache = (trigger_ticks, {})
        cached_starts, key = self._window_starts_cache[1], (first, self.buffer.length)
        if key not in cached_starts:
            cached_starts[key] = find_window_starts(
                trigger_ticks[first:], self._ticks_per_processor_tick, self.buffer.length
            )
        return cached_starts[key]

    def extend_run(self, readout_run: ReadoutRun) -> None:
        """Replace the run by a longer part of the same run. Earlier windows stay unchanged."""
        self._readout_run = readout_run
        self._window_starts = find_window_starts(
            readout_run.trigger_ticks, self._ticks_per_processor_tick, self.buffer.length
        )

    def stop(self, tick: float) -> None:
        """Open no window after a tick of the processor."""
        opened_count = int(
            np.searchsorted(self._window_starts, tick * self._ticks_per_processor_tick, "right")
        )
        self._window_starts = self._window_starts[: max(opened_count, self._stored_count)]

    def find_next_end_tick(self) -> float | None:
        """Return the tick of the processor at which the next window to store ends, or None if there is none."""
        if self._stored_count == len(self._window_starts) or not self.buffer.length:
            return None
        return (int(self._window_starts[self._stored_count]) + self.buffer.length) / float(
            self._ticks_per_processor_tick
        )

    def store_ended_windows(self, until_tick: float, converter: Converter, epoch: Any) -> None:
        """Store all new windows that have ended by tick `until_tick` of the processor."""
        if self._stored_count == len(self._window_starts) or not self.buffer.length:
            return
        ended_count = int(
            np.searchsorted(
                self._window_starts,
                until_tick * self._ticks_per_processor_tick - self.buffer.length,
                side="right",
            )
        )
        samples_per_window = DECIMATION * self.buffer.length + len(converter.taps) - DECIMATION
        batch_size = max(BATCH_SAMPLES // samples_per_window, 1)
        self.traces.set_epoch((epoch, samples_per_window, self.buffer.length))
        while self._stored_count < ended_count:
            end = min(self._stored_count + batch_size, ended_count)
            self._store_windows(self._window_starts[self._stored_count : end], samples_per_window, converter)
            self._stored_count = end

    def _store_windows(self, starts: npt.NDArray[np.int64], count: int, converter: Converter) -> None:
        assert self._readout_run is not None
        first_samples = starts * DECIMATION - count_margin_samples(len(converter.taps))
        levels = self._find_levels(self._readout_run.timeline, first_samples, count, converter)
        self.buffer.store(
            conversion.convert_levels(
                self._rng, levels, self._make_mixing(first_samples), bits=converter.bits, taps=converter.taps
            )
        )

    def _find_levels(
        self, timeline: TimeLine, first_samples: npt.NDArray[np.int64], count: int, converter: Converter
    ) -> Levels:
        """Return the levels of windows. If run and epoch are the same as before, reuse the levels."""
        if (
            self._levels_key is None
            or self._levels_key[0] is not timeline
            or self._levels_key[1] != self.traces.epoch
        ):
            self._levels_key, self._levels = (timeline, self.traces.epoch), {}
        key = first_samples.tobytes()
        if key not in self._levels:
            if sum(levels.traces.nbytes for levels in self._levels.values()) > MAX_LEVELS_BYTES:
                self._levels = {}
            rate_hz = self.cfg["fs"] * 1e6 * converter.clock_factor
            signals, trace_numbers = self.traces.receive_windows(timeline, rate_hz, first_samples, count)
            self._levels[key] = make_levels(signals, trace_numbers, converter.bits)
        return self._levels[key]

    def _make_mixing(self, first_samples: npt.NDArray[np.int64]) -> Mixing:
        assert self._readout_run is not None
        settings_track = self._readout_run.settings_track
        if settings_track is None:
            freqs = np.full(len(first_samples), self.tuning.freq)
            return Mixing(
                freqs,
                (self.tuning.phase + freqs * first_samples) % PHASE_TURN,
                np.full(len(first_samples), self.tuning.source),
            )
        if not len(settings_track.starts):
            return Mixing(*(np.zeros(len(first_samples), np.int64) for _ in range(3)))
        last_word_indices = np.maximum(np.searchsorted(settings_track.starts, first_samples, "right") - 1, 0)
        freqs = settings_track.waves.freq[last_word_indices]
        return Mixing(
            freqs,
            (
                settings_track.phases[last_word_indices]
                + freqs * (first_samples - settings_track.starts[last_word_indices])
            )
            % PHASE_TURN,
            settings_track.waves.source[last_word_indices],
        )
