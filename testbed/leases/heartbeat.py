"""Heartbeat that extends a lease until a block ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from lightbed.errors import LightbedError
from testbed.storage.database import DATABASE_ERRORS

TTL_S = 300.0
"""Duration in seconds of a lease that a heartbeat extends. If the process is killed, the lease expires in this time."""


@contextmanager
def keep_alive(extend: Callable[[], object], period_s: float = TTL_S / 3) -> Iterator[None]:
    """Call `extend` every `period_s` in a thread, until the block ends.

    Errors are ignored: a later call may succeed.
    """
    end_event = threading.Event()

    def extend_periodically() -> None:
        while not end_event.wait(period_s):
            with suppress(LightbedError, *DATABASE_ERRORS, OSError):
                extend()

    heartbeat_thread = threading.Thread(target=extend_periodically, name="heartbeat of a lease", daemon=True)
    heartbeat_thread.start()
    try:
        yield
    finally:
        end_event.set()
        heartbeat_thread.join()
