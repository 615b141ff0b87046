"""Signals of generators in a run: a track of pulses for each generator, and its samples at full rate.

This follows firmware `axis_signal_gen_v6`. A word waits in a queue until the previous pulse has ended. A periodic pulse
ends at the end of the period in which the next word arrives. The oscillator has a 32-bit phase, which continues
from pulse to pulse. Products keep the upper 16 of 32 bits. The gain is applied last; it has 16 bits, and its
unit is 1/32768. The converter uses the upper 14 of 16 bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.twins.rfsoc.plant import Outputs
from sim.twins.rfsoc.signals.waves import INPUT, OSCILLATOR, PRODUCT, Waves

INFINITE_TICK = 1 << 62
PHASE_TURN = 1 << 32
FULL_SCALE = 32768
OSCILLATOR_AMPLITUDE = 32767
"""Amplitude of the oscillator."""
DAC_STEP = 4
"""Step of the converter, which uses 14 of 16 bits."""

Samples = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Generator:
    """Properties of a generator that its samples depend on."""

    rate_hz: float
    ticks_per_processor_tick: float
    """Ticks of the generator's fabric clock for each tick of the processor."""
    samples_per_tick: int


@dataclass(frozen=True, slots=True)
class ChannelState:
    """State of a generator or readout after a run: its last pulse or word, and the phase of the oscillator."""

    wave: Waves
    phase: int


