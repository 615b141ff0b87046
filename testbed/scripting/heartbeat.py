"""Heartbeat that extends the lease of a running test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from testbed.errors import TestbedError
from testbed.storage.database import DATABASE_ERRORS

TTL_S = 300.0
"""Time after which the lease of a killed pytest session expires."""


@contextmanager
def keep_alive(extend: Callable[[], object], every_s: float = TTL_S / 3) -> Iterator[None]:
    """Call `extend` every `every_s` in a thread, until the block ends. Errors are ignored: a later call may succeed."""
    is_over = threading.Event()

    def beat() -> None:
        while not is_over.wait(every_s):
            with suppress(TestbedError, *DATABASE_ERRORS, OSError):
                extend()

    heart = threading.Thread(target=beat, name="lease of a test", daemon=True)
    heart.start()
    try:
        yield
    finally:
        is_over.set()
        heart.join()
