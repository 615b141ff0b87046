"""Clocks of simulated devices: real, scaled, or advanced by a test.

A device never calls `time` or `asyncio.sleep` itself, but uses the `Clock` that it gets. On a `VirtualClock` the
minutes of a robot pass in microseconds, and a test controls the order of events.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import time
from typing import Protocol

# A task that wakes may wake another task, which may then sleep in turn, before the next deadline is read. Each such
# step takes one pass of the event loop, and no simulated device chains more than a few.
_READY_PASS_COUNT = 16


class Clock(Protocol):
    """A source of monotonic time, and a way to wait."""

    def now(self) -> float:
        """Return the seconds since an arbitrary start; never decreases."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait until `seconds` have passed on this clock; return at once for 0 or less."""
        ...


class RealClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Return the seconds of the monotonic clock."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep in real time."""
        await asyncio.sleep(max(0.0, seconds))


class ScaledClock:
    """The machine's monotonic clock, `speed` times as fast, so that a test need not wait for a slow robot."""

    def __init__(self, speed: float) -> None:
        if speed <= 0:
            raise ValueError(f"the clock cannot run at {speed:g} times real time")
        self._speed = speed

    def now(self) -> float:
        """Return the seconds of this clock."""
        return time.monotonic() * self._speed

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds` of this clock."""
        await asyncio.sleep(max(0.0, seconds) / self._speed)


class VirtualClock:
    """A clock that moves only when `advance` or `wake_next` is called.

    It belongs to one event loop: await `sleep` and `advance` there.
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self._now = start_s
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._sequence_numbers = itertools.count()

    def now(self) -> float:
        """Return the virtual seconds."""
        return self._now

    @property
    def sleeper_count(self) -> int:
        """Number of sleeping tasks."""
        return sum(not wake_up.done() for _, _, wake_up in self._sleepers)

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has advanced by `seconds`; return at once for 0 or less."""
        if seconds <= 0:
            return
        wake_up = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._sequence_numbers), wake_up))
        await wake_up

    async def advance(self, seconds: float) -> None:
        """Advance by `seconds`, and wake every sleeper at its deadline, earliest first.

        Sleepers with the same deadline wake in the order in which they went to sleep. A task that wakes runs until
        it waits again before the clock moves on. Raise `ValueError` for a negative time.
        """
        if seconds < 0:
            raise ValueError(f"a clock cannot go back by {-seconds} s")
        end = self._now + seconds
        await self._run_ready_tasks()  # lets tasks that have just been created reach their first sleep
        while self.wake_next(end):
            await self._run_ready_tasks()

    @property
    def next_wake_s(self) -> float:
        """Time at which the next sleeper wakes; infinity if no task sleeps."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else math.inf

    def wake_next(self, end_s: float) -> bool:
        """Advance to the next deadline and wake its sleeper, but no further than `end_s`; return whether one woke.

        This is a step of `advance`, for callers that run the event loop themselves: run it after each step, so that
        the task that woke continues before the clock moves on.
        """
        if self.next_wake_s > end_s:
            self._now = end_s
            return False
        self._now, _, wake_up = heapq.heappop(self._sleepers)
        wake_up.set_result(None)
        return True

    async def _run_ready_tasks(self) -> None:
        for _ in range(_READY_PASS_COUNT):
            await asyncio.sleep(0)
