"""Unfairness reproduced: the four rows of the slides within 0.05, and compatible exactly where these say so."""

from __future__ import annotations

import pytest

from testbed.design.reproductions.figure import ignore_progress
from testbed.design.reproductions.unfairness import MODULES, load_figure
from testbed.design.reproductions.unfairness.setup import JOB_GROUPS, PAPER, QUICK
from testbed.design.reproductions.unfairness.speed_ups import compute_speed_ups


@pytest.fixture(scope="module")
def table():
    return load_figure(1).make_table(PAPER, ignore_progress)


@pytest.mark.slow
@pytest.mark.parametrize("row", JOB_GROUPS, ids=lambda row: row.name)
@pytest.mark.parametrize("length", ["main", "check"])
def test_speed_ups_are_within_a_twentieth_at_both_lengths(table, row, length):
    ours = compute_speed_ups(table, row, length)

    assert ours == pytest.approx(row.published_speed_ups, abs=0.05)
    assert all(one > 1 for one in ours) is row.is_compatible


def test_means_are_over_a_thousand_iterations_after_warm_up():
    for scale in (PAPER, QUICK):
        assert scale.warm_up_iteration_count >= 300
        assert scale.check_iteration_count > scale.iteration_count >= 1000 + scale.warm_up_iteration_count


def test_every_parameter_is_called_calibrated(table):
    lines = load_figure(1).compare_with_paper(table)

    assert len(lines) == sum(len(row.models) + 1 for row in JOB_GROUPS)
    assert all(line.note.startswith("calibrated") for line in lines if "speed-up" in line.quantity)
    assert [line.ours for line in lines if "compatible" in line.quantity] == [0, 1, 0, 1]


def test_the_time_line_shows_jobs_in_step_and_apart():
    time_line = load_figure(2)
    table = time_line.make_table(QUICK, ignore_progress)
    even, uneven = time_line.make_plot(table).panels

    assert [line.ours for line in time_line.compare_with_paper(table)] == pytest.approx(
        [1.29, 183, 1.29, 183], rel=1e-3
    )
    assert max(even.series[0].y_values) == pytest.approx(25.0)
    assert max(uneven.series[0].y_values) == pytest.approx(50.0)


def test_other_figures_are_refused():
    with pytest.raises(ValueError, match="figure 3 of unfairness is not reproduced: choose from"):
        load_figure(3)
    assert set(MODULES) == {1, 2}
