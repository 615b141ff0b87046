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
def keep_alive(extend: Callable[[], object], every_s: float = TTL_S / 3) -> Iterator[None]:
    """Call `extend` every `every_s` in a thread, until the block ends. Errors are ignored: a later call may succeed."""
    is_over = threading.Event()

    def beat() -> None:
        while not is_over.wait(every_s):
            with suppress(LightbedError, *DATABASE_ERRORS, OSError):
                extend()

    heartbeat_thread = threading.Thread(target=beat, name="heartbeat of a lease", daemon=True)
    heartbeat_thread.start()
    try:
        yield
    finally:
        is_over.set()
        heartbeat_thread.join()
