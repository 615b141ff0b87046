"""Connections to simulated devices: listeners and lines of every kind, their faults, and the control socket."""
