"""Simulated labs: started from a lab file, found while they run, taken down."""

from testbed.lab.simulated.lifecycle import SimulatedLab, find_running, lab_down, lab_status, start_lab

__all__ = ["SimulatedLab", "find_running", "lab_down", "lab_status", "start_lab"]