@dataclass(frozen=True, slots=True)
class Track:
    """Pulses of a generator in order of time. All columns are (n,), and times are in samples."""

    waves: Waves
    starts: npt.NDArray[np.int64]
    periods: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    phases: npt.NDArray[np.int64]
    """Phase of the oscillator at the start of each pulse, in 2**-32 of a turn."""
    pulse_contents: list[bytes]
    is_last_kept: bool = False
    content_codes: npt.NDArray[np.int64] = field(init=False)
    """(n,) a number for each pulse. Pulses with equal contents have equal numbers."""

    def __post_init__(self) -> None:
        code_by_content: dict[bytes, int] = {}
        codes = [code_by_content.setdefault(pulse, len(code_by_content)) for pulse in self.pulse_contents]
        object.__setattr__(self, "content_codes", np.array(codes, np.int64))

    def find_channel_state(self) -> ChannelState | None:
        """Return the state after the run, or None if no pulse outlives the run."""
        if not len(self.waves):
            return None
        if not (self.is_last_kept or self.waves.is_periodic[-1] or self.waves.is_held[-1]):
            return None
        return ChannelState(self.waves.select_rows(np.array([-1])), int(self.phases[-1]))

    def find_overlapping_pulses(self, first: int, count: int) -> range:
        """Return the indices of the pulses that affect `count` samples from `first`, with an earlier held pulse."""
        begin = int(self.starts.searchsorted(first, "right")) - 1
        return range(max(begin, 0), int(self.starts.searchsorted(first + count, "left")))

    def make_signature(self, first: int, count: int) -> tuple[Any, ...]:
        """Return a signature of a section. With the same envelopes, equal signatures mean equal samples.

        The sections may belong to different runs.
        """
        pulses = (self._describe_pulse(i, first, count) for i in self.find_overlapping_pulses(first, count))
        return tuple(pulse for pulse in pulses if pulse is not None)

    def make_signatures(self, first_samples: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
        """Return (sections, columns) for many sections at once. Equal rows mean equal signatures."""
        if not len(self.starts):
            return np.zeros((len(first_samples), 1), np.int64)
        first_pulses = np.maximum(self.starts.searchsorted(first_samples, "right") - 1, 0)
        end_pulses = self.starts.searchsorted(first_samples + count, "left")
        max_pulse_count = int((end_pulses - first_pulses).max())
        columns = [
            self._describe_pulses(first_pulses + i, end_pulses, first_samples, count)
            for i in range(max_pulse_count)
        ]
        return np.column_stack([*columns, np.zeros(len(first_samples), np.int64)])

    def _describe_pulses(
        self,
        pulse_indices: npt.NDArray[np.int64],
        end_pulses: npt.NDArray[np.int64],
        first_samples: npt.NDArray[np.int64],
        count: int,
    ) -> npt.NDArray[np.int64]:
        """Return the description of one pulse for each section, (sections, 4).

        All values are -INFINITE_TICK for a pulse without effect.
        """
        i = np.minimum(pulse_indices, len(self.starts) - 1)
        start, end = self.starts[i] - first_samples, self.ends[i] - first_samples
        is_flat = (self.waves.freq[i] == 0) & (self.waves.source[i] == OSCILLATOR)
        has_ended = end <= 0
        start = np.where(has_ended, -INFINITE_TICK, np.where(is_flat, np.maximum(start, -1), start))
        end = np.where(has_ended, 0, np.minimum(end, count))
        rows = np.column_stack([start, end, self.content_codes[i], self.phases[i]])
        rows[(pulse_indices >= end_pulses) | (has_ended & ~self.waves.is_held[i])] = -INFINITE_TICK
        return rows

    def _describe_pulse(self, i: int, first: int, count: int) -> tuple[Any, ...] | None:
        start, end = int(self.starts[i]) - first, int(self.ends[i]) - first
        if end <= 0:  # after its end, only the last sample of a held pulse matters
            return (None, self.pulse_contents[i], int(self.phases[i])) if self.waves.is_held[i] else None
        start = max(start, -1) if self._is_flat(i) else start
        return start, min(end, count), self.pulse_contents[i], int(self.phases[i])

    def compute_samples(
        self, envelope: npt.NDArray[np.int16], first: int, count: int
    ) -> npt.NDArray[np.float64]:
        """Return `count` samples from `first`, as fractions of full scale. `envelope` is (length, 2)."""
        out = np.zeros(count, np.int64)
        for i in self.find_overlapping_pulses(first, count):
            begin, end = max(int(self.starts[i]), first), min(int(self.ends[i]), first + count)
            if begin < end:
                out[begin - first : end - first] = self._synthesise(i, envelope, begin, end - begin)
            if self.waves.is_held[i]:
                next_start = self.starts[i + 1] if i + 1 < len(self.starts) else INFINITE_TICK
                begin, end = max(int(self.ends[i]), first), min(int(next_start), first + count)
                if begin < end:
                    out[begin - first : end - first] = self._synthesise(i, envelope, int(self.ends[i]) - 1, 1)
        return (out & -DAC_STEP) / FULL_SCALE

    def _is_flat(self, i: int) -> bool:
        return bool(self.waves.freq[i] == 0 and self.waves.source[i] == OSCILLATOR)

    def _synthesise(self, i: int, envelope: npt.NDArray[np.int16], first: int, count: int) -> Samples:
        """Return samples of pulse `i` before the converter."""
        source, gain = int(self.waves.source[i]), int(self.waves.gain[i])
        if self._is_flat(i):
            level = round(OSCILLATOR_AMPLITUDE * np.cos(2 * np.pi * self.phases[i] / PHASE_TURN))
            return np.full(count, level * gain >> 15)
        sample_numbers = np.arange(first, first + count) - self.starts[i]
        if source == OSCILLATOR:
            real_part, _ = self._compute_oscillator(i, sample_numbers)
            return real_part * gain >> 15
        if source not in {PRODUCT, INPUT}:
            return np.zeros(count, np.int64)
        positions = self.waves.address[i] * self._get_samples_per_tick(i) + sample_numbers % self.periods[i]
        envelope_samples: npt.NDArray[np.int64] = envelope[positions % len(envelope)].astype(np.int64)
        unscaled_samples = (
            envelope_samples[:, 0]
            if source == INPUT
            else self._mix_envelope(i, sample_numbers, envelope_samples)
        )
        return unscaled_samples * gain >> 15

    def _mix_envelope(self, i: int, sample_numbers: Samples, envelope_samples: Samples) -> Samples:
        """Return the real part of envelope samples (n, 2) multiplied by the oscillator."""
        real_part, imaginary_part = self._compute_oscillator(i, sample_numbers)
        return (real_part * envelope_samples[:, 0] - imaginary_part * envelope_samples[:, 1]) >> 16

    def _get_samples_per_tick(self, i: int) -> int:
        return int(self.periods[i] // max(self.waves.length[i], 1))

    def _compute_oscillator(self, i: int, sample_numbers: Samples) -> tuple[Samples, Samples]:
        return compute_oscillator(
            (int(self.phases[i]) + int(self.waves.freq[i]) * sample_numbers) % PHASE_TURN
        )


def compute_oscillator(phases: Samples) -> tuple[Samples, Samples]:
    """Return cosine and sine, 16 bits each, of phases in 2**-32 of a turn.

    >>> [part.tolist() for part in compute_oscillator(np.array([0, 1 << 30, 1 << 31]))]
    [[32767, 0, -32767], [0, 32767, 0]]
    """
    angle = phases * (2 * np.pi / PHASE_TURN)
    return np.rint(OSCILLATOR_AMPLITUDE * np.cos(angle)).astype(np.int64), np.rint(
        OSCILLATOR_AMPLITUDE * np.sin(angle)
    ).astype(np.int64)


def make_track(
    generator: Generator,
    times: npt.NDArray[np.int64],
    waves: Waves,
    channel_state: ChannelState | None,
    *,
    is_last_kept: bool = False,
) -> Track:
    """Return the track of words that take effect at `times`, in ticks of the processor.

    `channel_state` is the state after the previous run. With `is_last_kept`, the last word still applies after the run,
    as in a readout.
    """
    ready_ticks = np.ceil(times * generator.ticks_per_processor_tick - 1e-9).astype(np.int64)
    if channel_state is not None:
        waves = _join_waves(channel_state.wave, waves)
        ready_ticks = np.concatenate([[_find_earlier_start(channel_state)], ready_ticks])
    lengths = np.maximum(waves.length, 1)
    starts = _compute_starts(ready_ticks, lengths, waves.is_periodic)
    ends = starts + lengths
    next_starts = np.append(starts[1:], INFINITE_TICK)
    ends = np.where(waves.is_periodic, next_starts, ends)
    samples_per_tick = generator.samples_per_tick
    starts, ends = (
        starts * samples_per_tick,
        np.where(ends >= INFINITE_TICK, INFINITE_TICK, ends * samples_per_tick),
    )
    phases = _compute_phases(waves, starts)
    if channel_state is not None:
        phases[0] = channel_state.phase
    return Track(waves, starts, lengths * samples_per_tick, ends, phases, waves.encode_rows(), is_last_kept)


def _find_earlier_start(channel_state: ChannelState) -> int:
    """Return a start so that the last pulse of the previous run ends at 0, or long before 0 for a periodic pulse."""
    length = max(int(channel_state.wave.length[0]), 1)
    return -length * (1 << 20) if channel_state.wave.is_periodic[0] else -length


def _join_waves(earlier_waves: Waves, later_waves: Waves) -> Waves:
    return Waves(
        *(
            np.concatenate([getattr(earlier_waves, name), getattr(later_waves, name)])
            for name in Waves.__slots__
        )
    )


def _compute_starts(
    ready_ticks: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], is_periodic: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Return the start of each pulse: when it is ready and the previous pulse has ended.

    Without periodic pulses, start[i] = max over j <= i of (ready[j] + sum of the lengths from j to i - 1).
    """
    if is_periodic.any():
        return _compute_starts_in_order(ready_ticks, lengths, is_periodic)
    lengths_before = np.concatenate([[0], np.cumsum(lengths)[:-1]]) if len(lengths) else lengths
    return (
        np.maximum.accumulate(ready_ticks - lengths_before) + lengths_before
        if len(ready_ticks)
        else ready_ticks
    )


def _compute_starts_in_order(
    ready_ticks: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], is_periodic: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    starts = np.zeros(len(ready_ticks), np.int64)
    free_tick = -INFINITE_TICK
    for i, (ready_tick, length) in enumerate(zip(ready_ticks.tolist(), lengths.tolist(), strict=True)):
        if i and is_periodic[i - 1]:
            period = int(lengths[i - 1])
            start = int(starts[i - 1])
            free_tick = start + max(-(-(ready_tick - start) // period), 1) * period
        starts[i] = max(ready_tick, free_tick)
        free_tick = int(starts[i]) + length
    return starts


def _compute_phases(waves: Waves, starts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the phase of the oscillator at the start of each pulse, in 2**-32 of a turn.

    It is the phase of the word, plus its frequency times the number of samples since the run's start or the last reset.
    """
    reset_starts = np.where(waves.is_reset, starts, -INFINITE_TICK)
    origins = np.maximum.accumulate(reset_starts) if len(reset_starts) else reset_starts
    sample_numbers = starts - np.where(origins == -INFINITE_TICK, 0, origins)
    phase_advance = waves.freq.astype(np.uint64) * sample_numbers.astype(np.uint64)
    return ((phase_advance + waves.phase.astype(np.uint64)) % np.uint64(PHASE_TURN)).astype(np.int64)


@cache
def find_integer_ratio(ratio: float) -> tuple[int, int]:
    """Return the ratio of two sample rates as a fraction of integers with a denominator of at most 1000.

    >>> find_integer_ratio(9584.64 / 2457.6)
    (39, 10)
    """
    exact_ratio = Fraction(ratio).limit_denominator(1000)
    return exact_ratio.numerator, exact_ratio.denominator


@dataclass(frozen=True, slots=True)
class TimeLine:
    """Signals of all generators: tracks by number of the generator, and envelope memories (length, 2).

    A plant may have more inputs than the board has generators: a generator that the board does not have is silent.
    """

    generators: Sequence[Generator]
    tracks: Mapping[int, Track]
    envelopes: Sequence[npt.NDArray[np.int16]]

    def get_rate_hz(self, generator: int) -> float:
        """Return the sample rate of a generator's converter in Hz."""
        return self.generators[generator if generator < len(self.generators) else 0].rate_hz

    def read_samples(self, generator: int, first: int, count: int) -> npt.NDArray[np.float64]:
        """Return samples of a generator, as `Outputs.read_samples` specifies."""
        track = self.tracks.get(generator)
        if track is None:
            return np.zeros(count)
        return track.compute_samples(self.envelopes[generator], first, count)

    def make_signature(self, generator: int, first: int, count: int) -> tuple[Any, ...]:
        """Return the signature of a section. See `Track.make_signature`."""
        track = self.tracks.get(generator)
        return () if track is None else track.make_signature(first, count)

    def make_signatures(
        self, generator: int, first_samples: npt.NDArray[np.int64], count: int
    ) -> npt.NDArray[np.int64]:
        """Return the signatures of many sections. See `Track.make_signatures`."""
        track = self.tracks.get(generator)
        return (
            np.zeros((len(first_samples), 1), np.int64)
            if track is None
            else track.make_signatures(first_samples, count)
        )


@dataclass(slots=True)
class RecordingOutputs:
    """Outputs that record the requested sections."""

    outputs: Outputs
    requests: list[tuple[int, int, int]] = field(default_factory=list)
    """Requests as (generator, first sample, count)."""

    def get_rate_hz(self, generator: int) -> float:
        """Return the sample rate of a generator's converter in Hz."""
        return self.outputs.get_rate_hz(generator)

    def read_samples(self, generator: int, first: int, count: int) -> npt.NDArray[np.float64]:
        """Return samples of the outputs, and record the request."""
        self.requests.append((generator, first, count))
        return self.outputs.read_samples(generator, first, count)
