"""Counts of what happened, and the text form that Prometheus reads (https://prometheus.io/docs/instrumenting/exposition_formats)."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from lightning.serving.packets.counts import PacketCounts
from lightning.serving.repository import Repository

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

ReadPackets = Callable[[], PacketCounts]
"""What became of packets until now."""
_MODEL = ["model"]


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
    """Counts of one model. `latency` counts every request, `failures` also the failed ones."""

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
    """Counts of one server. Only one thread may use them."""

    models: dict[str, ModelCounts] = field(default_factory=dict)
    in_flight: int = 0
    """Requests that have arrived and not been answered."""

    def of(self, model: str) -> ModelCounts:
        """Return the counts of this model. Names that no model has are "", so that clients cannot fill the memory."""
        found = self.models.get(model)
        if found is None:
            found = self.models[model] = ModelCounts()
        return found

    def count_answer(self, model: str, seconds: float, images: int, events: Mapping[str, int]) -> None:
        """Count a request that was answered."""
        counts = self.of(model)
        counts.latency.observe(seconds)
        counts.images += images
        if events:
            counts.events.update(events)

    def count_failure(self, model: str, seconds: float, code: str) -> None:
        """Count a request that ended in an error."""
        counts = self.of(model)
        counts.latency.observe(seconds)
        counts.failures[code] += 1


def exposition(repository: Repository, counts: Counts, packets: ReadPackets | None = None) -> bytes:
    """Return all metrics of a server."""
    registry = CollectorRegistry()
    registry.register(_Read([*_of_models(repository), *_of_requests(counts), *_of_packets(packets)]))
    return bytes(generate_latest(registry))


class _Read:
    """Families that are there already, as a collector."""

    def __init__(self, families: Sequence[Any]) -> None:
        self._families = families

    def collect(self) -> Iterable[Any]:
        return self._families


def _of_models(repository: Repository) -> Iterator[Any]:
    ready = GaugeMetricFamily("lightning_model_loaded", "Whether a model is in service.", labels=_MODEL)
    users = GaugeMetricFamily("lightning_model_users", "Requests that hold a model.", labels=_MODEL)
    serving = {each.name: each for each in repository.serving()}
    for name in repository.numbers():
        ready.add_metric([name], int(name in serving))
        users.add_metric([name], serving[name].users if name in serving else 0)
    versions = GaugeMetricFamily(
        "lightning_model_version",
        "How many times a model was loaded until the one in service.",
        labels=_MODEL,
    )
    for name, each in serving.items():
        versions.add_metric([name], int(each.version))
    yield from (ready, users, versions)


def _of_requests(counts: Counts) -> Iterator[Any]:
    requests = CounterMetricFamily("lightning_requests", "Requests that ended.", labels=_MODEL)
    failures = CounterMetricFamily(
        "lightning_failures", "Requests that ended in an error.", labels=[*_MODEL, "reason"]
    )
    images = CounterMetricFamily("lightning_images", "Images that were answered.", labels=_MODEL)
    events = CounterMetricFamily(
        "lightning_events", "What happened to numbers in answers.", labels=[*_MODEL, "event"]
    )
    seconds = HistogramMetricFamily(
        "lightning_request_seconds", "From the arrival of a request to its answer.", labels=_MODEL
    )
    for name, each in counts.models.items():
        requests.add_metric([name], each.requests)
        images.add_metric([name], each.images)
        seconds.add_metric([name], each.latency.cumulative(), each.latency.sum_s)
        for reason, count in each.failures.items():
            failures.add_metric([name, reason], count)
        for event, count in each.events.items():
            events.add_metric([name, event], count)
    yield from (requests, failures, images, events, seconds)
    yield GaugeMetricFamily("lightning_queue", "Requests that wait for their answer.", counts.in_flight)


def _of_packets(packets: ReadPackets | None) -> Iterator[Any]:
    if packets is None:
        return
    family = CounterMetricFamily(
        "lightning_packets", "UDP packets by what became of them.", labels=["outcome"]
    )
    found = packets()
    for outcome, count in found.outcomes().items():
        family.add_metric([outcome], count)
    yield family
    yield CounterMetricFamily(
        "lightning_packets_received", "UDP packets that the server took from its socket.", found.received
    )
    yield GaugeMetricFamily(
        "lightning_packets_waiting", "UDP packets that wait for others, or for their model.", found.waiting
    )
