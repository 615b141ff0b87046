"""Counts of what happened, in plain numbers: cheap to count, and read by Prometheus when it asks."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

BOUNDS_S = (
    1e-4,
    2.5e-4,
    5e-4,
    1e-3,
    2.5e-3,
    5e-3,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    60.0,
)
"""Upper ends of the latency histogram; the last interval is open."""


@dataclass
class Histogram:
    """Histogram of times, by intervals.

    >>> histogram = Histogram()
    >>> histogram.observe(1e-4)
    >>> histogram.cumulative()[:2]
    [('0.0001', 1), ('0.00025', 1)]
    """

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    sum_s: float = 0.0

    def observe(self, seconds: float) -> None:
        """Count one time."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    def cumulative(self) -> list[tuple[str, int]]:
        """Return for each upper end how many times were not above it."""
        rows, total = [], 0
        for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), self.counts, strict=True):
            total += count
            rows.append((bound, total))
        return rows


@dataclass
class ModelCounts:
    """Of one model. Every request ends in `latency`; those that failed are in `failures`, too."""

    latency: Histogram = field(default_factory=Histogram)
    failures: Counter[str] = field(default_factory=Counter)
    """By the code of the error."""
    images: int = 0
    """That were answered."""
    events: Counter[str] = field(default_factory=Counter)
    """What the executor counts: clipped activations and readouts, wrapped sums."""

    @property
    def requests(self) -> int:
        """That ended, in an answer or an error."""
        return sum(self.latency.counts)


@dataclass
class Counts:
    """Of one server. It belongs to one thread."""

    models: dict[str, ModelCounts] = field(default_factory=dict)
    in_flight: int = 0
    """Requests that have arrived and not been answered."""

    def of(self, model: str) -> ModelCounts:
        """Return the counts of this model. Names that no model has are "", so that clients cannot fill the memory."""
        found = self.models.get(model)
        if found is None:
            found = self.models[model] = ModelCounts()
        return found

    def answered(self, model: str, seconds: float, images: int, events: Mapping[str, int]) -> None:
        """Count a request that was answered."""
        counts = self.of(model)
        counts.latency.observe(seconds)
        counts.images += images
        if events:
            counts.events.update(events)

    def failed(self, model: str, seconds: float, code: str) -> None:
        """Count a request that ended in an error."""
        counts = self.of(model)
        counts.latency.observe(seconds)
        counts.failures[code] += 1
