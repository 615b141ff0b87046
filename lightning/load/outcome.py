"""Outcome of a load: how many were answered, refused, lost, and how long answers took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.load.targets import LoadError

Nanoseconds = npt.NDArray[np.int64]

WAITING = -1
"""In an array of latencies: no answer came."""

PER_DECADE = 40
"""Buckets: a bucket's ends differ by 10^(1/40), 5.9 %."""


@dataclass(frozen=True)
class Traces:
    """Measurements of a driver, an entry a scheduled request."""

    latency: Nanoseconds
    """From the scheduled time to the answer, or to the refusal; `WAITING` where neither came."""
    lag: Nanoseconds
    """From the scheduled time to the time of sending; `WAITING` where it was never sent."""
    refusal: npt.NDArray[np.int32]
    """The code, or HTTP's status, of a refusal; 0 for an answer."""
    elapsed_s: float
    """From the start of the schedule to its last request, or to the last answer."""


def traces_of(
    due: Nanoseconds, latency: Nanoseconds, lag: Nanoseconds, refusal: npt.NDArray[np.int32]
) -> Traces:
    """Yield the traces, and note the time that it took."""
    done = latency != WAITING
    ends = [int(each.max()) for each in (due, (due + latency)[done]) if len(each)]
    return Traces(latency, lag, refusal, max(ends, default=0) / 1e9)


@dataclass(frozen=True)
class Outcome:
    """One load at one rate."""

    target: str
    rate: float
    """Requested rate, in requests per second."""
    seed: int
    traces: Traces = field(repr=False)
    deadline_us: int = 0
    """Answers that take longer are `late`; 0 for no deadline."""
    names: Mapping[int, str] = field(default_factory=dict, repr=False)
    """Of refusals."""

    @property
    def scheduled(self) -> int:
        """Requests."""
        return len(self.traces.latency)

    @property
    def sent(self) -> int:
        """Number of requests that were sent."""
        return int(np.count_nonzero(self.traces.lag != WAITING))

    @property
    def latencies_us(self) -> npt.NDArray[np.float64]:
        """Latencies of the answers in microseconds, ascending."""
        good = (self.traces.latency != WAITING) & (self.traces.refusal == 0)
        return np.asarray(np.sort(self.traces.latency[good]) / 1e3)

    @property
    def answered(self) -> int:
        """Number of answers that are not refusals."""
        return len(self.latencies_us)

    @property
    def refused(self) -> dict[str, int]:
        """Refusals by name."""
        codes, counts = np.unique(self.traces.refusal[self.traces.refusal != 0], return_counts=True)
        return {
            self.names.get(code, str(code)): count
            for code, count in zip(codes.tolist(), counts.tolist(), strict=True)
        }

    @property
    def lost(self) -> int:
        """Requests to which nothing came back."""
        return int(np.count_nonzero(self.traces.latency == WAITING))

    @property
    def loss(self) -> float:
        """The share that is lost."""
        return self.lost / self.scheduled if self.scheduled else 0.0

    @property
    def answered_per_s(self) -> float:
        """The rate at which answers came."""
        return self.answered / self.traces.elapsed_s if self.traces.elapsed_s else 0.0

    @property
    def late(self) -> int:
        """Answers that took longer than the deadline."""
        return int(np.count_nonzero(self.latencies_us > self.deadline_us)) if self.deadline_us else 0

    def percentile_us(self, percent: float) -> float:
        """Latency that this share of answers does not exceed; NaN without answers."""
        found = self.latencies_us
        return float(np.percentile(found, percent, method="higher")) if len(found) else float("nan")

    def lag_us(self, percent: float) -> float:
        """Return how far sending was behind the schedule: the generator's fault, or no connection was free."""
        sent = self.traces.lag[self.traces.lag != WAITING]
        return float(np.percentile(sent, percent, method="higher")) / 1e3 if len(sent) else float("nan")

    def figures(self) -> dict[str, Any]:
        """Return the figures for a JSON document; times in microseconds, None where there are none."""
        return {
            "rate": self.rate,
            "scheduled": self.scheduled,
            "sent": self.sent,
            "answered": self.answered,
            "answered_per_s": round(self.answered_per_s, 1),
            "refused": self.refused,
            "lost": self.lost,
            "loss": round(self.loss, 6),
            "late": self.late,
            "p50_us": _number(self.percentile_us(50)),
            "p99_us": _number(self.percentile_us(99)),
            "p999_us": _number(self.percentile_us(99.9)),
            "generator_lag_p99_us": _number(self.lag_us(99)),
        }


HINTS = {
    "input": "Send what the model takes: --data FILE.npy or digits, or --size with the values of a row",
    "unknown_model": "Give --model with a number that `lightning serve` says when it is ready",
    "late": "Give a longer --deadline-us, or a lower --rate",
}
"""Of refusals, by name."""


def find_unanswered(outcomes: Sequence[Outcome]) -> LoadError | None:
    """Return the error and its hint where not one request of several loads was answered; None where one was."""
    if any(each.answered for each in outcomes):
        return None
    refused = Counter[str]()
    for each in outcomes:
        refused.update(each.refused)
    reasons = [f"{count:,} were refused with {name}" for name, count in refused.most_common()]
    lost = sum(each.lost for each in outcomes)
    reasons += [f"{lost:,} got no answer"] if lost else []
    hint = HINTS.get(refused.most_common(1)[0][0]) if refused else "See whether a server listens there"
    return LoadError(
        (
            f"none of {sum((each.scheduled for each in outcomes)):,} requests was answered: "
            f"{', '.join(reasons)}"
        ),
        hint=hint or "Send one such request by hand: its answer says why",
    )


def _number(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 1)


@dataclass(frozen=True)
class Histogram:
    """`counts[i]` values lie from `edges[i]` (included) to `edges[i + 1]` (not)."""

    edges: npt.NDArray[np.float64]
    """(buckets + 1,)"""
    counts: npt.NDArray[np.int64]
    """(buckets,)"""


def log_histogram(values: npt.NDArray[np.float64]) -> Histogram:
    """Return the buckets from the smallest value to the largest (at least 0.1); none without values.

    >>> found = log_histogram(np.array([10.0, 10.1, 1000.0]))
    >>> len(found.counts)  # two decades, and the bucket that holds 1000
    81
    >>> found.counts[[0, -1]].tolist()
    [2, 1]
    """
    if not len(values):
        return Histogram(np.array([1.0]), np.zeros(0, dtype=np.int64))
    # The small excess puts a power of ten into the bucket that it opens, whatever its logarithm's last digit.
    buckets = np.floor(np.log10(np.maximum(values, 0.1)) * PER_DECADE + 1e-9).astype(np.int64)
    first = int(buckets.min())
    counts = np.bincount(buckets - first)
    edges = 10.0 ** (np.arange(first, first + len(counts) + 1) / PER_DECADE)
    return Histogram(edges, counts.astype(np.int64))
