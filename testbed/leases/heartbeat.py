"""Heartbeat of an operation: its lease lasts as long as its steps go on, and no longer.

It is beaten before each write, by the operation and not by a clock of its own: one that stands still beats no more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from testbed.errors import ClockError, LeaseDenied

if TYPE_CHECKING:
    from testbed.leases.model import Lease
    from testbed.leases.store import LeaseStore

BEATS = 3
"""Beats in the time that a lease lasts: fewer transactions than steps, and one may come late."""


class Heartbeat:
    """Heartbeat of one lease. Threads may share it; `steady` is a clock that is never set."""

    def __init__(self, store: LeaseStore, lease: Lease, steady: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._lease = lease
        self._steady = steady
        self._lock = threading.Lock()
        self._last_s = steady()

    def beat(self) -> None:
        """Extend the lease where a third of its time has passed. Raises what the database raises.

        One that cannot be extended is left as it is: whether anything may be sent is for the fence to say.
        """
        with self._lock:
            now_s = self._steady()
            if now_s - self._last_s < self._lease.ttl_s / BEATS:
                return
            self._last_s = now_s
        with suppress(LeaseDenied, ClockError):
            self._store.extend(self._lease.id)
