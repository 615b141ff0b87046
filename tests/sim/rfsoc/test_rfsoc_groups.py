"""Windows that are looked at together see what each of them would see alone."""

from __future__ import annotations

import numpy as np
import pytest

from sim.twins.rfsoc.plant import ReceivedSignal
from sim.twins.rfsoc.signals import traces
from sim.twins.rfsoc.signals.track import Generator, TimeLine, find_integer_ratio, make_track
from sim.twins.rfsoc.signals.waves import Waves, decode_words

GENERATORS = [Generator(6.144e9, 1.0, 16), Generator(4.608e9, 1.0, 16)]
RATE = 3.072e9
ENVELOPE = np.stack([np.arange(256) * 100, np.zeros(256)], axis=1).astype(np.int16)


def sent(rng, pulses):
    """Constant and arbitrary pulses, some held at their end, some periodic, some with an oscillator."""
    words = np.zeros((pulses, 6), np.uint32)
    words[:, 0] = rng.choice([0, 1 << 26], pulses)
    words[:, 2] = rng.choice([0, 4], pulses)
    words[:, 3] = rng.choice([5000, 20000], pulses)
    words[:, 4] = rng.choice([3, 6], pulses)
    words[:, 5] = (
        rng.integers(0, 2, pulses) << 3 | (rng.random(pulses) < 0.1) << 2 | rng.choice([0, 1, 2], pulses)
    )
    return decode_words(words, 2)


def track(rng, generator=GENERATORS[0]):
    pulses = int(rng.integers(0, 6))
    times = np.sort(rng.choice(np.arange(0, 200, 10), pulses, replace=False)).astype(np.int64)
    waves: Waves = sent(rng, pulses)
    return make_track(generator, times, waves, None)


class Sum:
    """Adds what both generators gave 40 of their samples ago; looks further back with every question, for nothing."""

    version = 0

    def __init__(self, growth=0):
        self.further, self.growth = 0, growth

    def elapse(self, seconds):
        pass

    def receive(self, readout, rate_hz, first, count, outputs):
        level = np.zeros(count)
        for generator in range(2):
            step, lanes = find_integer_ratio(outputs.get_rate_hz(generator) / rate_hz)
            start = first * step // lanes - 40
            seen = outputs.read_samples(
                generator, start - self.further, count * step // lanes + 8 + self.further
            )
            level += seen[self.further :][(np.arange(count) * step) // lanes]
        self.further += self.growth
        return ReceivedSignal(level, np.zeros(count), 0.0)


def test_rows_of_signatures_are_equal_only_where_signatures_are():
    rng = np.random.default_rng(7)
    alike = 0
    for _ in range(300):
        made = track(rng)
        firsts = rng.integers(-20, 240, 24) * 16
        table = [tuple(row) for row in made.make_signatures(firsts, 96).tolist()]
        one_by_one = [made.make_signature(first, 96) for first in firsts.tolist()]
        known: dict = {}
        for row, signature in zip(table, one_by_one, strict=True):
            assert known.setdefault(row, signature) == signature
        alike += len(firsts) - len(known)
    assert alike >= 1_000


@pytest.mark.slow
@pytest.mark.parametrize("growth", [0, 5])
def test_windows_together_receive_what_they_would_alone(growth):
    """Also from a plant that looks further and further, for which windows are in the end taken one by one."""
    rng = np.random.default_rng(3)
    spared = 0
    for _ in range(40):
        tracks = {number: track(rng, generator) for number, generator in enumerate(GENERATORS)}
        timeline = TimeLine(GENERATORS, tracks, [ENVELOPE] * 2)
        firsts = rng.integers(-10, 60, 40) * 8
        together = traces.Traces(Sum(growth), 0)
        together.set_epoch(0)
        seen, which = together.receive_windows(timeline, RATE, firsts, 64)
        for first, number in zip(firsts.tolist(), which.tolist(), strict=True):
            assert seen[number].level.tolist() == Sum().receive(0, RATE, first, 64, timeline).level.tolist()
        spared += len(firsts) - together.plant_call_count
    assert growth or spared >= 400


def test_what_a_run_left_ready_is_dropped_with_its_epoch():
    pytest.importorskip("qick")
    from sim.twins.rfsoc import connect

    soc = connect("sim://kit?noise=off")
    readout = soc._board.readouts[1]
    timeline = TimeLine(GENERATORS, {}, [ENVELOPE] * 2)
    firsts = np.arange(3) * 800
    converter = soc._board.converter
    kept = []
    for epoch in ("one", "one", "two"):
        readout.traces.set_epoch(epoch)
        kept.append(readout._find_levels(timeline, firsts, 400, converter))
    assert kept[0] is kept[1]
    assert kept[0] is not kept[2]
