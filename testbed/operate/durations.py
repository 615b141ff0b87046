"""Seconds that steps take, learned from the journal by switch and kind of step, and what is left of a plan under way.

A step's seconds are those from its intent to its outcome: what an operator waits for. Only steps that the operation
itself saw done count; one that was concluded after a death says nothing of the device.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import Any

from ocs_drivers.model import Step
from testbed.operate.intent import read_journal
from testbed.operate.model import LabPlan

KEPT = 200
"""Newest steps of one switch and kind that count: a robot grows slower with the years."""

ENOUGH = 3
"""Steps from which times are learned; with fewer the driver's estimate stands."""

_DONE_STEPS = """
select s.switch, s.kind, s.intent_at, s.outcome_at from steps s join operations o on o.id = s.operation
where o.lab = ? and s.outcome = 'done' and s.reason = '' and s.outcome_at <= o.finished
order by s.intent_at desc limit 5000
"""


@dataclass(frozen=True, slots=True)
class Expected:
    """Seconds expected of steps: the median, and what 95 of 100 do not exceed.

    `samples` are the steps of the journal that this is learned from; 0 where it is the driver's estimate.
    """

    median_s: float
    p95_s: float
    samples: int = 0

    def json(self) -> dict[str, float | int]:
        """Return the same for programs."""
        return {"median_s": self.median_s, "p95_s": self.p95_s, "samples": self.samples}


@dataclass(frozen=True, slots=True)
class Durations:
    """Durations of steps, in seconds, the newest first, by switch and kind of step."""

    seconds: Mapping[tuple[str, str], Sequence[float]] = field(default_factory=dict)

    def step(self, switch: str, step: Step) -> Expected:
        """Return the seconds expected of a step.

        >>> from ocs_drivers.model import CrossConnects
        >>> none = CrossConnects()
        >>> Durations({("ocs1", "add"): [59.0, 60.0, 70.0]}).step("ocs1", Step("add", none, none, none, 1.0))
        Expected(median_s=60.0, p95_s=70.0, samples=3)
        """
        known = self.seconds.get((switch, step.kind), ())
        if len(known) < ENOUGH:
            return Expected(step.estimated_s, step.estimated_s)
        return Expected(statistics.median(known), _percentile_95(known), len(known))

    def switch(self, switch: str, steps: Iterable[Step]) -> Expected:
        """Return the sum over steps that one switch makes one after the other; of `p95_s` it is an upper bound."""
        parts = [self.step(switch, step) for step in steps]
        samples = min((part.samples for part in parts), default=0)
        return Expected(sum(part.median_s for part in parts), sum(part.p95_s for part in parts), samples)

    def plan(self, plan: LabPlan) -> Expected:
        """Return the seconds of a whole plan: switches work at the same time, so the slowest counts."""
        parts = [self.switch(part.switch, part.steps) for part in plan.switches if part.steps]
        if not parts:
            return Expected(0.0, 0.0)
        samples = min(part.samples for part in parts)
        return Expected(max(part.median_s for part in parts), max(part.p95_s for part in parts), samples)


def learn_durations(runs_dir: str | Path, lab: str) -> Durations:
    """Return durations of the steps of a lab in the journal; none where there is none. Raises `JournalError`."""
    return durations_of(read_journal(runs_dir, _DONE_STEPS, lab))


def durations_of(rows: Iterable[Mapping[str, Any]]) -> Durations:
    """Return durations from rows of the journal, the newest first; a clock that stepped back tells none."""
    seconds: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        took_s = (_moment(row["outcome_at"]) - _moment(row["intent_at"])).total_seconds()
        known = seconds[row["switch"], row["kind"]]
        if took_s >= 0 and len(known) < KEPT:
            known.append(took_s)
    return Durations(dict(seconds))


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _percentile_95(values: Sequence[float]) -> float:
    """Return the nearest rank: one of the values, the largest of fewer than 20."""
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]


def seconds(value_s: float) -> str:
    """Return seconds in words, as exact as an expectation is.

    >>> seconds(0.0234), seconds(7.26), seconds(1440.4)
    ('0.02 s', '7.3 s', '1440 s')
    """
    digits = 0 if value_s >= 10 else 1 if value_s >= 1 else 2
    return f"{value_s:.{digits}f} s"


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

    def finish_step(self, switch: str) -> tuple[int, str]:
        """Note that a switch has done its next step; return the percentage of the time, and the rest in words."""
        with self._telling:
            self._left_s[switch][:1] = []
            spent = 1.0 - self.left_s / self.total_s if self.total_s else 1.0
            done = self._steps - self._steps_left
            return round(100 * spent), f"{done} of {self._steps} steps, about {seconds(self.left_s)} left"
