"""The contention model where its results are known in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sim.models.contention.job import (
    FAIR,
    MLTCP,
    Burst,
    PeriodicJob,
    Sharing,
    compute_then_send,
)
from sim.models.contention.simulation import Holding, Setting, list_link_rates, simulate, sweep


def twins(fraction: float, period_ms: float = 100.0) -> list[PeriodicJob]:
    return [compute_then_send(name, period_ms, fraction) for name in "ab"]


@pytest.mark.parametrize("fraction", [0.1, 0.25, 0.3, 0.45, 0.5, 0.7])
def test_identical_jobs_in_step_take_1_plus_c_and_apart_the_larger_of_1_and_2c(fraction):
    fair = simulate(twins(fraction), [1.0], 50)
    apart = Setting(starts_ms=(0.0, 100 * max(fraction, 0.5)))
    shifted = simulate(twins(fraction), [1.0], 50, setting=apart)

    assert fair.iteration_ms == pytest.approx(np.full((2, 50), 100 * (1 + fraction)))
    assert shifted.compute_mean_ms(10) == pytest.approx([100 * max(1, 2 * fraction)] * 2)


def test_a_static_weight_moves_identical_jobs_apart_when_there_is_room():
    done = simulate(twins(0.3), [1.0], 400, Sharing(weights=(1.5, 1.0)))

    assert done.iteration_ms[:, 0] == pytest.approx([100 + 20, 100 + 30])
    assert done.compute_mean_ms(100) == pytest.approx([100.0, 100.0])


@pytest.mark.parametrize(("fraction", "fair", "weighted"), [(0.3, 1.3, (1.0, 1.0)), (0.7, 1.7, (1.2, 2.0))])
def test_weights_of_3_to_1_help_both_at_30_percent_and_hurt_one_at_70(fraction, fair, weighted):
    """The model's numbers of the issue's bar: 1.20 and 2.00 where fair sharing takes 1.70."""
    means = sweep([1.0, 1.0], [fraction] * 2, [[1, 1], [3, 1]], iterations=900, warm_up_count=300)

    assert means[0] == pytest.approx([fair] * 2)
    assert means[1] == pytest.approx(weighted, abs=0.05)


def test_a_high_priority_is_served_first_and_the_other_waits():
    jobs = [PeriodicJob(name, 10.0, (Burst(0.0, 4.0, 1.0),)) for name in "ab"]

    done = simulate(jobs, [1.0], 1, Sharing(priorities=(0, 1)))

    assert done.iteration_ms[:, 0].tolist() == pytest.approx([14.0, 10.0])


def test_max_min_over_several_links_and_levels():
    """Three jobs on two links of 10 and 4: the one on both gets 2, the others what is left of their link."""
    jobs = [
        PeriodicJob("both", 10.0, (Burst(0.0, 5.0, 9.0),), (0, 1)),
        PeriodicJob("wide", 10.0, (Burst(0.0, 5.0, 9.0),), (0,)),
        PeriodicJob("narrow", 10.0, (Burst(0.0, 5.0, 9.0),), (1,)),
        PeriodicJob("low", 10.0, (Burst(0.0, 5.0, 0.5),), (0,)),
    ]

    done = simulate(jobs, [10.0, 4.0], 2, setting=Setting(max_trace_rows=10))

    begin, _, rates = list_link_rates(done, [0, 1, 2, 3])[0]
    assert begin == 0.0
    assert rates.tolist() == pytest.approx([2.0, 7.5, 2.0, 0.5])


def test_mltcp_follows_the_exact_solution_within_one_overlap():
    """du_i/dt = S/X u_i/(u1+u2), u = S x/X + I: u1/u2 is constant when both send from the start, so shares are too.

    With a head start of h of its X the first has u1/u2 = (S h + I)/I for the whole overlap: the second
    ends when it has been given X, the first after (1 - h) X.
    """
    head, volume = 0.2, 30.0
    ratio = (1.75 * head + 0.25) / 0.25
    jobs = [PeriodicJob(name, 100.0, (Burst(0.0, volume, 1.0),)) for name in "ab"]

    done = simulate(jobs, [1.0], 1, MLTCP, Setting(starts_ms=(0.0, head * volume)))

    overlap = (1 - head) * volume * (1 + 1 / ratio)
    assert done.begins_ms[0, 1] == pytest.approx(head * volume + overlap + 70, rel=2e-3)


@pytest.mark.parametrize(
    ("fraction", "fair", "ideal", "within"), [(0.3, 1.294, 1, 4), (0.5, 1.49, 1, 4), (0.6, 1.588, 1.2, 4)]
)
def test_mltcp_interleaves_two_jobs_within_four_iterations(fraction, fair, ideal, within):
    """Numbers of section 3 of the reference: a first offset of 2 % of the communication."""
    offset = Setting(starts_ms=(0.0, 0.02 * fraction))
    shared = simulate(twins(fraction, 1.0), [1.0], 12, FAIR, offset)
    scaled = simulate(twins(fraction, 1.0), [1.0], 12, MLTCP, offset)

    assert shared.compute_mean_ms(1) == pytest.approx([fair] * 2, abs=0.02)
    assert scaled.iteration_ms[:, within:] == pytest.approx(np.full((2, 12 - within), ideal), rel=0.05)


def test_a_job_that_holds_its_period_waits_and_the_waiting_counts():
    job = [compute_then_send("a", 100.0, 0.5)]
    setting = Setting((7.0,), Holding((110.0,)))

    done = simulate(job, [1.0], 5, setting=setting)

    assert done.begins_ms[0].tolist() == pytest.approx([7 + 110 * k for k in range(6)])
    assert done.alignments.tolist() == [0]


def test_a_job_that_is_late_by_more_than_the_tolerance_takes_a_later_slot_as_often_as_allowed():
    job = [compute_then_send("a", 100.0, 0.5)]

    def begins(most: int) -> list[float]:
        setting = Setting((), Holding((90.0,), tolerance=0.05, max_alignments=most))
        return simulate(job, [1.0], 4, setting=setting).begins_ms[0].tolist()

    assert begins(1) == pytest.approx([0, 180, 280, 380, 480])
    assert begins(0) == pytest.approx([0, 100, 200, 300, 400])


def test_jitter_varies_computation_alone_and_the_seed_repeats_it():
    job = [compute_then_send("a", 100.0, 0.5)]

    def run(seed: int) -> np.ndarray:
        return simulate(job, [1.0], 2000, setting=Setting(jitter=0.1, seed=seed)).iteration_ms

    assert run(1).tolist() == run(1).tolist() != run(2).tolist()
    assert run(1).mean() == pytest.approx(100.0, rel=0.01)
    assert run(1).std() == pytest.approx(5.0, rel=0.1)


def test_a_sweep_has_the_shape_of_its_arrays():
    fractions = np.linspace(0.1, 0.5, 5)[:, None] * [1, 1]

    means = sweep([100.0, 100.0], fractions, iterations=60, warm_up_count=10)

    assert means == pytest.approx(100 * (1 + fractions))


def test_jobs_may_have_different_numbers_of_iterations():
    """Nothing is sent at the same time: 30 iterations of 10 take as long as 3 of 100."""
    fast, slow = (PeriodicJob(name, period, (), ()) for name, period in (("fast", 10.0), ("slow", 100.0)))
    done = simulate([fast, slow], [1.0], (30, 3))

    assert done.begins_ms[0].tolist() == pytest.approx([10.0 * count for count in range(31)])
    assert done.begins_ms[1, -4:].tolist() == [0.0, 100.0, 200.0, 300.0]
    assert np.isnan(done.begins_ms[1, :-4]).all()
    assert done.compute_mean_ms(5).tolist() == pytest.approx([10.0, 100.0])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PeriodicJob("a", 0.0, ()), "period of job 'a' is 0"),
        (lambda: PeriodicJob("a", -5.0, ()), "period of job 'a' is -5"),
        (lambda: PeriodicJob("a", math.nan, ()), "above 0"),
        (lambda: PeriodicJob("a", 10.0, (Burst(0, 0, 1),)), "length of burst 1 of job 'a' is 0"),
        (lambda: PeriodicJob("a", 10.0, (Burst(0, 5, 1), Burst(4, 2, 1))), "overlap or leave its period"),
        (lambda: PeriodicJob("a", 10.0, (Burst(6, 5, 1),)), "overlap or leave its period"),
        (lambda: Sharing(weights=(0.0,)), "weight 1 is 0"),
        (lambda: Sharing(slope=-1.0), "slope is -1"),
        (lambda: simulate(twins(0.3), [1.0], 2, Sharing(weights=(1.0,))), "1 weights for 2 jobs"),
        (
            lambda: simulate(
                [PeriodicJob(n, 10.0, (Burst(0, 10, 1.0),)) for n in "ab"],
                [1.0],
                2,
                Sharing(priorities=(1, 0)),
            ),
            "job 'b' gets no bandwidth",
        ),
    ],
)
def test_what_cannot_be_is_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()
