"""Owners of operations in the journal, processes and persons: see `testbed.storage.owner`."""

from testbed.storage.owner import is_of_this_boot, is_running, this_person, this_process, this_run

__all__ = ["is_of_this_boot", "is_running", "this_person", "this_process", "this_run"]
