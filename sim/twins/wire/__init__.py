"""Connections to simulated devices: listeners, lines with their faults, and the control socket."""
