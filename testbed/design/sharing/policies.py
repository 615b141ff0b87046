"""Iteration times of jobs under a policy on hosts, by the contention model: as many iterations as are measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sim.models.contention.job import PeriodicJob, Sharing
from sim.models.contention.simulation import Holding, Setting
from testbed.design.sharing.cassini.prediction import run_policy

__all__ = ["PolicyPrediction", "predicted_under"]


@dataclass(frozen=True, slots=True)
class PolicyPrediction:
    """Mean and 99th percentile of a job's iteration times; ms."""

    job: str
    mean_ms: float
    p99_ms: float


def predicted_under(
    jobs: Sequence[PeriodicJob],
    capacities_gbps: Sequence[float],
    iterations: int,
    weights: Sequence[float] = (),
    mltcp: tuple[float, float] | None = None,
    starts_ms: Sequence[float] = (),
    slots_ms: Sequence[float] = (),
) -> list[PolicyPrediction]:
    """Return what the model says: shared by weights, or with MLTCP's slope and intercept, or held to slots."""
    slope, intercept = mltcp or (0.0, 1.0)
    sharing = Sharing(tuple(weights), slope=slope, intercept=intercept)
    holding = Holding(tuple(slots_ms), most_alignments=0) if slots_ms else None
    done = run_policy(jobs, capacities_gbps, sharing, Setting(tuple(starts_ms), holding), iterations)
    rows = zip(jobs, done.mean_ms(), done.p99_ms(), strict=True)
    return [PolicyPrediction(job.name, float(mean), float(high)) for job, mean, high in rows]
