"""The time that simulated devices live in: real, or advanced by a test.

A device never calls `time` or `asyncio.sleep` itself; it is given a `Clock`. On a `VirtualClock` the
minutes of a robot pass in microseconds, and a test decides what has happened before and after which move.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import time
from typing import Protocol

# A woken sleeper may hand on to another task, which may sleep in its turn, before the next deadline is
# looked at. Each handing-on takes one pass of the event loop; no simulated device chains more than a few.
_PASSES_TO_SETTLE = 16


class Clock(Protocol):
    """Seconds since some fixed moment, and a way to wait for a later one."""

    def now(self) -> float:
        """Return seconds since the clock's own beginning; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return when `seconds` have passed on this clock; at once for zero or less."""
        ...


class RealClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Return seconds of the monotonic clock."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep in real time."""
        await asyncio.sleep(max(0.0, seconds))


class ScaledClock:
    """The machine's monotonic clock, `speed` times as fast: a robot's minute in a test's blink."""

    def __init__(self, speed: float) -> None:
        if speed <= 0:
            raise ValueError(f"the clock cannot run at {speed:g} times real time")
        self._speed = speed

    def now(self) -> float:
        """Return seconds of this clock."""
        return time.monotonic() * self._speed

    async def sleep(self, seconds: float) -> None:
        """Sleep until `seconds` of this clock have passed."""
        await asyncio.sleep(max(0.0, seconds) / self._speed)


class VirtualClock:
    """A clock that stands still until `advance` is called.

    Belongs to one event loop: `sleep` and `advance` are to be awaited there.
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self._now = start_s
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> float:
        """Virtual seconds."""
        return self._now

    @property
    def sleepers(self) -> int:
        """Number of tasks that wait for a later moment."""
        return sum(not woken.done() for _, _, woken in self._sleepers)

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has been advanced by `seconds`; at once for zero or less."""
        if seconds <= 0:
            return
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Advance by `seconds`, waking every sleeper at its own moment, earliest first.

        Sleepers with the same deadline wake in the order in which they went to sleep. What a woken
        task does, sleeping again included, happens before the clock moves on. Raises `ValueError`
        for a negative time.
        """
        if seconds < 0:
            raise ValueError(f"a clock cannot go back by {-seconds} s")
        end = self._now + seconds
        await self._settle()  # tasks started just now first get to their own sleep
        while self.wake_next(end):
            await self._settle()

    @property
    def next_s(self) -> float:
        """Time at which the next sleeper wakes; infinite while nobody sleeps."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else math.inf

    def wake_next(self, end_s: float) -> bool:
        """Go on to the next sleeper's moment and wake it, or to `end_s` when that comes first.

        Gives whether one was woken: what it does next is to happen before the clock goes on. A step of
        `advance`, for who runs the event loop only between such steps.
        """
        if self.next_s > end_s:
            self._now = end_s
            return False
        self._now, _, woken = heapq.heappop(self._sleepers)
        woken.set_result(None)
        return True

    async def _settle(self) -> None:
        for _ in range(_PASSES_TO_SETTLE):
            await asyncio.sleep(0)
