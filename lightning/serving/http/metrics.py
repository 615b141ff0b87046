"""Counts in the text form that Prometheus reads (https://prometheus.io/docs/instrumenting/exposition_formats)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from lightning.serving.http.counts import Counts
from lightning.serving.packets.counts import PacketCounts
from lightning.serving.repository import Repository

ReadPackets = Callable[[], PacketCounts]
"""What became of packets until now."""


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


_MODEL = ["model"]
