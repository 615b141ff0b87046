"""Counters of a server, and their text for Prometheus (https://prometheus.io/docs/instrumenting/exposition_formats)."""

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

BUCKET_BOUNDS_S = (
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
"""Upper bounds of the latency histogram's buckets. The last bucket has no upper bound."""

ReadPackets = Callable[[], PacketCounts]
"""A function that returns the current counts of packets."""
_MODEL_LABELS = ["model"]


@dataclass
class Histogram:
    """Histogram of times with the buckets `BUCKET_BOUNDS_S`.

    >>> histogram = Histogram()
    >>> histogram.observe(1e-4)
    >>> histogram.list_cumulative_counts()[:2]
    [('0.0001', 1), ('0.00025', 1)]
    """

    bucket_counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKET_BOUNDS_S) + 1))
    sum_s: float = 0.0

    def observe(self, seconds: float) -> None:
        """Count a time."""
        self.bucket_counts[bisect_left(BUCKET_BOUNDS_S, seconds)] += 1
        self.sum_s += seconds

    def list_cumulative_counts(self) -> list[tuple[str, int]]:
        """Return for each bucket its upper bound as text, and how many of the times are not above it."""
        rows, total = [], 0
        for bound, count in zip((*map(str, BUCKET_BOUNDS_S), "+Inf"), self.bucket_counts, strict=True):
            total += count
            rows.append((bound, total))
        return rows


@dataclass
class ModelCounts:
    """Counters of a model.

    `latency_histogram` includes failed requests, which `failure_counts` counts by error code.
    """

    latency_histogram: Histogram = field(default_factory=Histogram)
    failure_counts: Counter[str] = field(default_factory=Counter)
    answered_image_count: int = 0
    """Answered images."""
    executor_event_counts: Counter[str] = field(default_factory=Counter)
    """Counters of the executor: clipped activations and readouts, wrapped sums."""

    @property
    def request_count(self) -> int:
        """Number of requests that ended with an answer or an error."""
        return sum(self.latency_histogram.bucket_counts)


@dataclass
class ServerCounts:
    """Counters of a server. Only one thread may use them."""

    counts_by_model: dict[str, ModelCounts] = field(default_factory=dict)
    in_flight_count: int = 0
    """Requests that have arrived but are not answered yet."""

    def get_model_counts(self, model: str) -> ModelCounts:
        """Return the counters of a model. Pass "" for all unknown names, so that clients cannot fill the memory."""
        counts = self.counts_by_model.get(model)
        if counts is None:
            counts = self.counts_by_model[model] = ModelCounts()
        return counts

    def count_answer(
        self, model: str, seconds: float, image_count: int, event_counts: Mapping[str, int]
    ) -> None:
        """Count an answered request."""
        counts = self.get_model_counts(model)
        counts.latency_histogram.observe(seconds)
        counts.answered_image_count += image_count
        if event_counts:
            counts.executor_event_counts.update(event_counts)

    def count_failure(self, model: str, seconds: float, code: str) -> None:
        """Count a request that ended in an error with this code."""
        counts = self.get_model_counts(model)
        counts.latency_histogram.observe(seconds)
        counts.failure_counts[code] += 1


def format_metrics(
    repository: Repository, counts: ServerCounts, read_packet_counts: ReadPackets | None = None
) -> bytes:
    """Return all metrics of a server as text for Prometheus."""
    registry = CollectorRegistry()
    registry.register(
        _FamilyCollector(
            [*_collect_models(repository), *_collect_requests(counts), *_collect_packets(read_packet_counts)]
        )
    )
    return bytes(generate_latest(registry))


class _FamilyCollector:
    """Prometheus collector of precomputed metric families."""

    def __init__(self, families: Sequence[Any]) -> None:
        self._families = families

    def collect(self) -> Iterable[Any]:
        return self._families


def _collect_models(repository: Repository) -> Iterator[Any]:
    loaded = GaugeMetricFamily(
        "lightning_model_loaded", "Whether a model is in service.", labels=_MODEL_LABELS
    )
    users = GaugeMetricFamily("lightning_model_users", "Requests that hold a model.", labels=_MODEL_LABELS)
    instance_by_name = {instance.name: instance for instance in repository.list_serving()}
    for name in repository.get_numbers():
        loaded.add_metric([name], int(name in instance_by_name))
        users.add_metric([name], instance_by_name[name].users if name in instance_by_name else 0)
    versions = GaugeMetricFamily(
        "lightning_model_version",
        "Version of the model in service: how many times it was loaded.",
        labels=_MODEL_LABELS,
    )
    for name, instance in instance_by_name.items():
        versions.add_metric([name], int(instance.version))
    yield from (loaded, users, versions)


def _collect_requests(counts: ServerCounts) -> Iterator[Any]:
    requests = CounterMetricFamily("lightning_requests", "Requests that ended.", labels=_MODEL_LABELS)
    failures = CounterMetricFamily(
        "lightning_failures", "Requests that ended in an error.", labels=[*_MODEL_LABELS, "reason"]
    )
    images = CounterMetricFamily("lightning_images", "Images that were answered.", labels=_MODEL_LABELS)
    events = CounterMetricFamily(
        "lightning_events", "Clipped and wrapped numbers in computations.", labels=[*_MODEL_LABELS, "event"]
    )
    latency_histogram = HistogramMetricFamily(
        "lightning_request_seconds", "Time from the arrival of a request to its end.", labels=_MODEL_LABELS
    )
    for name, model_counts in counts.counts_by_model.items():
        requests.add_metric([name], model_counts.request_count)
        images.add_metric([name], model_counts.answered_image_count)
        latency_histogram.add_metric(
            [name],
            model_counts.latency_histogram.list_cumulative_counts(),
            model_counts.latency_histogram.sum_s,
        )
        for reason, count in model_counts.failure_counts.items():
            failures.add_metric([name, reason], count)
        for event, count in model_counts.executor_event_counts.items():
            events.add_metric([name, event], count)
    yield from (requests, failures, images, events, latency_histogram)
    yield GaugeMetricFamily("lightning_queue", "Requests that wait for their answer.", counts.in_flight_count)


def _collect_packets(read_packet_counts: ReadPackets | None) -> Iterator[Any]:
    if read_packet_counts is None:
        return
    family = CounterMetricFamily("lightning_packets", "UDP packets by outcome.", labels=["outcome"])
    counts = read_packet_counts()
    for outcome, count in counts.count_by_outcome().items():
        family.add_metric([outcome], count)
    yield family
    yield CounterMetricFamily(
        "lightning_packets_received", "UDP packets that the server received from its socket.", counts.received
    )
    yield GaugeMetricFamily(
        "lightning_packets_waiting",
        "UDP packets that wait for other fragments or for their model.",
        counts.waiting,
    )
