"""Connections to simulated devices: listeners and lines of every kind, faults of them, and the control socket."""
