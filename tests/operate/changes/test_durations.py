"""Durations of steps: learned from the journal by switch and kind, the driver's estimate where nothing is learned."""

from __future__ import annotations

import statistics
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from libraries import skip_without

skip_without("sqlalchemy")

from ocs_drivers.model import CrossConnects, Outcome, Snapshot, Status, Step
from testbed.operate.durations import MAX_SAMPLES, MIN_SAMPLES, Forecast, learn_durations, parse_durations
from testbed.operate.journal import open_journal
from testbed.operate.model import LabPlan, SwitchPlan

DARK = CrossConnects()
BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)


def step(kind="add", estimated_s=1.0):
    return Step(kind, DARK, DARK, DARK, estimated_s)


def row(seconds, switch="panel1", kind="add", at=BEGIN):
    return {
        "switch": switch,
        "kind": kind,
        "intent_at": at.isoformat(timespec="microseconds"),
        "outcome_at": (at + timedelta(seconds=seconds)).isoformat(timespec="microseconds"),
    }


def plan_of(**kinds):
    parts = (
        SwitchPlan(name, DARK, None, Snapshot(DARK, 0.0), tuple(step(kind) for kind in steps))
        for name, steps in kinds.items()
    )
    return LabPlan(None, (), tuple(parts))


@given(st.lists(st.integers(0, 10**8), min_size=MIN_SAMPLES, max_size=60))
def test_median_and_nearest_rank_of_what_was_measured(microseconds):
    seconds = [one / 1e6 for one in microseconds]
    expected = parse_durations(row(one) for one in seconds).estimate_step("panel1", step())
    assert expected.sample_count == len(seconds)
    assert expected.median_s == pytest.approx(statistics.median(seconds))
    not_above = sum(one <= expected.p95_s + 1e-9 for one in seconds)
    assert not_above >= 0.95 * len(seconds)
    assert expected.p95_s in [pytest.approx(one) for one in seconds]


def test_switches_and_kinds_of_step_are_told_apart():
    durations = parse_durations([row(60.0)] * 3 + [row(30.0, kind="remove")] * 3 + [row(2.0, "ocs1")] * 3)
    assert durations.estimate_step("panel1", step()).median_s == 60.0
    assert durations.estimate_step("panel1", step("remove")).median_s == 30.0
    assert durations.estimate_step("ocs1", step()).median_s == 2.0


def test_with_too_few_steps_the_estimate_of_the_driver_stands():
    durations = parse_durations([row(60.0)] * (MIN_SAMPLES - 1))
    assert durations.estimate_step("panel1", step(estimated_s=7.0)).json() == {
        "median_s": 7.0,
        "p95_s": 7.0,
        "samples": 0,
    }


def test_a_clock_that_stepped_back_teaches_nothing():
    durations = parse_durations([row(-3600.0), row(60.0), row(60.0), row(61.0)])
    assert durations.estimate_step("panel1", step()).sample_count == 3


def test_only_the_newest_steps_count():
    durations = parse_durations([row(70.0)] * MAX_SAMPLES + [row(10.0)] * 1000)
    assert durations.estimate_step("panel1", step()).json() == {
        "median_s": 70.0,
        "p95_s": 70.0,
        "samples": MAX_SAMPLES,
    }


def test_a_switch_makes_its_steps_in_turn_and_switches_work_at_the_same_time():
    durations = parse_durations([row(60.0)] * 3 + [row(2.0, "ocs1")] * 4)
    planned = plan_of(panel1=["add"] * 24, ocs1=["add"])
    assert durations.estimate_plan(planned).json() == {
        "median_s": 24 * 60.0,
        "p95_s": 24 * 60.0,
        "samples": 3,
    }
    assert durations.estimate_plan(plan_of(panel1=[])).json() == {"median_s": 0.0, "p95_s": 0.0, "samples": 0}


def test_only_steps_that_their_operation_saw_done_are_learned_from(tmp_path):
    """One that a later read concluded says how long nobody looked, and a failed one how soon it failed."""
    done = Outcome(Status.DONE, {}, Snapshot(DARK, 0.0))
    with open_journal(tmp_path) as journal:
        with journal.open_operation("lab") as operation:
            for ordinal, outcome in enumerate([done, done, done, Outcome(Status.FAILED, {}, None)]):
                journal.store_intent(operation, "ocs1", ordinal, "memory://ocs1", step())
                journal.store_outcome(operation, "ocs1", ordinal, outcome)
        with journal.open_operation("lab") as operation:
            journal.store_intent(operation, "ocs1", 0, "memory://ocs1", step())
        (left,) = journal.find_open_steps()
        assert left.operation == operation
        journal.settle("lab", "memory://ocs1", Snapshot(DARK, 0.0))
    assert learn_durations(tmp_path, "lab").estimate_step("ocs1", step()).sample_count == 3
    assert learn_durations(tmp_path, "another").durations_by_step_s == {}


def test_progress_is_by_seconds_and_the_slowest_switch_counts():
    durations = parse_durations([row(60.0)] * 3 + [row(1.0, "ocs1")] * 3)
    forecast = Forecast(plan_of(panel1=["add"] * 4, ocs1=["add"]), durations)
    assert forecast.total_s == 240.0
    assert forecast.finish_step("ocs1") == (0, "1 of 5 steps, about 240 s left")
    assert [forecast.finish_step("panel1") for _ in range(4)] == [
        (25, "2 of 5 steps, about 180 s left"),
        (50, "3 of 5 steps, about 120 s left"),
        (75, "4 of 5 steps, about 60 s left"),
        (100, "5 of 5 steps, about 0.00 s left"),
    ]


def test_where_there_is_no_journal_nothing_is_learned(tmp_path):
    assert learn_durations(tmp_path / "absent", "lab").durations_by_step_s == {}
