"""Jobs and policies of the figures on sharing, and the length of the simulations.

| setting | value | source |
|---|---|---|
| period, link, queue | 300 ms, 100 Mbit/s, 16 packets | the acceptance criteria of the simulated hosts |
| communication fractions | pairs 0.3, 0.5, 0.7; triples 0.3, 0.5 | compatible up to a sum of 1 |
| weights | 3 for the first job, 1 for the others | a pair shares a link 75 to 25 (HTB) |
| slope, intercept of MLTCP | 1.75, 0.25 | quoted from memory of the paper; no public source confirms them |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from testbed.design.sharing.jobs import Burst, SharedJob

Policy = Literal["fair", "weights", "shifts", "mltcp"]
POLICIES: tuple[Policy, ...] = ("fair", "weights", "shifts", "mltcp")
PERIOD_MS = 300.0
STAGGER_MS = 3.0
SLOPE, INTERCEPT = 1.75, 0.25
FIRST_JOB_WEIGHT = 3.0


@dataclass(frozen=True, slots=True)
class JobStatistics:
    """Mean and 99th percentile of a job's iteration times, and its retransmitted packets (None if not modelled)."""

    job: str
    mean_ms: float
    p99_ms: float
    retransmitted: int | None


@dataclass(frozen=True, slots=True)
class JobSet:
    """Jobs with the same period. Each sends at the end of the period, for its fraction of that period."""

    fractions: tuple[float, ...]

    @property
    def name(self) -> str:
        """Fractions joined by " + "."""
        return " + ".join(f"{fraction:g}" for fraction in self.fractions)

    @property
    def is_compatible(self) -> bool:
        """True if all bursts fit into one period."""
        return sum(self.fractions) <= 1 + 1e-9

    def make_jobs(self, rate_gbps: float, hosts: tuple[str, ...]) -> tuple[SharedJob, ...]:
        """Return the jobs on these hosts. Their bursts use the full rate of the link."""
        jobs = []
        for number, fraction in enumerate(self.fractions, 1):
            length_ms = PERIOD_MS * fraction
            burst = Burst(PERIOD_MS - length_ms, length_ms, rate_gbps)
            jobs.append(SharedJob(f"job {number}", PERIOD_MS, (burst,), hosts, len(hosts)))
        return tuple(jobs)


JOB_SETS = tuple(
    JobSet(fractions) for fractions in ((0.3,) * 2, (0.5,) * 2, (0.7,) * 2, (0.3,) * 3, (0.5,) * 3)
)
Measure = Callable[[JobSet, Policy], Sequence[JobStatistics]]


@dataclass(frozen=True, slots=True)
class Scale:
    """Iterations in the model and in the packet-level simulation. `measure` runs jobs on hosts, or is None."""

    iterations: int
    packet_iterations: int
    measure: Measure | None = None


PAPER = Scale(1000, 30)
QUICK = Scale(100, 4)
