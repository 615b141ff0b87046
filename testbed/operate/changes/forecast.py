"""Progress of a plan under way: the steps that are done, and the seconds that the rest is expected to take."""

from __future__ import annotations

from threading import Lock

from testbed.operate.changes.durations import Durations, seconds
from testbed.operate.model import LabPlan


class Forecast:
    """Steps and seconds that are left of a plan; switches tell of their steps from threads of their own."""

    def __init__(self, plan: LabPlan, durations: Durations) -> None:
        self._left_s = {
            part.switch: [durations.step(part.switch, step).median_s for step in part.steps]
            for part in plan.switches
        }
        self._telling = Lock()
        self._steps = self._steps_left
        self.total_s = self.left_s

    @property
    def _steps_left(self) -> int:
        return sum(map(len, self._left_s.values()))

    @property
    def left_s(self) -> float:
        """Seconds until the last switch is done."""
        return max((sum(left) for left in self._left_s.values()), default=0.0)

    def done(self, switch: str) -> tuple[int, str]:
        """Note that a switch has done its next step; return the percentage of the time, and the rest in words."""
        with self._telling:
            self._left_s[switch][:1] = []
            spent = 1.0 - self.left_s / self.total_s if self.total_s else 1.0
            done = self._steps - self._steps_left
            return round(100 * spent), f"{done} of {self._steps} steps, about {seconds(self.left_s)} left"
