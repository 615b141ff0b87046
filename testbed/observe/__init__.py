"""Observability: metrics for Prometheus, logs as JSON, traces for OpenTelemetry."""
