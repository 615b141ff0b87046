"""A periodic job as bursts within its period, and the rule of sharing links."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


def _check_positive(quantity: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{quantity} is {value:g}: give a number above 0")


@dataclass(frozen=True, slots=True)
class Burst:
    """A period of communication within an iteration, at a rate of at most `gbps`."""

    start_ms: float
    length_ms: float
    gbps: float

    @property
    def end_ms(self) -> float:
        """End of the burst if no other job uses its links."""
        return self.start_ms + self.length_ms

    @property
    def volume_mbit(self) -> float:
        """Volume of the burst; on shared links it takes longer, but the volume is the same."""
        return self.length_ms * self.gbps


@dataclass(frozen=True, slots=True)
class PeriodicJob:
    """A training job: `period_ms` is the iteration time without other jobs, all bursts use all `links`.

    The job computes between bursts. Raise `ValueError` for a period or burst that is not positive, and for bursts
    that overlap, are not in order, or end after the period.
    """

    name: str
    period_ms: float
    bursts: tuple[Burst, ...]
    links: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        _check_positive(f"the period of job {self.name!r}", self.period_ms)
        for number, burst in enumerate(self.bursts, 1):
            _check_positive(f"the length of burst {number} of job {self.name!r}", burst.length_ms)
            _check_positive(f"the rate of burst {number} of job {self.name!r}", burst.gbps)
        self._check_order()

    @property
    def volume_mbit(self) -> float:
        """Volume per iteration."""
        return sum(burst.volume_mbit for burst in self.bursts)

    @property
    def communication_fraction(self) -> float:
        """Share of the period in which the job communicates."""
        return sum(burst.length_ms for burst in self.bursts) / self.period_ms

    def _check_order(self) -> None:
        edges_ms = [0.0, *(edge for burst in self.bursts for edge in (burst.start_ms, burst.end_ms))]
        slack_ms = 1e-9 * self.period_ms
        if not all(math.isfinite(edge) for edge in edges_ms) or any(
            after < before - slack_ms for before, after in pairwise([*edges_ms, self.period_ms])
        ):
            raise ValueError(
                f"the bursts of job {self.name!r} overlap or leave its period of {self.period_ms:g} ms: "
                "give them in order, each after the end of the one before"
            )


@dataclass(frozen=True, slots=True)
class Sharing:
    """A rule of sharing links: weighted max-min rates within classes of priority.

    The weight of a job is `weights[job] * (slope * x + intercept)`, where x is the share of the iteration's bytes that
    the job has sent; the factor is MLTCP's function F. Higher `priorities` come first. The default is fair sharing.
    """

    weights: tuple[float, ...] = ()
    priorities: tuple[int, ...] = ()
    slope: float = 0.0
    intercept: float = 1.0

    def __post_init__(self) -> None:
        for number, weight in enumerate(self.weights, 1):
            _check_positive(f"weight {number}", weight)
        _check_positive("the intercept", self.intercept)
        if not (math.isfinite(self.slope) and self.slope >= 0):
            raise ValueError(f"the slope is {self.slope:g}: give 0 or more")


FAIR = Sharing()
MLTCP = Sharing(slope=1.75, intercept=0.25)
"""MLTCP with the constants of its paper, from memory: no accessible source confirms them."""


def compute_then_send(name: str, period_ms: float, fraction: float, gbps: float = 1.0) -> PeriodicJob:
    """Return a job that computes, then sends at `gbps` for `fraction` of its period.

    >>> compute_then_send("a", 100, 0.3).bursts
    (Burst(start_ms=70.0, length_ms=30.0, gbps=1.0),)
    """
    length_ms = period_ms * fraction
    bursts = (Burst(period_ms - length_ms, length_ms, gbps),) if fraction else ()
    return PeriodicJob(name, period_ms, bursts)


def check_lengths(jobs: Sequence[PeriodicJob], **columns: Sequence[float]) -> None:
    """Raise `ValueError` for a column whose length is neither 0 nor the number of jobs."""
    for name, column in columns.items():
        if len(column) not in (0, len(jobs)):
            raise ValueError(f"{len(column)} {name} for {len(jobs)} jobs: give one per job")
