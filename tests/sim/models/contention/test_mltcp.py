"""The recurrence of MLTCP against the vectors of the reference, section 3."""

from __future__ import annotations

import pytest

from sim.models.contention.mltcp import compute_gaps, compute_shift, count_iterations_to_gap

STARTS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5)
ITERATIONS = {
    (1.75, 0.25): (6, 5, 4, 4, 3, 3),
    (4.0, 0.25): (5, 4, 3, 3, 3, 2),
    (1.0, 1.0): (17, 14, 11, 10, 9, 7),
    (0.5, 1.0): (29, 23, 19, 17, 15, 12),
}


def test_the_gaps_of_the_trace():
    assert [round(gap, 4) for gap in compute_gaps(0.01, 1.0, 1.75, 0.25, 5)] == [
        0.01,
        0.0748,
        0.3926,
        0.838,
        0.9764,
        0.997,
    ]


@pytest.mark.parametrize(("constants", "expected"), ITERATIONS.items())
def test_iterations_until_the_jobs_are_apart(constants, expected):
    assert tuple(count_iterations_to_gap(start, *constants) for start in STARTS) == expected


def test_fixed_points_and_their_gains():
    slope, intercept, burst, small = 1.75, 0.25, 3.0, 1e-7

    assert compute_shift(0.0, burst, slope, intercept) == compute_shift(burst, burst, slope, intercept) == 0.0
    assert 1 + compute_shift(small, burst, slope, intercept) / small == pytest.approx(
        1 + slope / intercept, rel=1e-5
    )
    error = small + compute_shift(burst - small, burst, slope, intercept) * -1
    assert error / small == pytest.approx(intercept / (intercept + slope), rel=1e-5)
