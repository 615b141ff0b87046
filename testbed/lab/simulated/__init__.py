"""Simulated labs: start from a lab file, status, and removal."""

from testbed.lab.simulated.lifecycle import SimulatedLab, find_running, lab_down, lab_status, start_lab

__all__ = ["SimulatedLab", "find_running", "lab_down", "lab_status", "start_lab"]
