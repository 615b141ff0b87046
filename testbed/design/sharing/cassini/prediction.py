"""Iteration times of jobs by the contention model: alone, with fair sharing, shifted, and under a host policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from sim.models.contention.job import FAIR, PeriodicJob, Sharing
from sim.models.contention.simulation import Contention, Floats, Holding, Setting, simulate

ITERATIONS = 600
MIN_ITERATIONS = 150
WARM_UP = 60
JOB_ITERATIONS = 200_000
"""Maximum number of simulated iterations, summed over all jobs."""
STRETCH_COUNT = 10
TRIAL_ITERATIONS = 60
SLOW_PERIODS = 20
"""Simulated periods of the slowest job, if it is slower than another by at least `SLOW_RATIO`, as with checkpoints."""
SLOW_RATIO = 10


@dataclass(frozen=True, slots=True)
class Prediction:
    """Mean iteration time of a job alone, with fair sharing, and shifted. `slot_ms` is the shifted job's period."""

    job: str
    solo_ms: float
    fair_ms: float
    shifted_ms: float
    slot_ms: float


def predict(
    jobs: Sequence[PeriodicJob], capacities_gbps: Sequence[float], starts_ms: Mapping[str, float]
) -> list[Prediction]:
    """Return the prediction for each job. Jobs that share no links, even indirectly, are simulated separately.

    If bursts collide at all shifts, the periods of a group are stretched by a common factor that minimises the mean
    ratio of shifted to solo times.
    """
    predictions: dict[str, Prediction] = {}
    iterations = max(MIN_ITERATIONS, min(ITERATIONS, JOB_ITERATIONS // max(len(jobs), 1)))
    for group in group_by_links(jobs):
        group_predictions = _predict_group(group, capacities_gbps, starts_ms, iterations)
        predictions |= {prediction.job: prediction for prediction in group_predictions}
    return [predictions[job.name] for job in jobs]


def group_by_links(jobs: Sequence[PeriodicJob]) -> list[list[PeriodicJob]]:
    """Return the jobs in groups that share links, directly or indirectly."""
    groups: list[tuple[set[int], list[PeriodicJob]]] = []
    for job in jobs:
        links, members = set(job.links), [job]
        separate = []
        for group in groups:
            if group[0] & links:
                links |= group[0]
                members = group[1] + members
            else:
                separate.append(group)
        groups = [*separate, (links, members)]
    return [members for _, members in groups]


def run_policy(
    jobs: Sequence[PeriodicJob],
    capacities_gbps: Sequence[float],
    sharing: Sharing = FAIR,
    setting: Setting | None = None,
    iterations: int | Sequence[int] = ITERATIONS,
) -> Contention:
    """Return the simulation of jobs on the links that they use."""
    used = sorted({link for job in jobs for link in job.links})
    link_index = {link: index for index, link in enumerate(used)}
    renumbered = [replace(job, links=tuple(link_index[link] for link in job.links)) for job in jobs]
    return simulate(renumbered, [capacities_gbps[link] for link in used], iterations, sharing, setting)


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
        Holding(stretched_periods, most_alignments=0),
        trace_rows=trace_rows,
    )


def count_iterations(jobs: Sequence[PeriodicJob], iterations: int, periods: int) -> list[int]:
    """Return how many iterations of each job to simulate.

    It is `iterations` if all periods are similar. If one job is much slower, all jobs are simulated for the same time:
    `periods` of the slowest job or `iterations` of the fastest, whichever is longer. Otherwise all iterations of a fast
    job could fall between two checkpoints, or into a single one.

    >>> from sim.models.contention.job import compute_then_send
    >>> count_iterations([compute_then_send("a", 300, 0.5), compute_then_send("save", 60_000, 0.1)], 600, 20)
    [4000, 20]
    """
    periods_ms = [job.period_ms for job in jobs]
    if max(periods_ms) < SLOW_RATIO * min(periods_ms):
        return [iterations] * len(jobs)
    time_ms = max(periods * max(periods_ms), iterations * min(periods_ms))
    return [ceil(time_ms / period_ms) for period_ms in periods_ms]


def _predict_group(
    group: Sequence[PeriodicJob],
    capacities_gbps: Sequence[float],
    starts_ms: Mapping[str, float],
    iterations: int,
) -> list[Prediction]:
    solo = np.concatenate([run_policy([job], capacities_gbps, iterations=2).mean_ms() for job in group])
    if len(group) == 1:
        return [Prediction(group[0].name, *([float(solo[0])] * 4))]
    counts = count_iterations(group, iterations, SLOW_PERIODS)
    fair = run_policy(group, capacities_gbps, iterations=counts).mean_ms(WARM_UP)
    group_starts_ms = [starts_ms[job.name] for job in group]
    stretches = np.linspace(1.0, max(float((fair / solo).max()), 1.0), STRETCH_COUNT)
    stretch = _choose_stretch(group, capacities_gbps, group_starts_ms, solo, stretches)
    setting = make_shifted_setting(group_starts_ms, solo, stretch)
    shifted = run_policy(group, capacities_gbps, setting=setting, iterations=counts).mean_ms(WARM_UP)
    return [
        Prediction(job.name, *map(float, (solo_ms, fair_ms, shifted_ms, solo_ms * stretch)))
        for job, solo_ms, fair_ms, shifted_ms in zip(group, solo, fair, shifted, strict=True)
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
    counts = count_iterations(group, TRIAL_ITERATIONS, SLOW_PERIODS)
    for stretch in stretches:
        setting = make_shifted_setting(starts_ms, solo_ms, float(stretch))
        contention = run_policy(group, capacities_gbps, setting=setting, iterations=counts)
        ratios.append(round(float((contention.mean_ms(TRIAL_ITERATIONS // 2) / solo_ms).mean()), 6))
        if ratios[-1] <= 1:
            break
    return float(stretches[int(np.argmin(ratios))])


@dataclass(frozen=True, slots=True)
class PolicyPrediction:
    """Mean and 99th percentile of a job's iteration times, in ms."""

    job: str
    mean_ms: float
    p99_ms: float


def predict_under(
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
    holding = Holding(tuple(slots_ms), most_alignments=0) if slots_ms else None
    contention = run_policy(jobs, capacities_gbps, sharing, Setting(tuple(starts_ms), holding), iterations)
    rows = zip(jobs, contention.mean_ms(), contention.p99_ms(), strict=True)
    return [PolicyPrediction(job.name, float(mean), float(high)) for job, mean, high in rows]
