"""A lease that is extended as long as a test has it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from testbed.errors import TestbedError
from testbed.storage.database import DATABASE_ERRORS

TTL_S = 300.0
"""How long a lease outlives a session of pytest that was killed."""


@contextmanager
def keep_alive(extend: Callable[[], object], every_s: float = TTL_S / 3) -> Iterator[None]:
    """Call `extend` now and then in a thread, until this is left. One that fails is no error: the next may do."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(every_s):
            with suppress(TestbedError, *DATABASE_ERRORS, OSError):
                extend()

    heart = threading.Thread(target=beat, name="lease of a test", daemon=True)
    heart.start()
    try:
        yield
    finally:
        over.set()
        heart.join()
