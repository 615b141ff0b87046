"""Progress of a wait for a device that is at work: lines of the logger `ocs_drivers.progress`.

    connect 1->10: 15 s so far; 2 moves in the device's queue
    connect 1->10: 20 s so far; no answer for 6 s, asking again
    connect 1->10: 25 s so far; no answer yet

Nothing is told in the first seconds, and a line every few seconds after that.
"""

from __future__ import annotations

import logging

from ocs_drivers.engine.reports import describe_pairs
from ocs_drivers.model import Step
from ocs_drivers.timing import Clock, Silence

logger = logging.getLogger("ocs_drivers.progress")

EVERY_S = 5.0

SOON_S = 0.001
"""A line that is due so soon is due: sums of seconds are not exact."""

_VERBS = {"add": "connect", "remove": "disconnect", "replace": "replace"}


class Progress:
    """The wait for one step."""

    def __init__(self, step: Step | None, device: str, clock: Clock, silence: Silence) -> None:
        self._step = step
        self._device = device
        self._clock = clock
        self._silence = silence
        self._began_s = self._told_s = clock.now()

    def tell(self, pending: int = 0) -> None:
        """Log a line when it is time for one; `pending` moves wait in the device's queue."""
        if self._silence.lasted_s:
            self._log(f"no answer for {self._silence.lasted_s:.0f} s, asking again")
        else:
            self._log(_queue(pending))

    def tell_of_question(self) -> float:
        """Log a line when it is time for one, while an answer is awaited; return the seconds to the next."""
        self._log("no answer yet")
        return self._due_s()

    def sleep(self, seconds: float, pending: int = 0) -> None:
        """Wait between two questions; log a line whenever it is time for one."""
        while (due_s := self._due_s()) < seconds:
            self._clock.sleep(due_s)
            seconds -= due_s
            self._log(_queue(pending))
        self._clock.sleep(seconds)

    def _due_s(self) -> float:
        due_s = self._told_s + EVERY_S - self._clock.now()
        return due_s if due_s > SOON_S else 0.0

    def _log(self, more: str) -> None:
        if self._due_s():
            return
        self._told_s = now_s = self._clock.now()
        if self._step is not None:
            made = f"{_VERBS[self._step.kind]} {describe_pairs(self._step.pairs.items())}"
            told = f"{made}: {now_s - self._began_s:.0f} s so far"
            logger.info("%s: %s", self._device, "; ".join(filter(None, (told, more))))


def _queue(pending: int) -> str:
    return f"{pending} move{'' if pending == 1 else 's'} in the device's queue" if pending else ""
