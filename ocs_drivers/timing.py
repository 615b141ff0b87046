"""The time that drivers live in. Injected, so that tests decide how long a robot's minutes take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
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
        """Put the thread to sleep."""
        time.sleep(seconds)


SYSTEM_CLOCK = SystemClock()


class Deadline:
    """The moment a wait must end, on a clock."""

    __slots__ = ("_clock", "_end_s", "_late_looks", "is_part", "silence_s", "timeout_s")

    def __init__(
        self, timeout_s: float, clock: Clock = SYSTEM_CLOCK, *, silence_s: float | None = None
    ) -> None:
        self.timeout_s = timeout_s
        self.silence_s = silence_s
        """Seconds that the device will have answered nothing, where that is why the wait ends."""
        self.is_part = False
        """True for a part of a longer wait, which goes on afterwards."""
        self._late_looks = 0
        self._clock = clock
        self._end_s = clock.now() + timeout_s

    def allow_look(self) -> bool:
        """Return True before the end, and once after it, for what had arrived by then.

        A device that sends without end would otherwise be listened to for ever.
        """
        self._late_looks += self.passed
        return self._late_looks <= 1

    @property
    def is_flooded(self) -> bool:
        """True if bytes came up to the end and beyond, and the answer was not among them."""
        return self._late_looks > 1

    def remaining_s(self) -> float:
        """Return the seconds left, never negative."""
        return max(0.0, self._end_s - self._clock.now())

    @property
    def passed(self) -> bool:
        """True when nothing is left."""
        return self._clock.now() >= self._end_s

    def part(self, seconds: float) -> Deadline:
        """Return the end of the next `seconds` of a longer wait."""
        part = Deadline(seconds, self._clock)
        part.is_part = True
        return part

    def extend(self, seconds: float) -> None:
        """Give more time, because something else was shown to be in the way."""
        self.timeout_s += seconds
        self._end_s += seconds


LOOK_S = 2.0
"""Time to look at a device that left a question unanswered which may take longer than the limit of a silence."""


class Silence:
    """The time that a device leaves questions unanswered, over several of them and over new connections."""

    __slots__ = ("_allowed_s", "_clock", "_heard_s", "_since_s", "limit_s", "tell")

    def __init__(self, limit_s: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self.limit_s = limit_s
        self._clock = clock
        self._since_s: float | None = None
        self._heard_s = clock.now()
        self._allowed_s = limit_s
        self.tell: Callable[[], float] | None = None

    def note_question(self, takes_s: float | None = None) -> None:
        """Note a question, whose answer may take `takes_s` (default: the limit); the first after an answer counts.

        The limit counts from the last answer, as far as that leaves the question its time. A question that may take
        longer than the limit is given its time, and a short while is left to look at the device after it.
        """
        now_s = self._clock.now()
        takes_s = self.limit_s if takes_s is None else takes_s
        if self._since_s is None:
            self._since_s = now_s
            self._allowed_s = self.limit_s - min(now_s - self._heard_s, max(self.limit_s - takes_s, 0.0))
        if takes_s > self.limit_s:
            self._allowed_s = max(self._allowed_s, now_s - self._since_s + takes_s + LOOK_S)

    def note_answer(self) -> None:
        """Note an answer."""
        self._since_s = None
        self._allowed_s = self.limit_s
        self._heard_s = self._clock.now()

    @property
    def lasted_s(self) -> float:
        """Seconds since the first unanswered question; 0 when there is none."""
        return 0.0 if self._since_s is None else self._clock.now() - self._since_s

    def remaining_s(self) -> float:
        """Return the seconds until the device counts as silent."""
        return max(0.0, self._allowed_s - self.lasted_s)

    def remaining_of_outage_s(self, shortest_s: float) -> float:
        """Return the seconds left to a device that nobody reaches: they count from its last answer.

        A short while is given from the first question on, since a pause may have been before that. An attempt at
        their very end is given time to connect, too.
        """
        self._allowed_s = max(self._allowed_s, self.limit_s)
        from_answer_s = self._heard_s + self.limit_s - self._clock.now()
        return max(0.0, min(self.remaining_s(), max(from_answer_s, shortest_s - self.lasted_s)))

    def deadline(self, timeout_s: float) -> Deadline:
        """Return the moment when the answer to a question that is asked now must be there."""
        self.note_question(timeout_s)
        left_s = self.remaining_s()
        if timeout_s <= left_s:
            return Deadline(timeout_s, self._clock)
        return Deadline(left_s, self._clock, silence_s=self.lasted_s + left_s)

    @contextmanager
    def watch(self, tell: Callable[[], float] | None = None) -> Iterator[Silence]:
        """Bound the wait of every question inside; `tell` is called in a longer wait, as often as it returns."""
        self.tell = tell
        before = _silence.set(self)
        try:
            yield self
        finally:
            _silence.reset(before)


_silence: ContextVar[Silence | None] = ContextVar("silence", default=None)


def answer_deadline(timeout_s: float, clock: Clock = SYSTEM_CLOCK) -> Deadline:
    """Return the moment when an answer must be there: after `timeout_s`, or earlier where a `Silence` is watched.

    A question that may take longer than the limit of the silence by itself is given its time.
    """
    silence = _silence.get()
    return Deadline(timeout_s, clock) if silence is None else silence.deadline(timeout_s)


def parts_of(deadline: Deadline) -> Iterator[Deadline]:
    """Yield the parts of a wait up to a deadline, which is the last; between them, `Silence.watched` tells of it."""
    silence = _silence.get()
    tell = silence.tell if silence is not None else None
    while tell is not None and (part_s := tell()) < deadline.remaining_s():
        yield deadline.part(part_s)
    yield deadline


def note_answer() -> None:
    """Note that the device has answered, where a `Silence` is watched."""
    silence = _silence.get()
    if silence is not None:
        silence.note_answer()
