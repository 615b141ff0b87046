"""Progress of a wait for a device that is at work: lines of the logger `ocs_drivers.progress`.

    connect 1->10: 15 s so far; 2 moves in the device's queue
    connect 1->10: 20 s so far; no answer for 6 s, asking again

Nothing is told in the first seconds, and a line every few seconds after that.
"""

from __future__ import annotations

import logging

from ocs_drivers.engine.reports import describe_pairs
from ocs_drivers.model import Step
from ocs_drivers.timing import Clock, Silence

logger = logging.getLogger("ocs_drivers.progress")

EVERY_S = 5.0

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
        now_s = self._clock.now()
        if self._step is None or now_s - self._told_s < EVERY_S:
            return
        self._told_s = now_s
        logger.info("%s: %s", self._device, self._line(self._step, now_s - self._began_s, pending))

    def _line(self, step: Step, seconds: float, pending: int) -> str:
        parts = [f"{_VERBS[step.kind]} {describe_pairs(step.pairs.items())}: {seconds:.0f} s so far"]
        if self._silence.lasted_s:
            parts.append(f"no answer for {self._silence.lasted_s:.0f} s, asking again")
        elif pending:
            parts.append(f"{pending} move{'' if pending == 1 else 's'} in the device's queue")
        return "; ".join(parts)
