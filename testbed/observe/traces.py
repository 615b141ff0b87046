"""Traces for OpenTelemetry: nested spans of run, operation, step, and exchange with a device.

Each block of `testbed.log_context` becomes a span. So does each exchange, from sending to the start of the answer.
OpenTelemetry is imported only if traces are enabled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING

from ocs_drivers.transports import wire
from testbed.log_context import get_log_subjects, logger, set_block_context

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer, TracerProvider

ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Environment variables of OpenTelemetry that hold the destination of traces."""
SPAN_NAMES = {"run": "run", "operation": "operation", "device": "step"}
"""Subject of a block -> name of its span. A lease has no span; it is an attribute of the spans under it."""
EXCHANGE_SPAN = "exchange"
_MAX_SENT_CHARACTERS = 200
_stop_functions: list[Callable[[], None]] = []


def trace_if_configured() -> None:
    """Send traces as the environment says, once per process; log a warning if the extra `traces` is missing."""
    if _stop_functions or not any(os.environ.get(name) for name in ENDPOINT_VARIABLES):
        return
    if find_spec("opentelemetry.exporter") is None or find_spec("opentelemetry.sdk") is None:
        logger.warning(
            "no traces: %s is set, but the extra [traces] of lightbed is not installed", ENDPOINT_VARIABLES[1]
        )
        _stop_functions.append(lambda: None)
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": "lightbed"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))  # the provider sends the rest at exit
    _stop_functions.append(trace_to(provider))


def trace_to(provider: TracerProvider) -> Callable[[], None]:
    """Create spans with this provider from now on; return a function that stops it."""
    tracer = provider.get_tracer("lightbed")
    exchanges = ExchangeSpans(tracer)
    set_block_context(lambda subjects: _open_span(tracer, subjects))
    wire.set_listener(exchanges)

    def stop() -> None:
        set_block_context(None)
        wire.set_listener(None)
        exchanges.close()

    return stop


@contextmanager
def _open_span(tracer: Tracer, subjects: Mapping[str, str]) -> Iterator[None]:
    """Wrap a block in a span if `SPAN_NAMES` has one of `subjects`. Its attributes are the subjects of the context."""
    name = next((SPAN_NAMES[subject] for subject in subjects if subject in SPAN_NAMES), "")
    if not name:
        yield
        return
    attributes = {f"lightbed.{subject}": text for subject, text in get_log_subjects().items()}
    with tracer.start_as_current_span(name, attributes=attributes):
        yield


class ExchangeSpans:
    """Spans of exchanges, from sending to the start of the answer or, without an answer, to the next command."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer, self._lock = tracer, Lock()
        self._open_span_by_device: dict[str, Span] = {}

    def on_sent(self, device: str, text: str) -> None:
        """Begin a span."""
        attributes = {"lightbed.address": device, "lightbed.sent": text[:_MAX_SENT_CHARACTERS]}
        span = self._tracer.start_span(EXCHANGE_SPAN, attributes=attributes)
        with self._lock:
            previous_span, self._open_span_by_device[device] = self._open_span_by_device.get(device), span
        if previous_span is not None:
            previous_span.end()

    def on_received(self, device: str) -> None:
        """End the span of the device, if one is open."""
        with self._lock:
            span = self._open_span_by_device.pop(device, None)
        if span is not None:
            span.end()

    def close(self) -> None:
        """End all open spans."""
        for device in list(self._open_span_by_device):
            self.on_received(device)
