"""Series with planted changes: steps found, trends told as trends, nothing found in healthy ones."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.operate.drift.statistics import MIN_READINGS, estimate_noise, judge_series

FIVE_MINUTES_S, HOUR_S, DAY_S = 300.0, 3600.0, 86400.0
seeds = st.integers(0, 2**32 - 1)
noises_db = st.sampled_from([0.1, 0.2, 0.3])


def healthy(seed, count, noise_db, every_s=FIVE_MINUTES_S, swing_db=0.0):
    random = np.random.default_rng(seed)
    times = np.arange(count) * every_s
    swing = swing_db * np.sin(2 * np.pi * times / DAY_S + random.uniform(0, 2 * np.pi))
    return times, 1.8 + swing + random.normal(0, noise_db, count)


@given(seeds, noises_db, st.integers(40, 400), st.integers(10, 400))
def test_a_step_of_1_db_is_found_within_ten_readings(seed, noise_db, before, after):
    times, losses = healthy(seed, before + after, noise_db)
    losses[before:] += 1.0
    found = judge_series(times, losses)
    assert found.kind == "step"
    assert found.change_db == pytest.approx(1.0, abs=0.45)
    assert abs(found.reading_count_since - after) <= 6


@given(seeds, st.sampled_from([0.0, 0.01, 0.02]), st.integers(MIN_READINGS, 300))
def test_on_quiet_monitors_a_step_of_1_db_is_found_at_its_first_reading(seed, noise_db, before):
    times, losses = healthy(seed, before + 1, noise_db)
    losses[-1] += 1.0
    found = judge_series(times, losses)
    assert (found.kind, found.reading_count_since) == ("step", 1)


@given(seeds, noises_db, st.integers(4, 14), st.sampled_from([0.2, 0.3, 0.5]))
def test_a_slow_loss_is_told_as_a_trend_with_its_slope(seed, noise_db, days, slope):
    times, losses = healthy(seed, days * 288, noise_db)
    found = judge_series(times, losses + slope * times / DAY_S)
    assert found.kind == "trend"
    assert found.slope_db_per_day == pytest.approx(slope, abs=0.05)
    assert found.baseline_db == pytest.approx(1.8, abs=0.1)


@pytest.mark.slow
def test_no_false_alarm_in_1000_healthy_series():
    """Noise of 0.1 to 0.3 dB, a day and night of 0.1 dB in every second one, from the first verdict to a week."""
    counts = (MIN_READINGS, 20, 50, 288, 2016)
    kinds = Counter(
        judge_series(
            *healthy(seed, counts[seed % 5], (0.1, 0.2, 0.3)[seed % 3], swing_db=0.1 * (seed % 2))
        ).kind
        for seed in range(1000)
    )
    assert kinds == {"steady": 1000}


@pytest.mark.long
def test_false_alarms_are_rarer_than_one_in_10000_series():
    kinds = Counter(judge_series(*healthy(seed, 12 + seed % 90, 0.3)).kind for seed in range(60_000))
    assert kinds["step"] + kinds["trend"] <= 6


def test_a_loss_that_was_repaired_is_no_step_and_the_next_one_is():
    times = np.arange(60) * HOUR_S
    losses = np.full(60, 1.2)
    losses[20:40] += 1.5
    assert judge_series(times, losses).kind == "steady"
    losses[50:] += 1.0
    found = judge_series(times, losses)
    assert (found.kind, found.stretch_start_s) == ("step", 50 * HOUR_S)
    assert found.change_db == pytest.approx(1.0)


def test_a_stretch_that_begins_dirty_is_judged_by_its_cleanest_level():
    times = np.arange(60) * HOUR_S
    losses = np.r_[np.full(20, 3.0), np.full(20, 1.2), np.full(20, 2.2)]
    found = judge_series(times, losses)
    assert (found.kind, round(found.baseline_db, 6)) == ("step", 1.2)


def test_one_wrong_reading_in_the_middle_is_nothing():
    times, losses = healthy(1, 100, 0.1)
    losses[50] += 20
    assert judge_series(times, losses).kind == "steady"


def test_a_few_readings_are_no_verdict():
    found = judge_series([0, 1, 2], [1.0, 1.0, 9.0])
    assert (found.kind, found.level_db, found.reading_count) == ("learning", 1.0, 3)


@pytest.mark.parametrize("noise_db", [0.1, 0.2, 0.3])
def test_the_noise_is_estimated_beside_steps_and_trends(noise_db):
    times, losses = healthy(7, 1000, noise_db)
    losses[500:] += 3.0
    assert estimate_noise(losses + 0.5 * times / DAY_S) == pytest.approx(noise_db, rel=0.1)
