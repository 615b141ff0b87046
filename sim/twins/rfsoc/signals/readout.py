"""One readout of the board: triggered windows of what its converter gets, mixed down, decimated, stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.twins.rfsoc.plant import Plant
from sim.twins.rfsoc.signals import conversion, triggers
from sim.twins.rfsoc.signals.buffers import AverageBuffer
from sim.twins.rfsoc.signals.decimation import DECIMATION, margin
from sim.twins.rfsoc.signals.level import Level, Mixing, level_of
from sim.twins.rfsoc.signals.timeline import TimeLine
from sim.twins.rfsoc.signals.traces import Traces
from sim.twins.rfsoc.signals.track import TURN, Track
from sim.twins.rfsoc.signals.waves import INPUT, OSCILLATOR, PRODUCT

SOURCES = {"product": PRODUCT, "dds": OSCILLATOR, "input": INPUT}
LEVELS_BYTES = 64 << 20
"""Of noiseless traces that stand ready for the next round of the same run."""
BATCH_SAMPLES = 1 << 19
"""Samples converted in one go: bounds what a long run keeps in memory."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """Settings of a readout that the host configures."""

    freq: int = 0
    phase: int = 0
    source: int = PRODUCT


@dataclass(frozen=True, slots=True)
class Converter:
    """State that all readouts of the board share."""

    bits: int
    taps: npt.NDArray[np.float64]
    clock_factor: float
    """Rate of the clocks over what the configuration says."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One run, as a readout sees it."""

    timeline: TimeLine
    rises: npt.NDArray[np.int64]
    """Ticks of the processor at which this readout's trigger goes up."""
    words: Track | None
    """Settings by the processor of a readout that it controls; None for one that the host configures."""


class Readout:
    """A converter with its readout and memories; `number` is its index in `soccfg["readouts"]`."""

    def __init__(
        self, number: int, cfg: Mapping[str, Any], f_time: float, plant: Plant, rng: np.random.Generator
    ) -> None:
        self.cfg = cfg
        self.buffer = AverageBuffer(cfg)
        self.tuning = Tuning()
        self.traces = Traces(plant, number)
        self._ticks_per_time = cfg["f_output"] / f_time
        self._rng = rng
        self._scene: Scene | None = None
        self._starts = np.zeros(0, np.int64)
        self._done = 0
        self._levels: dict[bytes, Level] = {}
        self._levels_of: tuple[TimeLine, Any] | None = None
        self._opened_by: tuple[npt.NDArray[np.int64], dict[tuple[int, int], npt.NDArray[np.int64]]] | None = (
            None
        )

    def configure(self, regs: Mapping[str, Any]) -> None:
        """Frequency, phase and output as `QickConfig.calc_ro_regs` gives them."""
        self.tuning = Tuning(
            int(regs["f_int"]) % TURN,
            int(regs.get("phase_int", 0)) % TURN,
            SOURCES[regs.get("sel", "product")],
        )

    def begin(self, scene: Scene) -> None:
        """Begin a run: what is enabled now listens."""
        self._scene = scene
        self.listen(since=0.0)

    def listen(self, *, since: float) -> None:
        """Open windows at triggers for what is enabled, from tick `since` of the processor on."""
        self._done = 0
        self._starts = np.zeros(0, np.int64)
        if self.buffer.length and self._scene is not None:
            self._starts = self._opened(self._scene.rises, int(np.searchsorted(self._scene.rises, since)))

    def _opened(self, rises: npt.NDArray[np.int64], first: int) -> npt.NDArray[np.int64]:
        """Return the starts of windows for rises from number `first` on; kept for an equal run."""
        if self._opened_by is None or self._opened_by[0] is not rises:
            self._opened_by = (rises, {})
        known, key = self._opened_by[1], (first, self.buffer.length)
        if key not in known:
            known[key] = triggers.windows(rises[first:], self._ticks_per_time, self.buffer.length)
        return known[key]

    def extend(self, scene: Scene) -> None:
        """More is known of the same run: its windows so far stay as they are."""
        self._scene = scene
        self._starts = triggers.windows(scene.rises, self._ticks_per_time, self.buffer.length)

    def stop(self, tick: float) -> None:
        """Open no further window from that tick of the processor on."""
        opened = int(np.searchsorted(self._starts, tick * self._ticks_per_time, "right"))
        self._starts = self._starts[: max(opened, self._done)]

    def next_end(self) -> float | None:
        """Tick of the processor at which the first window that is not stored yet ends; None when all are."""
        if self._done == len(self._starts) or not self.buffer.length:
            return None
        return (int(self._starts[self._done]) + self.buffer.length) / float(self._ticks_per_time)

    def settle(self, until: float, converter: Converter, epoch: Any) -> None:
        """Store all windows that have ended at tick `until` of the processor and are not stored yet."""
        if self._done == len(self._starts) or not self.buffer.length:
            return
        ended = int(
            np.searchsorted(self._starts, until * self._ticks_per_time - self.buffer.length, side="right")
        )
        count = DECIMATION * self.buffer.length + len(converter.taps) - DECIMATION
        batch = max(BATCH_SAMPLES // count, 1)
        self.traces.begin((epoch, count, self.buffer.length))
        while self._done < ended:
            end = min(self._done + batch, ended)
            self._store(self._starts[self._done : end], count, converter)
            self._done = end

    def _store(self, starts: npt.NDArray[np.int64], count: int, converter: Converter) -> None:
        assert self._scene is not None
        firsts = starts * DECIMATION - margin(len(converter.taps))
        level = self._level_of(self._scene.timeline, firsts, count, converter)
        self.buffer.store(
            conversion.converted(
                self._rng, level, self._mixing(firsts), bits=converter.bits, taps=converter.taps
            )
        )

    def _level_of(
        self, timeline: TimeLine, firsts: npt.NDArray[np.int64], count: int, converter: Converter
    ) -> Level:
        """Return the same as assembled for the last run, when it is the same run of the same epoch."""
        if (
            self._levels_of is None
            or self._levels_of[0] is not timeline
            or self._levels_of[1] != self.traces.epoch
        ):
            self._levels_of, self._levels = (timeline, self.traces.epoch), {}
        key = firsts.tobytes()
        if key not in self._levels:
            if sum(level.traces.nbytes for level in self._levels.values()) > LEVELS_BYTES:
                self._levels = {}
            self._levels[key] = self._assembled(timeline, firsts, count, converter)
        return self._levels[key]

    def _assembled(
        self, timeline: TimeLine, firsts: npt.NDArray[np.int64], count: int, converter: Converter
    ) -> Level:
        rate_hz = self.cfg["fs"] * 1e6 * converter.clock_factor
        seen, which = self.traces.of_windows(timeline, rate_hz, firsts, count)
        return level_of(seen, which, converter.bits)

    def _mixing(self, firsts: npt.NDArray[np.int64]) -> Mixing:
        assert self._scene is not None
        words = self._scene.words
        if words is None:
            freqs = np.full(len(firsts), self.tuning.freq)
            return Mixing(
                freqs, (self.tuning.phase + freqs * firsts) % TURN, np.full(len(firsts), self.tuning.source)
            )
        if not len(words.starts):
            return Mixing(*(np.zeros(len(firsts), np.int64) for _ in range(3)))
        last = np.maximum(np.searchsorted(words.starts, firsts, "right") - 1, 0)
        freqs = words.waves.freq[last]
        return Mixing(
            freqs,
            (words.turns[last] + freqs * (firsts - words.starts[last])) % TURN,
            words.waves.source[last],
        )
