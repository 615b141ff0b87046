"""Outcome of a load: numbers of answered, refused and lost requests, and latencies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.load.targets import LoadError

Nanoseconds = npt.NDArray[np.int64]

NOT_HAPPENED = -1
"""Marks an event that has not happened, in an array of times."""

BUCKETS_PER_DECADE = 40
"""Buckets of a histogram per decade. The bounds of a bucket differ by a factor of 10^(1/40), or 5.9 %."""


@dataclass(frozen=True)
class Traces:
    """Measurements of a load, (requests,) each, in nanoseconds."""

    latency_ns: Nanoseconds
    """Time from the scheduled time to the answer or refusal; `NOT_HAPPENED` without either."""
    lag_ns: Nanoseconds
    """Time from the scheduled time to sending; `NOT_HAPPENED` if the request was never sent."""
    refusal_codes: npt.NDArray[np.int32]
    """Code or HTTP status of a refusal; 0 for an answer."""
    elapsed_s: float
    """Time from the start of the schedule to its last request or the last answer, whichever is later."""


def make_traces(
    due_times_ns: Nanoseconds,
    latency_ns: Nanoseconds,
    lag_ns: Nanoseconds,
    refusal_codes: npt.NDArray[np.int32],
) -> Traces:
    """Return the traces with the elapsed time, computed from due times and latencies."""
    has_ended = latency_ns != NOT_HAPPENED
    end_times_ns = [
        int(times.max()) for times in (due_times_ns, (due_times_ns + latency_ns)[has_ended]) if len(times)
    ]
    return Traces(latency_ns, lag_ns, refusal_codes, max(end_times_ns, default=0) / 1e9)


@dataclass(frozen=True)
class Outcome:
    """Outcome of a load at one rate."""

    target: str
    rate: float
    """Requested rate, in requests per second."""
    seed: int
    traces: Traces = field(repr=False)
    deadline_us: int = 0
    """Answers that take longer count as `late_count`; 0 for no deadline."""
    name_by_code: Mapping[int, str] = field(default_factory=dict, repr=False)
    """Names of refusals by code."""

    @property
    def scheduled(self) -> int:
        """Number of scheduled requests."""
        return len(self.traces.latency_ns)

    @property
    def sent(self) -> int:
        """Number of sent requests."""
        return int(np.count_nonzero(self.traces.lag_ns != NOT_HAPPENED))

    @property
    def latencies_us(self) -> npt.NDArray[np.float64]:
        """Latencies of the answers in microseconds, ascending."""
        is_answer = (self.traces.latency_ns != NOT_HAPPENED) & (self.traces.refusal_codes == 0)
        return np.asarray(np.sort(self.traces.latency_ns[is_answer]) / 1e3)

    @property
    def answered(self) -> int:
        """Number of answered requests, without refusals."""
        return len(self.latencies_us)

    @property
    def refused(self) -> dict[str, int]:
        """Number of refusals by name."""
        codes, counts = np.unique(
            self.traces.refusal_codes[self.traces.refusal_codes != 0], return_counts=True
        )
        return {
            self.name_by_code.get(code, str(code)): count
            for code, count in zip(codes.tolist(), counts.tolist(), strict=True)
        }

    @property
    def lost(self) -> int:
        """Number of requests without answer or refusal."""
        return int(np.count_nonzero(self.traces.latency_ns == NOT_HAPPENED))

    @property
    def loss(self) -> float:
        """Share of lost requests."""
        return self.lost / self.scheduled if self.scheduled else 0.0

    @property
    def answered_per_s(self) -> float:
        """Mean rate of answers."""
        return self.answered / self.traces.elapsed_s if self.traces.elapsed_s else 0.0

    @property
    def late_count(self) -> int:
        """Number of answers that took longer than the deadline."""
        return int(np.count_nonzero(self.latencies_us > self.deadline_us)) if self.deadline_us else 0

    def compute_percentile_us(self, percent: float) -> float:
        """Return the latency that `percent` of the answers do not exceed, or NaN without answers."""
        latencies = self.latencies_us
        return float(np.percentile(latencies, percent, method="higher")) if len(latencies) else float("nan")

    def compute_lag_us(self, percent: float) -> float:
        """Return a percentile of the delay of sending in microseconds, or NaN if nothing was sent.

        Sending is late if the generator is too slow or no connection is free.
        """
        lags = self.traces.lag_ns[self.traces.lag_ns != NOT_HAPPENED]
        return float(np.percentile(lags, percent, method="higher")) / 1e3 if len(lags) else float("nan")

    def summarise(self) -> dict[str, Any]:
        """Return the results for a JSON document, with times in microseconds, or None without answers."""
        return {
            "rate": self.rate,
            "scheduled": self.scheduled,
            "sent": self.sent,
            "answered": self.answered,
            "answered_per_s": round(self.answered_per_s, 1),
            "refused": self.refused,
            "lost": self.lost,
            "loss": round(self.loss, 6),
            "late": self.late_count,
            "p50_us": _round_number(self.compute_percentile_us(50)),
            "p99_us": _round_number(self.compute_percentile_us(99)),
            "p999_us": _round_number(self.compute_percentile_us(99.9)),
            "generator_lag_p99_us": _round_number(self.compute_lag_us(99)),
        }


HINT_BY_REFUSAL = {
    "input": "Send input that the model accepts: --data FILE.npy or digits, or --size with the values of a row",
    "unknown_model": "Give --model with a number that `lightning serve` prints when it is ready",
    "late": "Give a longer --deadline-us, or a lower --rate",
}
"""Hints by the name of a refusal."""


def describe_failure(outcomes: Sequence[Outcome]) -> LoadError | None:
    """Return an error if no request of any load was answered, else None."""
    if any(outcome.answered for outcome in outcomes):
        return None
    total_refusal_counts = Counter[str]()
    for outcome in outcomes:
        total_refusal_counts.update(outcome.refused)
    reasons = [f"{count:,} were refused with {name}" for name, count in total_refusal_counts.most_common()]
    total_lost_count = sum(outcome.lost for outcome in outcomes)
    reasons += [f"{total_lost_count:,} got no answer"] if total_lost_count else []
    hint = (
        HINT_BY_REFUSAL.get(total_refusal_counts.most_common(1)[0][0])
        if total_refusal_counts
        else "Check that a server listens there"
    )
    return LoadError(
        (
            f"none of {sum((outcome.scheduled for outcome in outcomes)):,} requests was answered: "
            f"{', '.join(reasons)}"
        ),
        hint=hint or "Send one such request by hand and read the error in its answer",
    )


def _round_number(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 1)


@dataclass(frozen=True)
class Histogram:
    """A histogram: `counts[i]` values are in the half-open interval [`edges[i]`, `edges[i + 1]`)."""

    edges: npt.NDArray[np.float64]
    """(buckets + 1,)"""
    counts: npt.NDArray[np.int64]
    """(buckets,)"""


def make_log_histogram(values: npt.NDArray[np.float64]) -> Histogram:
    """Return a histogram with logarithmic buckets from the smallest to the largest value, without buckets if empty.

    Values below 0.1 count as 0.1.

    >>> histogram = make_log_histogram(np.array([10.0, 10.1, 1000.0]))
    >>> len(histogram.counts)  # two decades, and the bucket of 1000
    81
    >>> histogram.counts[[0, -1]].tolist()
    [2, 1]
    """
    if not len(values):
        return Histogram(np.array([1.0]), np.zeros(0, dtype=np.int64))
    # Despite rounding errors, 1e-9 puts a power of ten into the bucket that begins with it.
    bucket_indices = np.floor(np.log10(np.maximum(values, 0.1)) * BUCKETS_PER_DECADE + 1e-9).astype(np.int64)
    first_bucket = int(bucket_indices.min())
    counts = np.bincount(bucket_indices - first_bucket)
    edges = 10.0 ** (np.arange(first_bucket, first_bucket + len(counts) + 1) / BUCKETS_PER_DECADE)
    return Histogram(edges, counts.astype(np.int64))
