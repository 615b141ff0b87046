"""Algorithm 1 of FastFlow (PVLDB 16(5), 2023, section 4): which part of an input pipeline to offload, and how much.

All rates have one unit (samples or bytes per second), and all processor times another. Only ratios matter.
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
"""The candidate pipelines: "here" is the trainer, "elsewhere" a worker."""

MIN_SPEEDUP = 1.1
"""Smallest speed-up for which to offload (the paper ignores gains below 10 %)."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Measurement of a candidate with all data offloaded.

    `rthp` is the throughput of the workers (remote throughput). `ocycle` is the trainer's processor time meanwhile.
    """

    rthp: float
    ocycle: float

    def __post_init__(self) -> None:
        """Raise `OffloadError` if a value is not a finite number of at least 0."""
        _check_measured("rthp", self.rthp)
        _check_measured("ocycle", self.ocycle)


@dataclass(frozen=True, slots=True)
class Metrics:
    """The five metrics of a pipeline and a model, with the names of the paper. Two of them are in `candidates`.

    `gthp` is the throughput of the model alone. `lthp` is the local throughput, of pipeline and model on the trainer.
    `pcycle` is the trainer's processor time without offloading. The candidates were measured with `workers` workers.
    """

    gthp: float
    lthp: float
    pcycle: float
    candidates: Mapping[str, Candidate] = field(default_factory=dict)
    workers: int = 1

    def __post_init__(self) -> None:
        """Raise `OffloadError` for invalid values, for unknown candidates, and for fewer workers than one."""
        _check_measured("gthp", self.gthp)
        _check_measured("lthp", self.lthp)
        _check_measured("pcycle", self.pcycle)
        if self.pcycle <= 0:
            raise OffloadError(f"pcycle is {self.pcycle:g}: a pipeline always takes processor time")
        unknown_names = sorted(set(self.candidates) - set(CANDIDATES))
        if unknown_names:
            raise OffloadError(f"unknown candidate {unknown_names[0]!r}; known: {', '.join(CANDIDATES)}")
        if self.workers < 1:
            raise OffloadError(f"{self.workers} workers: candidates need 1 or more")

    def estimate(self, name: str) -> float:
        """Return the estimated rate of a candidate: the trainer's remaining rate plus the rate of the workers.

        >>> Metrics(100, 50, 1.0, {"p2": Candidate(70, 0.2)}).estimate("p2")
        110.0
        """
        return self.lthp * (1 - self.estimate_overhead(name)) + self.candidates[name].rthp

    def estimate_overhead(self, name: str) -> float:
        """Return the trainer's processor time with a candidate, divided by its time without offloading."""
        return self.candidates[name].ocycle / self.pcycle


@dataclass(frozen=True, slots=True)
class Decision:
    """The candidate to run (None: no offload), the fraction of the data for workers, and the number of workers."""

    candidate: str | None
    ratio: float
    workers: int
    reasons: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the decision as plain values, for JSON."""
        return {
            "choice": self.candidate,
            "ratio": self.ratio,
            "workers": self.workers,
            "reasons": list(self.reasons),
        }


def decide(metrics: Metrics, threshold: float = MIN_SPEEDUP) -> Decision:
    """Decide which candidate to run, on which fraction of the data, and give the reasons in words.

    Raises `OffloadError` for a threshold below 1. The second of the paper's five numerical examples:

    >>> decision = decide(
    ...     Metrics(
    ...         100,
    ...         50,
    ...         1.0,
    ...         {"p1": Candidate(40, 0.4), "p2": Candidate(70, 0.2), "p3": Candidate(65, 0.1)},
    ...     )
    ... )
    >>> decision.candidate, decision.ratio, decision.workers
    ('p2', 0.7, 1)
    """
    if not (math.isfinite(threshold) and threshold >= 1):
        raise OffloadError(f"threshold {threshold:g}: give a speed-up of 1 or more")
    gthp, lthp = metrics.gthp, metrics.lthp
    if gthp <= lthp:
        return _make_no_offload(
            f"the trainer's own pipeline is fast enough: it delivers {lthp:.4g} of {gthp:.4g}"
        )
    if lthp > 0 and gthp / lthp < threshold:
        return _make_no_offload(
            f"the model alone is {gthp / lthp:.3g} times as fast as with its pipeline, below {threshold:g}"
        )
    if not metrics.candidates:
        return _make_no_offload(
            f"the pipeline delivers {lthp:.4g} of {gthp:.4g}, but no candidate was measured"
        )
    name = max(sorted(metrics.candidates), key=metrics.estimate)
    max_offloaded_rate = metrics.candidates[name].rthp
    min_offloaded_rate = (gthp - lthp) * (1 + metrics.estimate_overhead(name))
    is_enough = min_offloaded_rate < max_offloaded_rate
    # Workers that cannot supply the missing rate get the share at which both sides finish at the same time.
    offloaded_share = max_offloaded_rate / (lthp + max_offloaded_rate) if max_offloaded_rate > 0 else 0.0
    ratio = max_offloaded_rate / gthp if is_enough else offloaded_share
    return Decision(
        candidate=name,
        # Measurement noise can make workers seem faster than the model.
        ratio=min(1.0, max(0.0, ratio)),
        workers=_count_workers(min_offloaded_rate, max_offloaded_rate / metrics.workers),
        reasons=tuple(_explain(metrics, name, min_offloaded_rate, is_enough=is_enough)),
    )


def _make_no_offload(reason: str) -> Decision:
    return Decision(None, 0.0, 0, (f"no offload: {reason}",))


def _count_workers(min_offloaded_rate: float, rthp_per_worker: float) -> int:
    """Return how many workers supply the missing rate. It is 1 for a rate of 0, so that it can be measured again."""
    worker_count = min_offloaded_rate / rthp_per_worker if rthp_per_worker > 0 else math.inf
    return max(1, math.ceil(worker_count)) if math.isfinite(worker_count) else 1


def _explain(metrics: Metrics, name: str, min_offloaded_rate: float, *, is_enough: bool) -> Iterator[str]:
    gthp, lthp, max_offloaded_rate = metrics.gthp, metrics.lthp, metrics.candidates[name].rthp
    ratio_text = "" if lthp <= 0 else f", a factor of {gthp / lthp:.3g}"
    yield f"the model takes {gthp:.4g} per second and its pipeline delivers {lthp:.4g}{ratio_text}"
    for other_name in sorted(metrics.candidates):
        candidate = metrics.candidates[other_name]
        yield (
            f"{other_name} ({CANDIDATES[other_name]}): {candidate.rthp:.4g} from workers at"
            f" {metrics.estimate_overhead(other_name):.0%} of the trainer's processor time,"
            f" {metrics.estimate(other_name):.4g} together"
        )
    yield f"{name} has the highest estimate"
    if is_enough:
        yield (
            f"workers deliver {max_offloaded_rate:.4g} and {min_offloaded_rate:.4g} is missing: "
            "they get as much as they can process"
        )
    else:
        yield (
            f"workers deliver {max_offloaded_rate:.4g} of the missing {min_offloaded_rate:.4g}: "
            "both sides finish at the same time"
        )
    if metrics.estimate(name) <= lthp:
        yield (
            f"no gain is expected, {metrics.estimate(name):.4g} instead of {lthp:.4g}: sending costs the trainer what"
            " it saves; offload whole batches, or use faster workers"
        )


def _check_measured(name: str, value: object) -> None:
    if not isinstance(value, Real) or not math.isfinite(value) or value < 0:
        raise OffloadError(f"{name} is {value!r}: give a measured number, 0 or more")
