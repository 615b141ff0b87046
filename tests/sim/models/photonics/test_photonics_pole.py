"""Bandwidth: the memory of one pole, its two bandwidths, and what a receiver's current looks like."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.models.photonics import pole
from sim.models.photonics.detector import (
    Detector,
    compute_photocurrent_a,
    compute_responsivity_a_w,
    detect_current_a,
)

levels = st.lists(st.floats(-10.0, 10.0), min_size=1, max_size=200)
memories = st.floats(0.0, 0.999)


def by_hand(x, kept, before):
    y, out = before, []
    for level in x:
        y = kept * y + (1 - kept) * level
        out.append(y)
    return out


@given(levels, memories, st.floats(-10.0, 10.0))
def test_the_response_is_the_recursion(x, kept, before):
    assert pole.filter_staircase(x, kept, before).tolist() == pytest.approx(
        by_hand(x, kept, before), abs=1e-9
    )


@given(st.floats(-10.0, 10.0), memories, st.integers(1, 300))
def test_a_level_that_stands_comes_out_exactly(level, kept, count):
    assert pole.filter_staircase([level] * count, kept).tolist() == [level] * count


@pytest.mark.parametrize("kept", [0.0, 1.0])
def test_no_memory_and_nothing_but_memory(kept):
    expected = [3.0, 4.0] if kept == 0.0 else [1.0, 1.0]
    assert pole.filter_staircase([3.0, 4.0], kept, previous_output=1.0).tolist() == expected


def test_nothing_in_nothing_out():
    assert pole.filter_staircase([], 0.5).tolist() == []


@pytest.mark.parametrize("fraction", [0.0, 0.25, 0.5, 1.0])
def test_a_skewed_instant_agrees_with_a_finer_staircase(fraction):
    x = np.random.default_rng(40).uniform(size=50)
    kept = 0.3
    ends = pole.filter_staircase(x, kept, previous_output=0.0)
    fine = pole.filter_staircase(np.repeat(x, 100), kept ** (1 / 100), previous_output=0.0)
    after_each = fine[99::100] if fraction == 0.0 else fine[99 + round(100 * fraction) :: 100]
    between = pole.interpolate_response(ends[:-1], x[1:], kept, fraction)
    assert between[: len(after_each)].tolist() == pytest.approx(after_each[: len(between)].tolist())


def gain_at(frequency_hz, pole_hz):
    """Measure with a sine sampled 200 times a period of the pole, after it has settled."""
    rate_hz = 200 * pole_hz
    t = np.arange(40_000) / rate_hz
    turning = 2 * math.pi * frequency_hz * t
    kept = pole.compute_decay(pole_hz, rate_hz)
    field = pole.filter_staircase(np.cos(turning), kept) + 1j * pole.filter_staircase(
        np.sin(turning), kept, previous_output=0.0
    )
    return np.abs(field[-1000:]).mean()


def test_at_its_frequency_half_of_the_power_is_left():
    assert gain_at(1e9, 1e9) ** 2 == pytest.approx(0.5, rel=1e-3)
    assert gain_at(3e9, 1e9) == pytest.approx(1 / math.sqrt(10), rel=2e-3)


def test_noise_bandwidth_is_the_area_under_the_power():
    frequencies = np.linspace(0.0, 2000.0, 2_000_001)
    area = np.sum(1 / (1 + np.square(frequencies))) * (frequencies[1] - frequencies[0])
    assert pole.compute_noise_bandwidth_hz(1.0) == pytest.approx(area, rel=1e-3)
    assert pole.compute_pole_hz(pole.compute_noise_bandwidth_hz(7.0)) == pytest.approx(7.0)


def test_white_noise_behind_a_pole_is_an_autoregression_with_the_poles_memory():
    white = np.random.default_rng(41).standard_normal(400_000)
    kept = pole.compute_decay(2.546e9, 16e9)
    coloured = pole.filter_staircase(white, kept, previous_output=0.0)[100:]
    for lag in (1, 2, 4):
        measured = np.mean(coloured[lag:] * coloured[:-lag]) / coloured.var()
        assert measured == pytest.approx(kept**lag, abs=0.01)
    assert coloured.var() == pytest.approx((1 - kept) / (1 + kept), rel=0.02)


def test_both_readings_of_4_ghz_leave_neighbours_at_3_072_gsps_all_but_independent():
    as_noise_bandwidth = pole.compute_decay(pole.compute_pole_hz(4e9), 3.072e9)
    as_pole = pole.compute_decay(4e9, 3.072e9)
    assert (round(as_noise_bandwidth, 5), round(as_pole, 5)) == (0.00547, 0.00028)


@pytest.mark.parametrize("kept", [-0.1, 1.1])
def test_memories_that_are_none_are_refused(kept):
    with pytest.raises(ValueError, match="decay"):
        pole.filter_staircase([1.0], kept)


def test_dark_current_is_there_without_light_and_responsivity_with_it():
    detector = Detector(responsivity_a_w=0.9, dark_current_a=1e-6)
    assert detect_current_a(detector, [0.0, 0.0], 3e9).tolist() == [1e-6, 1e-6]
    assert detect_current_a(detector, [1e-3, 1e-3], 3e9).tolist() == pytest.approx([0.901e-3] * 2)
    assert compute_photocurrent_a(detector, 1e-3) == pytest.approx(0.9e-3)


def test_symbols_of_one_sample_leak_into_the_next_by_the_memory():
    detector = Detector(dark_current_a=0.0)
    rate_hz = 3.072e9
    one, leak = detect_current_a(detector, [0.0, 1e-3, 0.0], rate_hz)[1:]
    assert leak / one == pytest.approx(pole.compute_decay(detector.pole_hz, rate_hz))


def test_a_photodiode_cannot_give_more_than_an_electron_per_photon():
    assert compute_responsivity_a_w(1.0, 1550e-9) == pytest.approx(1.2501, abs=1e-4)


@pytest.mark.parametrize(
    "wrong",
    [
        {"responsivity_a_w": 0.0},
        {"noise_bandwidth_hz": -1.0},
        {"dark_current_a": -1e-9},
        {"thermal_a_rthz": math.nan},
    ],
)
def test_detectors_that_are_none_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Detector(**wrong)
