"""Labs as others watch them: metrics for Prometheus, logs as JSON."""
