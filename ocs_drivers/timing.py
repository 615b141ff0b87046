"""The time that drivers live in. Injected, so that tests decide how long a robot's minutes take."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds that never go back, and a way to let some pass."""

    def now(self) -> float:
        """Return the seconds since some fixed moment."""

    def sleep(self, seconds: float) -> None:
        """Return when `seconds` have passed; used only between polls of a state."""


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Return the seconds of the monotonic clock."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let the thread rest."""
        time.sleep(seconds)


SYSTEM_CLOCK = SystemClock()


class Deadline:
    """The moment a wait must end, on a clock."""

    __slots__ = ("_clock", "_end_s", "timeout_s")

    def __init__(self, timeout_s: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self.timeout_s = timeout_s
        self._clock = clock
        self._end_s = clock.now() + timeout_s

    def remaining_s(self) -> float:
        """Return the seconds left, never negative."""
        return max(0.0, self._end_s - self._clock.now())

    @property
    def passed(self) -> bool:
        """True when nothing is left."""
        return self._clock.now() >= self._end_s

    def extend(self, seconds: float) -> None:
        """Give more time, because something else was shown to be in the way."""
        self.timeout_s += seconds
        self._end_s += seconds
