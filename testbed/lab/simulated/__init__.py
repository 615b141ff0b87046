"""Simulated labs: start from a lab file, status, and removal."""

from testbed.lab.simulated.lifecycle import (
    SimulatedLab,
    find_running_lab,
    list_simulated_labs,
    remove_simulated_labs,
    start_lab,
)

__all__ = ["SimulatedLab", "find_running_lab", "list_simulated_labs", "remove_simulated_labs", "start_lab"]
