"""What others see of labs without asking for it: metrics for Prometheus, logs as JSON."""
