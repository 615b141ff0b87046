"""Cassini's circles and best shifts: worked examples, closed forms, and other solvers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.models.contention.job import Burst, PeriodicJob
from testbed.design.sharing.cassini.circle import Circle, Rounding, make_circle
from testbed.design.sharing.cassini.rotation import (
    Rotation,
    compute_excess_by_correlation,
    compute_excess_by_matrix,
    find_best_rotation,
    list_positions,
)
from testbed.errors import WorkloadError

PAPER = Rounding(bin_count=72)


def job(name: str, period_ms: float, *bursts: tuple[float, float, float]) -> PeriodicJob:
    return PeriodicJob(name, period_ms, tuple(Burst(*burst) for burst in bursts))


def solved(jobs: list[PeriodicJob], rounding: Rounding | None = None) -> tuple[Circle, Rotation]:
    circle = make_circle(jobs, 50.0, rounding)
    return circle, find_best_rotation(circle)


def brute_force(circle: Circle) -> float:
    first, *others = circle.shift_counts
    ranges = (
        [range(1), *(range(shift) for shift in others)]
        if circle.is_periodic
        else map(range, circle.shift_counts)
    )
    del first
    return min(circle.compute_excess(turns) for turns in itertools.product(*ranges))


FORTY_SIXTY = [job("a", 40, (0, 10, 50)), job("b", 60, (0, 10, 50))]


@pytest.mark.parametrize("rounding", [Rounding(), PAPER])
def test_the_example_of_30_degrees(rounding):
    """Section 2.5: unshifted 0.916667; either job turned by 30 degrees (10 ms) 1.0."""
    circle, found = solved(FORTY_SIXTY, rounding)

    assert circle.repeat_counts == (3, 2)
    assert circle.compute_score(circle.compute_excess([0, 0])) == pytest.approx(1 - 10 / 120)
    assert circle.compute_score(found.excess) == pytest.approx(1.0)
    assert [turn * circle.tick for turn in found.shifts] == pytest.approx([10.0, 0.0])
    assert (found.is_proven, circle.is_approximate) == (True, False)


def test_15_and_10_ms_do_not_fit():
    circle, found = solved([job("a", 40, (0, 15, 50)), job("b", 60, (0, 10, 50))])

    assert circle.compute_score(found.excess) == pytest.approx(1 - 5 / 120)
    assert circle.compute_score(circle.compute_excess([0, 0])) == pytest.approx(1 - 10 / 120)


def test_two_jobs_are_compatible_exactly_when_their_bursts_fit_into_the_gcd():
    cases = seen = 0
    for one, two in itertools.product((12, 18, 20, 24, 30, 40), repeat=2):
        room = math.gcd(one, two)
        for burst, other in itertools.product(range(1, min(one, 9), 2), range(1, min(two, 9), 2)):
            _, found = solved([job("a", one, (0, burst, 50)), job("b", two, (0, other, 50))])
            assert (found.excess == 0) == (burst + other <= room), (one, two, burst, other)
            cases += 1
            seen += found.excess == 0
    assert cases >= 300
    assert 50 < seen < cases - 50


@st.composite
def job_lists(draw, least=2, most=3):
    periods = st.sampled_from([6, 8, 12, 16, 24])
    jobs = []
    for number in range(draw(st.integers(least, most))):
        period = draw(periods)
        edges = sorted(draw(st.sets(st.integers(0, period), min_size=2, max_size=4)))
        levels = [draw(st.sampled_from([10, 20, 30, 50])) for _ in edges[1:]]
        spans = zip(edges, edges[1:], levels, strict=False)
        jobs.append(job(str(number), period, *((a, b - a, level) for a, b, level in spans)))
    return jobs


@pytest.mark.long
def test_branch_and_bound_finds_what_brute_force_finds():
    seen = {2: 0, 3: 0, "excess": 0}

    @settings(max_examples=100, derandomize=True, database=None)
    @given(job_lists())
    def check(jobs):
        circle, found = solved(jobs)
        assert found.is_proven
        assert circle.compute_excess(found.shifts) == pytest.approx(found.excess)
        assert found.excess == pytest.approx(brute_force(circle))
        seen[len(jobs)] += 1
        seen["excess"] += found.excess > 0

    check()
    assert min(seen.values()) >= 20


def milp_excess(circle: Circle) -> float:
    """Return the least excess by `scipy.optimize.milp`: one shift of each job, excess at every tick."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    size = circle.tick_count
    choices = sum(circle.shift_counts)
    columns = (
        np.hstack(
            [
                demand[list_positions(size, shifts)].T
                for demand, shifts in zip(circle.demands, circle.shift_counts, strict=True)
            ]
        )
        / circle.capacity
    )
    above = LinearConstraint(np.hstack([columns, -np.eye(size)]), ub=1.0)
    one_each = np.zeros((len(circle.shift_counts), choices + size))
    for number, end in enumerate(np.cumsum(circle.shift_counts)):
        one_each[number, end - circle.shift_counts[number] : end] = 1
    solved = milp(
        np.concatenate([np.zeros(choices), np.ones(size)]),
        constraints=[above, LinearConstraint(one_each, 1, 1)],
        integrality=np.concatenate([np.ones(choices), np.zeros(size)]),
        bounds=Bounds(0, np.concatenate([np.ones(choices), np.full(size, np.inf)])),
    )
    return float(solved.fun) * circle.capacity


@pytest.mark.long
@pytest.mark.slow
def test_branch_and_bound_finds_what_mixed_integer_programming_finds():
    seen = {2: 0, 3: 0}

    @settings(max_examples=40, derandomize=True, database=None, deadline=None)
    @given(job_lists())
    def check(jobs):
        circle, found = solved(jobs)
        assert found.excess / circle.capacity == pytest.approx(
            milp_excess(circle) / circle.capacity, abs=1e-5
        )
        seen[len(jobs)] += 1

    check()
    assert min(seen.values()) >= 5


