"""Clocks and deadlines of drivers, and time limits for devices that do not answer.

The clock is injected, so that tests need not wait for slow robots.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Clock(Protocol):
    """A monotonic clock that can sleep."""

    def now(self) -> float:
        """Return the seconds since a fixed moment."""

    def sleep(self, seconds: float) -> None:
        """Block for `seconds`; used only between polls."""


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Return the seconds of the monotonic clock."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Put the thread to sleep."""
        time.sleep(seconds)


SYSTEM_CLOCK = SystemClock()


class Deadline:
    """The time at which a wait must end, on a clock."""

    __slots__ = ("_clock", "_end_s", "_late_read_count", "is_part", "silence_s", "timeout_s")

    def __init__(
        self, timeout_s: float, clock: Clock = SYSTEM_CLOCK, *, silence_s: float | None = None
    ) -> None:
        self.timeout_s = timeout_s
        self.silence_s = silence_s
        """Seconds for which the device has been silent when the wait ends, if a `Silence` limits it; else None."""
        self.is_part = False
        """True for a part of a longer wait, which continues afterwards."""
        self._late_read_count = 0
        self._clock = clock
        self._end_s = clock.now() + timeout_s

    def allow_read(self) -> bool:
        """Return True before the deadline, and for the first call after it.

        The read after the deadline returns input that arrived in time. Later calls return False, so that a device that
        never stops sending cannot prolong the wait.
        """
        self._late_read_count += self.is_over
        return self._late_read_count <= 1

    @property
    def has_refused_read(self) -> bool:
        """True if a read was refused after the deadline: the device still sends, but no answer was complete."""
        return self._late_read_count > 1

    def remaining_s(self) -> float:
        """Return the seconds left, never negative."""
        return max(0.0, self._end_s - self._clock.now())

    @property
    def is_over(self) -> bool:
        """True if no time is left."""
        return self._clock.now() >= self._end_s

    def make_part(self, seconds: float) -> Deadline:
        """Return the deadline of a part of this wait that lasts `seconds`."""
        part = Deadline(seconds, self._clock)
        part.is_part = True
        return part

    def extend(self, seconds: float) -> None:
        """Move the deadline by `seconds`."""
        self.timeout_s += seconds
        self._end_s += seconds


READ_MARGIN_S = 2.0
"""Extra time to read a device after an unanswered query whose own time exceeds the limit of the silence."""


class Silence:
    """The time for which a device has not answered, over several queries and reconnections."""

    __slots__ = ("_clock", "_last_answer_s", "_silence_limit_s", "_silent_since_s", "limit_s", "report_wait")

    def __init__(self, limit_s: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self.limit_s = limit_s
        self._clock = clock
        self._silent_since_s: float | None = None
        self._last_answer_s = clock.now()
        self._silence_limit_s = limit_s
        self.report_wait: Callable[[], float] | None = None

    def record_query(self, answer_s: float | None = None) -> None:
        """Record a query whose answer may take `answer_s` (default: the limit). The first query starts the silence.

        The limit counts from the last answer, but every query gets at least `answer_s`. If `answer_s` is longer than
        the limit, `READ_MARGIN_S` is added, to read the device after the query.
        """
        now_s = self._clock.now()
        answer_s = self.limit_s if answer_s is None else answer_s
        if self._silent_since_s is None:
            self._silent_since_s = now_s
            self._silence_limit_s = self.limit_s - min(
                now_s - self._last_answer_s, max(self.limit_s - answer_s, 0.0)
            )
        if answer_s > self.limit_s:
            self._silence_limit_s = max(
                self._silence_limit_s, now_s - self._silent_since_s + answer_s + READ_MARGIN_S
            )

    def record_answer(self) -> None:
        """Record an answer, which ends the silence."""
        self._silent_since_s = None
        self._silence_limit_s = self.limit_s
        self._last_answer_s = self._clock.now()

    @property
    def duration_s(self) -> float:
        """Seconds since the first unanswered query, or 0 without an unanswered query."""
        return 0.0 if self._silent_since_s is None else self._clock.now() - self._silent_since_s

    def remaining_s(self) -> float:
        """Return the seconds until the device counts as silent."""
        return max(0.0, self._silence_limit_s - self.duration_s)

    def outage_remaining_s(self, min_outage_s: float) -> float:
        """Return the seconds left for an unreachable device, counted from its last answer.

        The device gets at least `min_outage_s` from the first unanswered query, because the last answer may be old. The
        allowed silence is raised to the limit, so that a last attempt has time to connect.
        """
        self._silence_limit_s = max(self._silence_limit_s, self.limit_s)
        from_answer_s = self._last_answer_s + self.limit_s - self._clock.now()
        return max(0.0, min(self.remaining_s(), max(from_answer_s, min_outage_s - self.duration_s)))

    def start_query(self, timeout_s: float) -> Deadline:
        """Record a query; return the deadline of its answer: after `timeout_s`, or earlier if the silence ends."""
        self.record_query(timeout_s)
        remaining_s = self.remaining_s()
        if timeout_s <= remaining_s:
            return Deadline(timeout_s, self._clock)
        return Deadline(remaining_s, self._clock, silence_s=self.duration_s + remaining_s)

    @contextmanager
    def limit_waits(self, report_wait: Callable[[], float] | None = None) -> Iterator[Silence]:
        """Limit every wait in the block. Long waits call `report_wait`, which returns the seconds to its next call."""
        self.report_wait = report_wait
        token = _silence.set(self)
        try:
            yield self
        finally:
            _silence.reset(token)


_silence: ContextVar[Silence | None] = ContextVar("silence", default=None)


def make_answer_deadline(timeout_s: float, clock: Clock = SYSTEM_CLOCK) -> Deadline:
    """Return the deadline of an answer: `timeout_s` from now, or earlier inside `Silence.limit_waits`.

    A query that may take longer than the limit of the silence gets its full time.
    """
    silence = _silence.get()
    return Deadline(timeout_s, clock) if silence is None else silence.start_query(timeout_s)


def split_deadline(deadline: Deadline) -> Iterator[Deadline]:
    """Yield the parts of a wait, then the deadline itself; call `report_wait` of the silence before each part."""
    silence = _silence.get()
    report_wait = silence.report_wait if silence is not None else None
    while report_wait is not None and (part_s := report_wait()) < deadline.remaining_s():
        yield deadline.make_part(part_s)
    yield deadline


def record_answer() -> None:
    """Record that the device has answered, inside `Silence.limit_waits`."""
    silence = _silence.get()
    if silence is not None:
        silence.record_answer()
