"""Owners of operations in the journal: see `testbed.storage.owner`."""

from testbed.storage.owner import is_running, this_process

__all__ = ["is_running", "this_process"]