@settings(max_examples=60, derandomize=True, database=None)
@given(job_lists(least=1), st.integers(0, 400))
def test_laws_of_the_score(jobs, turn):
    circle = make_circle(jobs, 50.0)
    turns = [(7 * number) % shifts for number, shifts in enumerate(circle.shift_counts)]
    excess = circle.compute_excess(turns)

    assert circle.compute_excess([one + turn for one in turns]) == pytest.approx(excess)
    assert circle.compute_excess(
        [one + own for one, own in zip(turns, circle.shift_counts, strict=True)]
    ) == pytest.approx(excess)
    assert (
        excess >= sum(demand.sum() for demand in circle.demands) - circle.tick_count * circle.capacity - 1e-6
    )
    fewer = make_circle(jobs[1:] or jobs, 50.0)
    assert (
        circle.compute_score(find_best_rotation(circle).excess)
        <= fewer.compute_score(find_best_rotation(fewer).excess) + 1e-9
    )


@settings(max_examples=60, derandomize=True, database=None)
@given(job_lists(most=2))
def test_correlation_and_matrix_agree(jobs):
    circle = make_circle(jobs, 50.0)
    one, two = circle.demands
    matrix = compute_excess_by_matrix(one, two[list_positions(one.size, one.size)], circle.capacity)

    assert compute_excess_by_correlation(one, two, circle.capacity) == pytest.approx(matrix)


def test_72_bins_are_too_coarse_for_long_circles_and_say_so():
    """Section 2.8: periods 101 and 103 have one shift left on 72 bins, and a score that is too good."""
    jobs = [job("a", 101, (0, 25, 50)), job("b", 103, (0, 26, 50))]
    paper, coarse = solved(jobs, PAPER)
    exact, best = solved(jobs)

    assert paper.shift_counts == (1, 1)
    assert paper.is_approximate
    assert paper.compute_score(coarse.excess) == pytest.approx(1.0)
    assert exact.compute_score(best.excess) == pytest.approx(0.938, abs=0.003)
    assert not exact.is_approximate


def test_five_jobs_of_a_fifth_fit_though_72_bins_do_not_show_it():
    jobs = [job(str(number), 100, (0, 20, 50)) for number in range(5)]
    paper, coarse = solved(jobs, PAPER)
    exact, best = solved(jobs)

    assert paper.compute_score(coarse.excess) == pytest.approx(0.983333, abs=1e-6)
    assert exact.compute_score(best.excess) == 1.0


def test_times_that_are_rounded_are_called_approximate():
    jobs = [job("a", 40.5, (0, 10, 50)), job("b", 60, (0, 10, 50))]

    assert make_circle(jobs, 50.0).is_approximate
    assert not make_circle(jobs, 50.0, Rounding(quantum_ms=0.5)).is_approximate


def test_a_circle_above_its_cap_is_refused_with_what_to_do():
    jobs = [job("a", 10007, (0, 10, 50)), job("b", 10009, (0, 10, 50))]

    with pytest.raises(
        WorkloadError, match=r"100160063 ticks, above the cap of 100000: give a coarser --quantum-ms"
    ):
        make_circle(jobs, 50.0)
    with pytest.raises(WorkloadError, match="smaller --quantum-ms"):
        make_circle(jobs, 50.0, Rounding(quantum_ms=50_000))


def test_a_search_that_runs_out_of_time_says_not_proven():
    jobs = [job(str(n), 97 + n % 2, (0, 13, 50), (40, 11 + n, 20)) for n in range(8)]
    circle = make_circle(jobs, 50.0)
    ticks = itertools.count()

    found = find_best_rotation(circle, 3.0, clock=lambda: next(ticks))

    assert not found.is_proven
    assert found.excess == pytest.approx(circle.compute_excess(found.shifts))
    assert found.excess <= circle.compute_excess([0] * 8)


def fives(chance: np.random.Generator) -> list[PeriodicJob]:
    jobs = []
    for number in range(5):
        period = int(chance.choice([40, 60, 80, 120, 240]))
        length = int(chance.integers(period // 10, period // 4))
        high, low = int(chance.choice([20, 25, 40, 50])), int(chance.choice([10, 20, 30]))
        jobs.append(job(str(number), period, (0, length, high), (length, length, low)))
    return jobs


# The four defects of the Rust version that section 2.6 of the reference lists.


def test_a_burst_keeps_its_length_on_the_unified_circle():
    """Defect 1: with the phase by the job's own period, 57 and 26 bins are busy; right are 18 and 12."""
    circle = make_circle(FORTY_SIXTY, 50.0, PAPER)

    assert [int((demand > 0).sum()) for demand in circle.demands] == [18, 12]


def test_half_a_period_is_36_of_72_bins():
    """Defect 2: with the last bin counted in, a duty of 50 % has 37."""
    circle = make_circle([job("a", 100, (0, 50, 50))], 50.0, PAPER)

    assert int((circle.demands[0] > 0).sum()) == 36


def test_the_search_looks_at_few_of_all_combinations(monkeypatch):
    """Defect 3: a grid over the full circle for all jobs but one has 72^4 points here."""
    from testbed.design.sharing.cassini import rotation

    calls = itertools.count()
    plain = rotation.compute_shift_excess
    monkeypatch.setattr(rotation, "compute_shift_excess", lambda *given: (next(calls), plain(*given))[1])

    found = find_best_rotation(make_circle(fives(np.random.default_rng(3)), 50.0, PAPER))

    assert found.is_proven
    assert next(calls) < 5000
