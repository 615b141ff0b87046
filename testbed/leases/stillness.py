"""Waiting until nothing moves: after the maintenance lock is set, what was being sent comes to its end."""

from __future__ import annotations

import time
from collections.abc import Callable

from testbed.errors import LeaseHeld
from testbed.leases.store import LeaseStore, process_of

POLL_S = 0.2


def wait_until_still(
    store: LeaseStore, at_most_s: float, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Return when nothing is being sent to a device. Raises `LeaseHeld` when that takes too long."""
    deadline = time.monotonic() + at_most_s
    while senders := store.senders():
        if time.monotonic() >= deadline:
            who = ", ".join(f"{process_of(one)} under lease {one.id}" for one in senders)
            raise LeaseHeld(
                f"lab '{store.lab}' still moves: {who} has not ended what it sends. No new move can begin; keep hands "
                "out of the rack until this command succeeds, or end that process"
            )
        sleep(POLL_S)
