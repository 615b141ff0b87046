"""Traces are kept under all that they depend on, whatever a plant looks at."""

from __future__ import annotations

import numpy as np
import pytest

from sim.twins.rfsoc.plant import ReceivedSignal
from sim.twins.rfsoc.signals import traces
from sim.twins.rfsoc.signals.track import Generator, TimeLine, find_integer_ratio, make_track
from sim.twins.rfsoc.signals.waves import decode_words

RATE = 3.072e9
GENERATORS = [Generator(6.144e9, 1.0, 16), Generator(4.608e9, 1.0, 16)]


class Echo:
    """Adds what a generator gave `back` of its samples ago; may look further back as time goes on."""

    def __init__(self, back, growth=0):
        self.back = back
        self.growth = growth
        self.version = 0

    def elapse(self, seconds):
        pass

    def receive(self, readout, rate_hz, first, count, outputs):
        level = np.zeros(count)
        for generator in range(3):
            step, lanes = find_integer_ratio(outputs.get_rate_hz(generator) / rate_hz)
            start = first * step // lanes - self.back
            seen = outputs.read_samples(generator, start, count * step // lanes + 8)
            level += seen[(np.arange(count) * step) // lanes]
        self.back += self.growth
        return ReceivedSignal(level, np.zeros(count), 0.0)


def line(rng):
    """Return two generators with a few pulses of two kinds, so that alike stretches are common."""
    tracks = {}
    for number, generator in enumerate(GENERATORS):
        times = np.sort(rng.choice(np.arange(0, 200, 20), 4, replace=False))
        words = np.zeros((4, 6), np.uint32)
        words[:, 3] = rng.choice([5000, 20000], 4)
        words[:, 4], words[:, 5] = 6, 0b1001
        tracks[number] = make_track(generator, times, decode_words(words, 2), None)
    return TimeLine(GENERATORS, tracks, [np.zeros((16, 2), np.int16)] * 2)


@pytest.mark.slow
@pytest.mark.parametrize("growth", [0, 3])
@pytest.mark.parametrize("memory", [64 << 20, 8000])
def test_what_is_kept_is_what_the_plant_would_answer(monkeypatch, growth, memory):
    """3 fresh questions in 4 would be too many: the kept ones must be used, and be right."""
    monkeypatch.setattr(traces, "MAX_MEMORY_BYTES", memory)
    rng = np.random.default_rng(11)
    plant = Echo(back=40, growth=growth if memory > 8000 else 0)
    kept = traces.Traces(plant, 0)
    kept.set_epoch(0)
    asked = 0
    for _ in range(60):
        timeline = line(rng)
        for first in rng.integers(-50, 1600, 8).tolist():
            before = plant.back
            received = kept.receive(timeline, RATE, first, 64)
            assert (
                received.level.tolist() == Echo(before).receive(0, RATE, first, 64, timeline).level.tolist()
            )
            asked += 1
            plant.growth = 0 if plant.back > 60 else plant.growth
    assert kept.plant_call_count < 0.9 * asked


def test_a_new_epoch_forgets(monkeypatch):
    plant = Echo(back=0)
    kept = traces.Traces(plant, 0)
    timeline = line(np.random.default_rng(1))
    for epoch in (0, 0, 1):
        kept.set_epoch(epoch)
        kept.receive(timeline, RATE, 0, 64)
    assert kept.plant_call_count == 2


def test_a_plant_that_answers_too_little_is_told():
    class Short(Echo):
        def receive(self, readout, rate_hz, first, count, outputs):
            return ReceivedSignal(np.zeros(count - 1), np.zeros(count), 0.0)

    kept = traces.Traces(Short(back=0), 0)
    kept.set_epoch(0)
    with pytest.raises(
        ValueError, match=r"a plant returned \(63,\) and \(64,\) where 64 samples were requested"
    ):
        kept.receive(line(np.random.default_rng(1)), RATE, 0, 64)
