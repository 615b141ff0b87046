"""Arrival of light at the simulated kit's detector, and the memory of the receiver."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.twins.rfsoc.kit import KitParameters, PhotonicKit
from sim.twins.rfsoc.kit import plant as kit_plant
from sim.twins.rfsoc.kit.knobs import set_knobs

DAC_HZ, ADC_HZ = 6.144e9, 3.072e9
PEAK = 20000 / 32766


def open_pair(played, wave: np.ndarray):
    """Modulator 0 gets a waveform while its partner stands open."""
    return played(waves={0: wave, 1: np.zeros(0)}, rest={1: PEAK})


@pytest.mark.parametrize("delay_ns", [0.0, 12.5, 380.0, 1234.0])
def test_correlation_finds_the_delay_that_was_set(kit, played, delay_ns):
    sent = np.repeat(np.random.default_rng(5).integers(0, 2, 400), 8) * PEAK
    setup = kit(delay_ns=delay_ns, bandwidth_hz=1e11)
    received = setup.receive(open_pair(played, sent), 0, 6000).level
    late = int(np.argmax(np.correlate(received - received.mean(), sent[::2] - sent.mean(), "valid")))
    assert late == pytest.approx(delay_ns * 1e-9 * ADC_HZ, abs=0.99)


@pytest.mark.parametrize("skew_ns", [0.0, 0.02, 0.05, 0.081, 0.1, 0.163, 0.41])
def test_a_ramp_of_light_arrives_later_by_the_skew_to_a_fiftieth_of_a_sample(kit, played, skew_ns):
    """The sum of what a rise lacks is its delay, whatever the receiver does to its shape."""
    light = np.linspace(0, 1, 64)
    ramp = played(waves={0: 2 / math.pi * np.arcsin(np.sqrt(light)) * PEAK}, rest={0: PEAK, 1: PEAK})
    lacking = []
    for skew in (0.0, skew_ns):
        setup = kit(skew_ns_0=skew, skew_ns_1=0.0, delay_ns=50.0)
        level = setup.receive(ramp, 0, 600).level
        lacking.append(np.sum(level[-1] - level) / (level[-1] - level[0]))
    assert lacking[1] - lacking[0] == pytest.approx(skew_ns * 1e-9 * ADC_HZ, abs=0.02)


def test_each_modulator_has_a_delay_of_its_own(kit, played):
    setup = kit(skew_ns_0=0.0, skew_ns_1=5.0, delay_ns=100.0)
    pulse = np.full(200, PEAK)
    level = setup.receive(played(waves={0: pulse, 1: pulse}), 0, 1000).level
    bright = np.flatnonzero(level > 0.5)
    # both are open from 105 ns to 100 ns + 200 samples
    assert bright[0] == pytest.approx(105e-9 * ADC_HZ, abs=1)
    assert bright[-1] == pytest.approx((100e-9 + 199.5 / DAC_HZ) * ADC_HZ, abs=1)


def test_after_a_step_the_receiver_lacks_exp_of_minus_four_b_t(kit, played):
    setup = kit(delay_ns=0.0, skew_ns_0=0.0, skew_ns_1=0.0, bandwidth_hz=5e8)
    level = setup.receive(played(rest={0: PEAK, 1: PEAK}), 0, 40).level
    high = setup.level(20000, 20000, 0, 0)
    low = setup.level(0, 0, 0, 0)
    # sample n of the converter is the end of step 2 n of the generators: 2 n + 1 steps of light
    lacking = np.exp(-4 * 5e8 * (2 * np.arange(40) + 1) / DAC_HZ)
    assert (high - level) / (high - low) == pytest.approx(lacking, abs=1e-12)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.integers(-50, 900), st.integers(1, 300), st.sampled_from([1.0, 1.5, 2.0, 4.0]), st.integers(0, 9))
def test_a_window_is_part_of_a_longer_one(first, count, ratio, seed):
    rng = np.random.default_rng(seed)
    wave = rng.uniform(-1, 1, 500) if seed % 2 else np.repeat(rng.uniform(-1, 1, 25), 20)
    outputs = _Wave(wave)
    kit = PhotonicKit(set_knobs(KitParameters(), {"delay_ns": 7.3, "bandwidth_hz": 2e8}))
    whole = kit.receive(1, DAC_HZ / ratio, -50, 1300, outputs)
    part = kit.receive(1, DAC_HZ / ratio, first, count, outputs)
    assert len(part.level) == len(part.noise) == count
    assert part.level == pytest.approx(whole.level[first + 50 :][:count], abs=1e-13)
    assert part.noise == pytest.approx(whole.noise[first + 50 :][:count], abs=1e-12)


class _Wave:
    """Three generators play one waveform; the fourth has a converter of half the rate."""

    def __init__(self, wave):
        self.wave = wave

    def get_rate_hz(self, generator):
        return DAC_HZ / 2 if generator == 3 else DAC_HZ

    def read_samples(self, generator, first, count):
        places = np.arange(first, first + count)
        inside = (places >= 0) & (places < len(self.wave))
        return np.where(inside, self.wave[np.clip(places, 0, len(self.wave) - 1)], 0.0)


def test_a_slower_generator_keeps_its_time(kit, played):
    class Slow(played):
        def get_rate_hz(self, generator):
            return DAC_HZ / 2 if generator == 0 else DAC_HZ

    setup = kit(delay_ns=20.0, skew_ns_1=0.0)
    pulse = np.full(64, PEAK)
    swapped = Slow(waves={1: np.repeat(pulse, 2)}, rest={})
    swapped.waves[0] = pulse
    level = setup.receive(swapped, 0, 300).level
    bright = np.flatnonzero(level > 0.5)
    assert bright[0] == pytest.approx(20e-9 * ADC_HZ, abs=1)
    assert bright[-1] == pytest.approx((20e-9 + 127 / DAC_HZ) * ADC_HZ, abs=1)


def test_grouping_equal_samples_changes_nothing(kit, played, monkeypatch):
    rng = np.random.default_rng(2)
    outputs = played(waves={index: np.repeat(rng.uniform(0, 1, 30), 50) for index in range(4)})
    setup = kit()
    calls = []
    stretches = kit_plant._find_constant_runs
    monkeypatch.setattr(
        kit_plant, "_find_constant_runs", lambda drives: calls.append(stretches(drives)) or calls[-1]
    )
    grouped = setup.receive(outputs, 0, 2500).level
    assert 0 < len(calls[0]) < 400
    monkeypatch.setattr(kit_plant, "_find_constant_runs", lambda drives: np.zeros(0, np.intp))
    assert np.array_equal(grouped, setup.receive(outputs, 0, 2500).level)


def test_only_the_detectors_readout_sees_light(kit, played):
    setup = kit()
    outputs = open_pair(played, np.linspace(0, PEAK, 700))
    other, detector = (setup.kit.receive(readout, ADC_HZ, 900, 800, outputs) for readout in (0, 1))
    assert np.ptp(detector.level) > 0.5
    assert not other.level.any()
    assert not other.noise.any()
    assert other.converter_noise == pytest.approx(detector.converter_noise, rel=0.01)


def test_on_a_board_of_two_generators_the_second_pair_rests(played):
    full, small = (
        PhotonicKit(set_knobs(KitParameters(), {"noise": "off"}), generator_count=count) for count in (4, 2)
    )
    pair, both = (played(rest=dict.fromkeys(range(count), PEAK)) for count in (2, 4))
    assert small.receive(1, ADC_HZ, 5000, 1, both).level == full.receive(1, ADC_HZ, 5000, 1, pair).level
    assert small.receive(1, ADC_HZ, 5000, 1, both).level < full.receive(1, ADC_HZ, 5000, 1, both).level


@pytest.mark.parametrize("bandwidth_hz", [5e7, 1e12])
def test_the_slowest_and_the_fastest_receiver_settle_to_the_same_level(kit, bandwidth_hz):
    one = kit(bandwidth_hz=bandwidth_hz)
    assert one.level(20000, 20000, 0, 0) == pytest.approx(kit().level(20000, 20000, 0, 0), rel=1e-14)
