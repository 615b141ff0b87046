"""One at a time, in the order in which they came: who lets go and comes back does not overtake those who wait."""

from __future__ import annotations

import threading
from time import monotonic
from types import TracebackType


class Turn:
    """A lock that is handed on. `threading.Lock` is not: a thread that takes it over and over keeps it from others."""

    __slots__ = ("_door", "_inside")

    def __init__(self) -> None:
        self._door = threading.Lock()  # held by the one who waits next, so that nobody can get past
        self._inside = threading.Lock()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def acquire(self, timeout: float = -1) -> bool:
        """Wait for the turn, for so many seconds (negative: for ever; 0: not at all); whether it came."""
        end = monotonic() + timeout
        if not (self._door.acquire(timeout=timeout) if timeout else self._door.acquire(blocking=False)):
            return False
        try:
            if timeout < 0:
                return self._inside.acquire()
            return self._inside.acquire(timeout=max(end - monotonic(), 0))
        finally:
            self._door.release()

    def release(self) -> None:
        """Give the turn to the next one."""
        self._inside.release()
