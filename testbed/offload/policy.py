"""Algorithm 1 of FastFlow (PVLDB 16(5), 2023, section 4): which part of an input pipeline runs elsewhere, and how much.

Pure: rates in, a decision out. Rates are in one unit of the caller's choice (samples or bytes a second), processor time
in another; only ratios of each matter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from testbed.errors import OffloadError

CANDIDATES: Mapping[str, str] = {
    "p1": "read here, transform elsewhere, batch here",
    "p2": "read and transform elsewhere, batch here",
    "p3": "read, transform and batch elsewhere",
}
"""The candidate pipelines, and what of the work each does elsewhere."""

THRESHOLD = 1.1
"""Least speed-up for which offloading is worth it (the paper: gains below 10 % are left alone)."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate pipeline with all data offloaded: its rate, and the trainer's processor time."""

    rthp: float
    ocycle: float

    def __post_init__(self) -> None:
        """Raise `OffloadError` for what is not a measured value."""
        _check_measured("rthp", self.rthp)
        _check_measured("ocycle", self.ocycle)


@dataclass(frozen=True, slots=True)
class Metrics:
    """The five metrics of a pipeline and a model: Gthp, Lthp, Pcycle, and Rthp and Ocycle of each candidate.

    `gthp` is the rate of the model alone, `lthp` that of pipeline and model on the trainer, `pcycle` the trainer's
    processor time without offloading. `workers` is the number of workers with which the candidates were measured.
    """

    gthp: float
    lthp: float
    pcycle: float
    candidates: Mapping[str, Candidate] = field(default_factory=dict)
    workers: int = 1

    def __post_init__(self) -> None:
        """Raise `OffloadError` for what is not a measured value, unknown candidates and no workers."""
        _check_measured("gthp", self.gthp)
        _check_measured("lthp", self.lthp)
        _check_measured("pcycle", self.pcycle)
        if self.pcycle <= 0:
            raise OffloadError(f"pcycle is {self.pcycle:g}: a pipeline takes processor time; measure it")
        unknown = sorted(set(self.candidates) - set(CANDIDATES))
        if unknown:
            raise OffloadError(f"unknown candidate {unknown[0]!r}; known: {', '.join(CANDIDATES)}")
        if self.workers < 1:
            raise OffloadError(f"{self.workers} workers: candidates need 1 or more")

    def estimate(self, name: str) -> float:
        """Return the rate that a candidate promises: what the trainer still does, and what the workers do.

        >>> Metrics(100, 50, 1.0, {"p2": Candidate(70, 0.2)}).estimate("p2")
        110.0
        """
        return self.lthp * (1 - self.overhead(name)) + self.candidates[name].rthp

    def overhead(self, name: str) -> float:
        """Return the trainer's processor time with a candidate as a share of that without, Ocycle / Pcycle."""
        return self.candidates[name].ocycle / self.pcycle


@dataclass(frozen=True, slots=True)
class Decision:
    """The candidate to run (None: no offload), the share of data that goes to workers, and how many of these."""

    candidate: str | None
    ratio: float
    workers: int
    reasons: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return the decision as programs get it."""
        return {
            "choice": self.candidate,
            "ratio": self.ratio,
            "workers": self.workers,
            "reasons": list(self.reasons),
        }


def decide(metrics: Metrics, threshold: float = THRESHOLD) -> Decision:
    """Return which candidate to run and how much of the data it takes, with the reasons in words.

    The paper's five vectors are tests; this is the second:

    >>> found = decide(
    ...     Metrics(
    ...         100,
    ...         50,
    ...         1.0,
    ...         {"p1": Candidate(40, 0.4), "p2": Candidate(70, 0.2), "p3": Candidate(65, 0.1)},
    ...     )
    ... )
    >>> found.candidate, found.ratio, found.workers
    ('p2', 0.7, 1)
    """
    if not (math.isfinite(threshold) and threshold >= 1):
        raise OffloadError(f"threshold {threshold:g}: give a speed-up of 1 or more")
    gthp, lthp = metrics.gthp, metrics.lthp
    if gthp <= lthp:
        return _none(f"the trainer's own pipeline keeps up: {lthp:.4g} of {gthp:.4g} that the model takes")
    if lthp > 0 and gthp / lthp < threshold:
        return _none(
            f"the model alone is {gthp / lthp:.3g} times as fast as with its pipeline, below {threshold:g}"
        )
    if not metrics.candidates:
        return _none(f"the pipeline gives {lthp:.4g} of {gthp:.4g}, and no candidate was measured")
    name = max(sorted(metrics.candidates), key=metrics.estimate)
    upper = metrics.candidates[name].rthp
    lower = (gthp - lthp) * (1 + metrics.overhead(name))
    is_enough = lower < upper
    # Where workers are too slow for all, they get the share with which they and the trainer end at the same time.
    share = upper / (lthp + upper) if upper > 0 else 0.0
    ratio = upper / gthp if is_enough else share
    return Decision(
        candidate=name,
        # Noise of a measurement can make workers look faster than the model.
        ratio=min(1.0, max(0.0, ratio)),
        workers=_workers(lower, upper / metrics.workers),
        reasons=tuple(_reasons(metrics, name, lower, is_enough=is_enough)),
    )


def _none(reason: str) -> Decision:
    return Decision(None, 0.0, 0, (f"no offload: {reason}",))


def _workers(lower: float, rthp_of_one: float) -> int:
    """Return how many workers carry what is missing; what stands still gets one to be measured with again."""
    needed = lower / rthp_of_one if rthp_of_one > 0 else math.inf
    return max(1, math.ceil(needed)) if math.isfinite(needed) else 1


def _reasons(metrics: Metrics, name: str, lower: float, *, is_enough: bool) -> Iterator[str]:
    gthp, lthp, upper = metrics.gthp, metrics.lthp, metrics.candidates[name].rthp
    ratio = "" if lthp <= 0 else f", a factor of {gthp / lthp:.3g}"
    yield f"the model takes {gthp:.4g} a second and its pipeline gives {lthp:.4g}{ratio}"
    for other in sorted(metrics.candidates):
        candidate = metrics.candidates[other]
        yield (
            f"{other} ({CANDIDATES[other]}): {candidate.rthp:.4g} from workers at {metrics.overhead(other):.0%} of the"
            f" trainer's processor time, {metrics.estimate(other):.4g} together"
        )
    yield f"{name} promises most"
    if is_enough:
        yield f"workers give {upper:.4g} and {lower:.4g} is missing: as much as they can goes there"
    else:
        yield f"workers give {upper:.4g} of {lower:.4g} that is missing: both sides end at the same time"
    if metrics.estimate(name) <= lthp:
        yield (
            f"no gain is promised, {metrics.estimate(name):.4g} for {lthp:.4g}: sending costs the trainer what it"
            " saves; take batch-wise offloading or faster workers"
        )


def _check_measured(name: str, value: object) -> None:
    if not isinstance(value, Real) or not math.isfinite(value) or value < 0:
        raise OffloadError(f"{name} is {value!r}: give a measured number, 0 or more")
