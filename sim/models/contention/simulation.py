"""Simulation of jobs on shared links, for one set of jobs or arrays of parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sim.models.contention.job import FAIR, PeriodicJob, Sharing, check_lengths, compute_then_send

if TYPE_CHECKING:
    from sim.models.contention.engine import Program


Floats = NDArray[np.float64]

MLTCP_STEPS = 200
"""Steps in which the weight of MLTCP rises over the traffic of an iteration."""
HORIZON_PERIODS = 100.0
"""Time limit of a simulation, as a multiple of the time of all iterations in sequence. Only starved jobs reach it."""


@dataclass(frozen=True, slots=True)
class Holding:
    """Jobs that hold their periods: iteration k of a job begins no earlier than its start plus k times its slot.

    A job that is late begins at once, unless it is late by more than `tolerance` times its slot: then it waits for the
    next slot, at most `max_alignments` times. `slots_ms` has a slot for each job.
    """

    slots_ms: tuple[float, ...]
    tolerance: float = 0.05
    max_alignments: int = 1_000_000


@dataclass(frozen=True, slots=True)
class Setting:
    """Conditions of a simulation: start times, held periods, and variation of the computation.

    `jitter` is the standard deviation of the computing time of an iteration, divided by the mean. `max_trace_rows` is
    the maximum number of events whose rates are recorded.
    """

    starts_ms: tuple[float, ...] = ()
    holding: Holding | None = None
    jitter: float = 0.0
    seed: int = 0
    max_trace_rows: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class ContentionResult:
    """Result of a simulation: `begins_ms` (jobs, iterations + 1), `alignments` (jobs,), and the recorded rates.

    A job with fewer iterations than others has NaN in its first columns, and its begins in the last columns.
    Row i of `rates_gbps` (rows, jobs) is valid from `times_ms[i]` to `times_ms[i + 1]`.
    """

    begins_ms: Floats
    alignments: NDArray[np.int64]
    times_ms: Floats = field(repr=False)
    rates_gbps: Floats = field(repr=False)

    @property
    def iteration_ms(self) -> Floats:
        """Time of each iteration, (jobs, iterations), with the wait for a slot."""
        times_ms: Floats = np.diff(self.begins_ms, axis=1)
        return times_ms

    def compute_mean_ms(self, warm_up_count: int = 0) -> Floats:
        """Return the mean iteration time of each job, without the first `warm_up_count` columns."""
        means_ms: Floats = np.nanmean(self.iteration_ms[:, warm_up_count:], axis=1)
        return means_ms

    def compute_p99_ms(self, warm_up_count: int = 0) -> Floats:
        """Return the 99th percentile of the iteration times of each job, without the first `warm_up_count` columns."""
        percentiles_ms: Floats = np.nanpercentile(self.iteration_ms[:, warm_up_count:], 99, axis=1)
        return percentiles_ms


def simulate(
    jobs: Sequence[PeriodicJob],
    capacities_gbps: Sequence[float],
    iterations: int | Sequence[int],
    sharing: Sharing = FAIR,
    setting: Setting | None = None,
) -> ContentionResult:
    """Simulate jobs until each has completed `iterations`, one number for all or one per job.

    Jobs that are ahead continue until then.
    Raise `ValueError` for weights, priorities, starts or slots that are not one per job, and if a job gets no
    bandwidth.
    """
    from sim.models.contention.engine import State, run  # imports numba, which is slow

    setting = setting or Setting()
    job_count = len(jobs)
    iteration_counts = np.broadcast_to(np.asarray(iterations, np.int64), (job_count,))
    max_iterations = int(iteration_counts.max(initial=0))
    program = _make_program(jobs, capacities_gbps, sharing, setting, max_iterations)
    begin_times_ms = np.full((job_count, max_iterations + 1), np.nan)
    trace = np.zeros((setting.max_trace_rows, job_count + 1))
    state = State(
        phase=np.zeros(job_count, np.int64),
        left_ms=np.zeros(job_count),
        left_mbit=np.zeros(job_count),
        sent_mbit=np.zeros(job_count),
        rate_gbps=np.zeros(job_count),
        iteration=max_iterations - iteration_counts,
        slot=np.zeros(job_count, np.int64),
        alignment_count=np.zeros(job_count, np.int64),
        is_active=np.zeros(job_count, np.bool_),
    )
    slot_schedule = setting.holding or Holding(())
    longest_ms = sum(job.period_ms for job in jobs) + max(program.slot_ms, default=0.0)
    horizon_ms = max(program.start_ms, default=0.0) + HORIZON_PERIODS * (max_iterations + 1) * longest_ms
    limits = (MLTCP_STEPS, slot_schedule.tolerance, slot_schedule.max_alignments, horizon_ms)
    _, rows = run(program, state, begin_times_ms, trace, *limits)
    starved_names = [job.name for job, row in zip(jobs, begin_times_ms, strict=True) if np.isnan(row[-1])]
    if starved_names:
        raise ValueError(f"job {starved_names[0]!r} gets no bandwidth: raise its priority class")
    return ContentionResult(begin_times_ms, state.alignment_count, trace[:rows, 0], trace[:rows, 1:])


def _make_program(
    jobs: Sequence[PeriodicJob],
    capacities_gbps: Sequence[float],
    sharing: Sharing,
    conditions: Setting,
    iterations: int,
) -> Program:
    from sim.models.contention.engine import Program

    slots_ms = conditions.holding.slots_ms if conditions.holding else ()
    check_lengths(jobs, weights=sharing.weights, priorities=sharing.priorities)
    check_lengths(jobs, starts=conditions.starts_ms, slots=slots_ms)
    phases = [_split_into_phases(job) for job in jobs]
    columns = np.array([phase for group in phases for phase in group], float).reshape(-1, 3).T
    links_of_jobs = [job.links if job.bursts else () for job in jobs]
    noise = np.random.default_rng(conditions.seed).normal(1.0, conditions.jitter, (len(jobs), iterations))
    return Program(
        first=_compute_offsets(phases),
        compute_ms=columns[0].copy(),
        volume=columns[1].copy(),
        level=columns[2].copy(),
        total=np.array([job.volume_mbit or 1.0 for job in jobs]),
        first_link=_compute_offsets(links_of_jobs),
        links=np.array([link for links in links_of_jobs for link in links], np.int64),
        capacity=np.array(capacities_gbps, np.float64),
        weight=np.array(sharing.weights or (1.0,) * len(jobs), np.float64),
        priority=np.array(sharing.priorities or (0,) * len(jobs), np.int64),
        slope=np.full(len(jobs), sharing.slope),
        intercept=np.full(len(jobs), sharing.intercept),
        start_ms=np.array(conditions.starts_ms or (0.0,) * len(jobs), np.float64),
        slot_ms=np.array(slots_ms or (0.0,) * len(jobs), np.float64),
        noise=np.maximum(noise, 0.0) if conditions.jitter else np.ones((len(jobs), 1)),
    )


def _split_into_phases(job: PeriodicJob) -> list[tuple[float, float, float]]:
    """Return the computation, volume and level of each phase. A phase without traffic follows the last burst."""
    edges_ms = [0.0, *(burst.end_ms for burst in job.bursts)]
    bursts = zip(edges_ms, job.bursts, strict=False)
    phases = [(max(burst.start_ms - end, 0.0), burst.volume_mbit, burst.gbps) for end, burst in bursts]
    remaining_ms = job.period_ms - edges_ms[-1]
    return (
        [*phases, (remaining_ms, 0.0, 0.0)] if remaining_ms > 1e-9 * job.period_ms or not phases else phases
    )


def _compute_offsets(groups: Sequence[Sequence[object]]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum([len(group) for group in groups])]).astype(np.int64)


def list_link_rates(result: ContentionResult, user_jobs: Sequence[int]) -> list[tuple[float, float, Floats]]:
    """Return begin, end and the rates of the jobs `user_jobs` for each interval of constant rates."""
    intervals_ms = pairwise(result.times_ms)
    return [
        (begin, end, row[list(user_jobs)])
        for (begin, end), row in zip(intervals_ms, result.rates_gbps, strict=False)
        if end > begin
    ]


def sweep(
    periods_ms: ArrayLike,
    fractions: ArrayLike,
    weights: ArrayLike = 1.0,
    *,
    slope: float = 0.0,
    intercept: float = 1.0,
    starts_ms: ArrayLike = 0.0,
    iterations: int = 300,
    warm_up_count: int = 100,
) -> Floats:
    """Return the mean iteration times, (..., jobs), of jobs that compute, then send at full rate on one link.

    The last axis of each array is the jobs; the arrays are broadcast against each other. The first `warm_up_count` of
    `iterations` do not count.

    >>> sweep([100.0, 100.0], [[0.3, 0.3], [0.4, 0.4]]).round(6).tolist()
    [[130.0, 130.0], [140.0, 140.0]]
    """
    columns = np.broadcast_arrays(
        *(np.asarray(column_values, float) for column_values in (periods_ms, fractions, weights, starts_ms))
    )
    shape = columns[0].shape
    rows = np.stack([column.reshape(-1, shape[-1]) for column in columns], axis=1)
    means = np.empty((len(rows), shape[-1]))
    for index, (periods, shares_of_period, job_weights, starts) in enumerate(rows):
        jobs = [
            compute_then_send(str(n), *pair)
            for n, pair in enumerate(zip(periods, shares_of_period, strict=True))
        ]
        sharing = Sharing(tuple(job_weights), slope=slope, intercept=intercept)
        result = simulate(jobs, [1.0], iterations, sharing, Setting(starts_ms=tuple(starts)))
        means[index] = result.compute_mean_ms(warm_up_count)
    return means.reshape(shape)
