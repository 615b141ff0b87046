"""Iteration times of jobs by the contention model: alone, with fair sharing, shifted, and under a host policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from sim.models.contention.job import FAIR, PeriodicJob, Sharing
from sim.models.contention.simulation import ContentionResult, Floats, Holding, Setting, simulate

MAX_ITERATIONS = 600
MIN_ITERATIONS = 150
WARM_UP_ITERATIONS = 60
MAX_JOB_ITERATIONS = 200_000
"""Maximum number of simulated iterations, summed over all jobs."""
STRETCH_COUNT = 10
TRIAL_ITERATIONS = 60
SLOW_JOB_PERIODS = 20
"""Simulated periods of the slowest job, if it is slower than another by `MIN_SLOW_RATIO` or more (checkpoints)."""
MIN_SLOW_RATIO = 10


@dataclass(frozen=True, slots=True)
class Prediction:
    """Mean iteration time of a job alone, with fair sharing, and shifted. `slot_ms` is the shifted job's period."""

    job: str
    solo_ms: float
    fair_ms: float
    shifted_ms: float
    slot_ms: float


def predict_iteration_times(
    jobs: Sequence[PeriodicJob], capacities_gbps: Sequence[float], starts_ms: Mapping[str, float]
) -> list[Prediction]:
    """Return the prediction for each job. Jobs that share no links, even indirectly, are simulated separately.

    If bursts collide at all shifts, the periods of a group are stretched by a common factor that minimises the mean
    ratio of shifted to solo times.
    """
    predictions: dict[str, Prediction] = {}
    iterations = max(MIN_ITERATIONS, min(MAX_ITERATIONS, MAX_JOB_ITERATIONS // max(len(jobs), 1)))
    for group in group_by_links(jobs):
        group_predictions = _predict_group(group, capacities_gbps, starts_ms, iterations)
        predictions |= {prediction.job: prediction for prediction in group_predictions}
    return [predictions[job.name] for job in jobs]


def group_by_links(jobs: Sequence[PeriodicJob]) -> list[list[PeriodicJob]]:
    """Return the jobs in groups that share links, directly or indirectly."""
    groups: list[tuple[set[int], list[PeriodicJob]]] = []
    for job in jobs:
        links, members = set(job.links), [job]
        separate_groups = []
        for group in groups:
            if group[0] & links:
                links |= group[0]
                members = group[1] + members
            else:
                separate_groups.append(group)
        groups = [*separate_groups, (links, members)]
    return [members for _, members in groups]


def simulate_policy(
    jobs: Sequence[PeriodicJob],
    capacities_gbps: Sequence[float],
    sharing: Sharing = FAIR,
    setting: Setting | None = None,
    iterations: int | Sequence[int] = MAX_ITERATIONS,
) -> ContentionResult:
    """Return the simulation of jobs on the links that they use."""
    used_links = sorted({link for job in jobs for link in job.links})
    link_index = {link: index for index, link in enumerate(used_links)}
    renumbered_jobs = [replace(job, links=tuple(link_index[link] for link in job.links)) for job in jobs]
    return simulate(
        renumbered_jobs, [capacities_gbps[link] for link in used_links], iterations, sharing, setting
    )


def make_shifted_setting(
    starts_ms: Sequence[float], periods_ms: Sequence[float] | Floats, stretch: float, trace_rows: int = 0
) -> Setting:
    """Return the setting of jobs with scheduled starts and periods, both stretched by a factor.

    A late job begins immediately instead of waiting for its next slot. Waiting would help to recover from disturbances,
    which the model does not have.
    """
    stretched_periods = tuple(float(period) * stretch for period in periods_ms)
    return Setting(
        tuple(start * stretch for start in starts_ms),
        Holding(stretched_periods, max_alignments=0),
        max_trace_rows=trace_rows,
    )


def count_iterations(jobs: Sequence[PeriodicJob], iteration_count: int, period_count: int) -> list[int]:
    """Return how many iterations of each job to simulate.

    The number is `iteration_count` if all periods are similar. If one job is much slower, all jobs are simulated for
    the same time: `period_count` of the slowest job or `iteration_count` of the fastest, whichever is longer.
    Otherwise all iterations of a fast job could fall between two checkpoints, or into a single one.

    >>> from sim.models.contention.job import compute_then_send
    >>> count_iterations([compute_then_send("a", 300, 0.5), compute_then_send("save", 60_000, 0.1)], 600, 20)
    [4000, 20]
    """
    periods_ms = [job.period_ms for job in jobs]
    if max(periods_ms) < MIN_SLOW_RATIO * min(periods_ms):
        return [iteration_count] * len(jobs)
    time_ms = max(period_count * max(periods_ms), iteration_count * min(periods_ms))
    return [ceil(time_ms / period_ms) for period_ms in periods_ms]


def _predict_group(
    group: Sequence[PeriodicJob],
    capacities_gbps: Sequence[float],
    starts_ms: Mapping[str, float],
    iterations: int,
) -> list[Prediction]:
    solo_ms_by_job = np.concatenate(
        [simulate_policy([job], capacities_gbps, iterations=2).compute_mean_ms() for job in group]
    )
    if len(group) == 1:
        return [Prediction(group[0].name, *([float(solo_ms_by_job[0])] * 4))]
    iteration_counts = count_iterations(group, iterations, SLOW_JOB_PERIODS)
    fair_ms_by_job = simulate_policy(group, capacities_gbps, iterations=iteration_counts).compute_mean_ms(
        WARM_UP_ITERATIONS
    )
    group_starts_ms = [starts_ms[job.name] for job in group]
    stretches = np.linspace(1.0, max(float((fair_ms_by_job / solo_ms_by_job).max()), 1.0), STRETCH_COUNT)
    stretch = _choose_stretch(group, capacities_gbps, group_starts_ms, solo_ms_by_job, stretches)
    setting = make_shifted_setting(group_starts_ms, solo_ms_by_job, stretch)
    shifted_ms_by_job = simulate_policy(
        group, capacities_gbps, setting=setting, iterations=iteration_counts
    ).compute_mean_ms(WARM_UP_ITERATIONS)
    return [
        Prediction(job.name, *map(float, (solo_ms, fair_ms, shifted_ms, solo_ms * stretch)))
        for job, solo_ms, fair_ms, shifted_ms in zip(
            group, solo_ms_by_job, fair_ms_by_job, shifted_ms_by_job, strict=True
        )
    ]


def _choose_stretch(
    group: Sequence[PeriodicJob],
    capacities_gbps: Sequence[float],
    starts_ms: Sequence[float],
    solo_ms: Floats,
    stretches: Floats,
) -> float:
    """Return the smallest stretch that minimises the mean ratio of shifted to solo times."""
    ratios: list[float] = []
    counts = count_iterations(group, TRIAL_ITERATIONS, SLOW_JOB_PERIODS)
    for stretch in stretches:
        setting = make_shifted_setting(starts_ms, solo_ms, float(stretch))
        contention = simulate_policy(group, capacities_gbps, setting=setting, iterations=counts)
        ratios.append(round(float((contention.compute_mean_ms(TRIAL_ITERATIONS // 2) / solo_ms).mean()), 6))
        if ratios[-1] <= 1:
            break
    return float(stretches[int(np.argmin(ratios))])


@dataclass(frozen=True, slots=True)
class PolicyPrediction:
    """Mean and 99th percentile of a job's iteration times, in ms."""

    job: str
    mean_ms: float
    p99_ms: float


def predict_policy(
    jobs: Sequence[PeriodicJob],
    capacities_gbps: Sequence[float],
    iterations: int,
    weights: Sequence[float] = (),
    mltcp: tuple[float, float] | None = None,
    starts_ms: Sequence[float] = (),
    slots_ms: Sequence[float] = (),
) -> list[PolicyPrediction]:
    """Return the prediction for each job under a policy: weights, MLTCP's (slope, intercept), or slots as periods."""
    slope, intercept = mltcp or (0.0, 1.0)
    sharing = Sharing(tuple(weights), slope=slope, intercept=intercept)
    holding = Holding(tuple(slots_ms), max_alignments=0) if slots_ms else None
    contention = simulate_policy(
        jobs, capacities_gbps, sharing, Setting(tuple(starts_ms), holding), iterations
    )
    rows = zip(jobs, contention.compute_mean_ms(), contention.compute_p99_ms(), strict=True)
    return [PolicyPrediction(job.name, float(mean), float(p99)) for job, mean, p99 in rows]
