"""A periodic job as bursts within its period, and the rule by which jobs share links."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


def _check_positive(what: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{what} is {value:g}: give a number above 0")


@dataclass(frozen=True, slots=True)
class Burst:
    """A time of communication within an iteration: `gbps` is the most that the job sends then."""

    start_ms: float
    length_ms: float
    gbps: float

    @property
    def end_ms(self) -> float:
        """End of the burst when nobody shares its links."""
        return self.start_ms + self.length_ms

    @property
    def volume_mbit(self) -> float:
        """Traffic of the burst; shared links stretch its length, never its volume."""
        return self.length_ms * self.gbps


@dataclass(frozen=True, slots=True)
class PeriodicJob:
    """A training job: `period_ms` is an iteration on links of its own, `links` are those that all its bursts use.

    Time between bursts is computation. Raises `ValueError` for a period or burst that is not positive, and for
    bursts that overlap or end after the period.
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
        """Traffic of an iteration."""
        return sum(burst.volume_mbit for burst in self.bursts)

    @property
    def fraction(self) -> float:
        """Share of the period in which the job communicates."""
        return sum(burst.length_ms for burst in self.bursts) / self.period_ms

    def _check_order(self) -> None:
        edges = [0.0, *(edge for burst in self.bursts for edge in (burst.start_ms, burst.end_ms))]
        slack = 1e-9 * self.period_ms
        if not all(math.isfinite(edge) for edge in edges) or any(
            after < before - slack for before, after in pairwise([*edges, self.period_ms])
        ):
            raise ValueError(
                f"the bursts of job {self.name!r} overlap or leave its period of {self.period_ms:g} ms: "
                "give them in order, each after the end of the one before"
            )


@dataclass(frozen=True, slots=True)
class Sharing:
    """The rule by which jobs share a link: max-min of rates over weights, within classes of priority.

    A job's weight is `weights[job] * (slope * x + intercept)`, x being the part of its iteration's bytes that is
    sent: MLTCP's function F. A higher class of `priorities` is served first. The default is fair.
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
"""MLTCP with the constants that are remembered of the paper; they were found in no source that can be read."""


def compute_then_send(name: str, period_ms: float, fraction: float, gbps: float = 1.0) -> PeriodicJob:
    """Return a job that computes, then sends at `gbps` for that fraction of its period.

    >>> compute_then_send("a", 100, 0.3).bursts
    (Burst(start_ms=70.0, length_ms=30.0, gbps=1.0),)
    """
    length_ms = period_ms * fraction
    bursts = (Burst(period_ms - length_ms, length_ms, gbps),) if fraction else ()
    return PeriodicJob(name, period_ms, bursts)


def check_lengths(jobs: Sequence[PeriodicJob], **columns: Sequence[float]) -> None:
    """Raise `ValueError` for a column that is neither empty nor as long as there are jobs."""
    for name, column in columns.items():
        if len(column) not in (0, len(jobs)):
            raise ValueError(f"{len(column)} {name} for {len(jobs)} jobs: give one per job")
