"""Time on the board: it passes when somebody talks to it, by what that takes on a real one."""

from __future__ import annotations

import math

CALL_S = 20e-6
"""Registers written over a memory bus, Python on the board included."""
LOOK_S = 50e-6
"""One look at the counter of shots."""
TRANSFER_S = 200e-6
"""One transfer by direct memory access."""
START_S = 5e-6
"""Between a start and the first instruction."""
AGE_S = 1.0
"""Within a run, everything that drifts is updated so often."""
PATIENCE = 2.0
"""By how much each look that found nothing new takes longer than the one before."""


class DeviceClock:
    """Seconds since power-on, and those that nobody has accounted for yet."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._unaccounted_s = 0.0
        self._look_s = LOOK_S

    def spend(self, seconds: float) -> None:
        """Advance the time."""
        self.now_s += seconds
        self._unaccounted_s += seconds

    @property
    def accounted_s(self) -> float:
        """Time up to which everything that drifts has been updated."""
        return self.now_s - self._unaccounted_s

    def account(self, most_s: float = math.inf) -> float:
        """Return the seconds that have passed since the last call; of more than `most_s` the rest at the next call."""
        passed_s = min(self._unaccounted_s, most_s)
        self._unaccounted_s -= passed_s
        return passed_s

    def look(self, next_news_s: float | None) -> None:
        """Note one look at a counter that will change at `next_news_s`, the end of it included; never, for None.

        Looks in vain take ever longer, so that a program that waits for a second needs twenty of them and not
        twenty thousand, but none goes past the news by more than one look.
        """
        longest_s = self._look_s if next_news_s is None else max(next_news_s - self.now_s, 0.0) + LOOK_S
        self.spend(min(self._look_s, longest_s))
        self._look_s = min(self._look_s * PATIENCE, 1.0)

    def refreshed(self) -> None:
        """There was something new: looks are short again."""
        self._look_s = LOOK_S
