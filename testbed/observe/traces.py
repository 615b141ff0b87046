"""Traces of OpenTelemetry: run, operation, step, exchange with a device, each a span within the one before it.

The blocks of `testbed.log_context` become spans, and so does what goes to a device until its answer begins. Nothing of
OpenTelemetry is imported until somebody asks for traces.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING

from ocs_drivers.transports import wire
from testbed.log_context import find_bound, logger, surround

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer, TracerProvider

VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Environment variables of OpenTelemetry that say where traces are sent."""
SPANS = {"run": "run", "operation": "operation", "device": "step"}
"""Subject of a block -> name of its span; a lease is an attribute of those that are made under it."""
EXCHANGE = "exchange"
_SENT_CHARACTERS = 200
_asked_for: list[Callable[[], None]] = []


def trace_as_asked() -> None:
    """Send traces where the environment says, once in a process. Without the extra `traces` the log says so."""
    if _asked_for or not any(os.environ.get(name) for name in VARIABLES):
        return
    if find_spec("opentelemetry.exporter") is None or find_spec("opentelemetry.sdk") is None:
        logger.warning(
            "no traces: %s is set, but the extra [traces] of lightbed is not installed", VARIABLES[1]
        )
        _asked_for.append(lambda: None)
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": "lightbed"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))  # the provider sends the rest at exit
    _asked_for.append(trace_to(provider))


def trace_to(provider: TracerProvider) -> Callable[[], None]:
    """Make spans by this provider from now on; return the function that ends it."""
    tracer = provider.get_tracer("lightbed")
    exchanges = Exchanges(tracer)
    surround(lambda subjects: _span(tracer, subjects))
    wire.listen(exchanges)

    def stop() -> None:
        surround(None)
        wire.listen(None)
        exchanges.close()

    return stop


@contextmanager
def _span(tracer: Tracer, subjects: Mapping[str, str]) -> Iterator[None]:
    """Make a span of a block with all that is bound in it, unless it is about nothing that has one."""
    name = next((SPANS[one] for one in subjects if one in SPANS), "")
    if not name:
        yield
        return
    attributes = {f"lightbed.{subject}": text for subject, text in find_bound().items()}
    with tracer.start_as_current_span(name, attributes=attributes):
        yield


class Exchanges:
    """Spans from what is sent to a device to the beginning of its answer, or to what is sent next."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer, self._lock = tracer, Lock()
        self._open: dict[str, Span] = {}

    def on_sent(self, device: str, text: str) -> None:
        """Begin a span."""
        attributes = {"lightbed.address": device, "lightbed.sent": text[:_SENT_CHARACTERS]}
        span = self._tracer.start_span(EXCHANGE, attributes=attributes)
        with self._lock:
            before, self._open[device] = self._open.get(device), span
        if before is not None:
            before.end()

    def on_received(self, device: str) -> None:
        """End the span of the device, if one is open."""
        with self._lock:
            span = self._open.pop(device, None)
        if span is not None:
            span.end()

    def close(self) -> None:
        """End what is open."""
        for device in list(self._open):
            self.on_received(device)
