"""Changes of level: found where they are, and in series without one no oftener than is said."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.measure.trends.change_points import (
    MAX_SERIES_LENGTH,
    MIN_SERIES_LENGTH,
    MIN_SIDE_LENGTH,
    find_best_segment,
    find_change_points,
)

DRAWS = {
    "normal": lambda random, size: random.normal(size=size),
    "heavy tails": lambda random, size: random.standard_t(2, size=size),
    "skewed": lambda random, size: random.lognormal(sigma=1.0, size=size),
    "rounded": lambda random, size: random.normal(size=size).round(),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", DRAWS)
def test_series_without_a_change_are_false_alarms_at_the_stated_rate(kind):
    random, rate, series = np.random.default_rng(7), 0.1, 200
    alarms = sum(
        bool(
            find_change_points(
                DRAWS[kind](random, int(random.integers(8, 40))), false_alarm_rate=rate, seed=seed
            )
        )
        for seed in range(series)
    )

    spread = math.sqrt(series * rate * (1 - rate))
    assert alarms <= series * rate + 3 * spread
    assert alarms >= series * rate / 4  # the test is not one that never rejects


@pytest.mark.long
@pytest.mark.parametrize(("sigmas", "least_found", "least_near"), [(2.0, 85, 70), (3.0, 98, 95)])
def test_a_step_is_found_where_it_is(sigmas, least_found, least_near):
    random, found, near = np.random.default_rng(11), 0, 0
    for seed in range(100):
        values = random.normal(size=24)
        values[12:] -= sigmas
        points = find_change_points(values, seed=seed)
        found += bool(points)
        near += any(abs(point.index - 12) <= 1 and point.after < point.before for point in points)

    assert found >= least_found
    assert near >= least_near


def test_two_steps_are_told_apart_with_their_levels():
    values = [10.0, 10.2, 9.9, 10.1, 10.0, 9.8, 5.1, 5.0, 4.9, 5.2, 5.0, 4.8, 8.0, 8.1, 7.9, 8.2, 8.0, 8.1]
    points = find_change_points(values)

    assert [point.index for point in points] == [6, 12]
    assert [round(level, 1) for point in points for level in (point.before, point.after)] == [
        10.0,
        5.0,
        5.0,
        8.1,
    ]
    assert all(point.confidence > 0.95 for point in points)


def test_the_confidence_is_that_of_all_orders():
    values = np.array([3.0, 3.1, 2.9, 1.0, 1.1, 0.9])
    gain = find_best_segment(values)[0]
    as_good = sum(
        find_best_segment(np.array(order))[0] >= gain * (1 - 1e-9) for order in permutations(values)
    )

    (point,) = find_change_points(values, false_alarm_rate=0.2)
    assert as_good == 72  # of 720: the three large ones before or after the three small ones, in any order
    assert point.confidence == pytest.approx(1 - as_good / 720, abs=0.05)


@pytest.mark.parametrize("values", [[], [1.0], [5.0] * 30, [0.1 + 0.2] * 10, [1.0, 9.0, 1.0, 9.0, 1.0]])
def test_constant_and_short_series_have_no_change(values):
    assert find_change_points(values) == ()


@pytest.mark.long
def test_units_and_offsets_change_nothing():
    changes = []

    @settings(max_examples=100)
    @given(
        st.lists(st.sampled_from([0, 1, 2, 40, 41, 42]), min_size=MIN_SERIES_LENGTH, max_size=20),
        st.booleans(),
        st.floats(0.5, 100),
        st.floats(-1000, 1000),
    )
    def check(values, is_sorted, scale, offset):
        values = sorted(values) if is_sorted else values
        points = find_change_points(values)
        moved = find_change_points([value * scale + offset for value in values])

        changes.append(len(points))
        assert [point.index for point in moved] == [point.index for point in points]
        for one, other in zip(points, moved, strict=True):
            assert other.confidence == pytest.approx(one.confidence)
            assert other.before == pytest.approx(one.before * scale + offset, abs=1e-6)

    check()
    assert sum(map(bool, changes)) >= 10
    assert 0 in changes


@given(st.lists(st.integers(-3, 3), min_size=MIN_SERIES_LENGTH, max_size=12))
def test_the_best_segment_is_the_best_of_all(values):
    series, size = np.array(values, float), len(values)

    def left(begin, end):
        parts = series[begin:end], np.concatenate([series[:begin], series[end:]])
        return sum(((part - part.mean()) ** 2).sum() for part in parts)

    gain, ends = find_best_segment(series)
    segments = [
        (begin, end)
        for begin in range(size)
        for end in range(begin + MIN_SIDE_LENGTH, size + 1)
        if end - begin <= size - MIN_SIDE_LENGTH
        and (begin == 0 or begin >= MIN_SIDE_LENGTH)
        and (end == size or size - end >= MIN_SIDE_LENGTH)
    ]
    assert ends in segments
    assert left(*ends) == pytest.approx(min(left(*segment) for segment in segments))
    assert gain == pytest.approx(((series - series.mean()) ** 2).sum() - left(*ends))


def test_a_loss_that_was_repaired_is_two_changes():
    values = [-1.0] * 6 + [-2.5] * 6 + [-1.0] * 6
    points = find_change_points(values, false_alarm_rate=0.02)

    assert [(point.index, point.before, point.after) for point in points] == [
        (6, -1.0, -2.5),
        (12, -2.5, -1.0),
    ]


def test_of_a_long_series_the_newest_values_are_judged():
    old = [90.0] * 100
    assert find_change_points([*old, *([50.0] * MAX_SERIES_LENGTH)]) == ()
    (point,) = find_change_points([*old, *([50.0] * (MAX_SERIES_LENGTH - 10))])
    assert (point.index, point.before, point.after) == (100, 90.0, 50.0)
