"""Owners of operations in the journal, processes and persons: see `testbed.storage.owner`."""

from __future__ import annotations

import getpass
import os
import socket

from testbed.storage.owner import is_running, this_process

__all__ = ["is_running", "this_person", "this_process"]


def this_person() -> str:
    """Return who runs this process, as this machine knows it: `name@machine`."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a number without a name
        name = str(os.getuid())
    return f"{name}@{socket.gethostname()}"
