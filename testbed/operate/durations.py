"""Durations of steps, learned from the journal by switch and kind of step, and the progress of a running plan.

The duration of a step runs from its intent to its outcome, which is what an operator waits for. Only steps that were
done within their operation count, because an outcome that was recorded later says nothing about the device.
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

MAX_SAMPLES = 200
"""Number of newest steps of one switch and kind that count, because a robot grows slower with the years."""

MIN_SAMPLES = 3
"""Smallest number of steps to learn from. With fewer, the driver's estimate is used."""

_DONE_STEPS_QUERY = """
select s.switch, s.kind, s.intent_at, s.outcome_at from steps s join operations o on o.id = s.operation
where o.lab = ? and s.outcome = 'done' and s.reason = '' and s.outcome_at <= o.finished
order by s.intent_at desc limit 5000
"""


@dataclass(frozen=True, slots=True)
class ExpectedDuration:
    """Expected duration of steps: the median, and the 95th percentile.

    `sample_count` is the number of journal steps behind it, or 0 for a driver's estimate.
    """

    median_s: float
    p95_s: float
    sample_count: int = 0

    def json(self) -> dict[str, float | int]:
        """Return the three fields for JSON documents."""
        return {"median_s": self.median_s, "p95_s": self.p95_s, "samples": self.sample_count}


@dataclass(frozen=True, slots=True)
class Durations:
    """Durations of earlier steps in seconds, the newest first, by switch and kind of step."""

    durations_by_step_s: Mapping[tuple[str, str], Sequence[float]] = field(default_factory=dict)

    def estimate_step(self, switch: str, step: Step) -> ExpectedDuration:
        """Return the expected duration of a step: learned, or the driver's estimate if too few are known.

        >>> from ocs_drivers.model import CrossConnects
        >>> none = CrossConnects()
        >>> Durations({("ocs1", "add"): [59.0, 60.0, 70.0]}).estimate_step(
        ...     "ocs1", Step("add", none, none, none, 1.0)
        ... )
        ExpectedDuration(median_s=60.0, p95_s=70.0, sample_count=3)
        """
        durations_s = self.durations_by_step_s.get((switch, step.kind), ())
        if len(durations_s) < MIN_SAMPLES:
            return ExpectedDuration(step.estimated_s, step.estimated_s)
        return ExpectedDuration(
            statistics.median(durations_s), _compute_percentile_95(durations_s), len(durations_s)
        )

    def estimate_switch(self, switch: str, steps: Iterable[Step]) -> ExpectedDuration:
        """Return the sum over the steps of one switch, which run in sequence. The sum of `p95_s` is an upper bound."""
        step_durations = [self.estimate_step(switch, step) for step in steps]
        sample_count = min((duration.sample_count for duration in step_durations), default=0)
        return ExpectedDuration(
            sum(duration.median_s for duration in step_durations),
            sum(duration.p95_s for duration in step_durations),
            sample_count,
        )

    def estimate_plan(self, plan: LabPlan) -> ExpectedDuration:
        """Return the expected duration of a plan: switches work in parallel, so the slowest one counts."""
        switch_durations = [
            self.estimate_switch(part.switch, part.steps) for part in plan.switches if part.steps
        ]
        if not switch_durations:
            return ExpectedDuration(0.0, 0.0)
        sample_count = min(duration.sample_count for duration in switch_durations)
        return ExpectedDuration(
            max(duration.median_s for duration in switch_durations),
            max(duration.p95_s for duration in switch_durations),
            sample_count,
        )


def learn_durations(runs_dir: str | Path, lab: str) -> Durations:
    """Return the durations of a lab's steps in the journal. They are empty without a journal. Raises `JournalError`."""
    return parse_durations(read_journal(runs_dir, _DONE_STEPS_QUERY, lab))


def parse_durations(rows: Iterable[Mapping[str, Any]]) -> Durations:
    """Return durations from rows of the journal, newest first. Negative ones are left out, because the clock moved."""
    durations_by_step_s: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        duration_s = (_parse_time(row["outcome_at"]) - _parse_time(row["intent_at"])).total_seconds()
        durations_s = durations_by_step_s[row["switch"], row["kind"]]
        if duration_s >= 0 and len(durations_s) < MAX_SAMPLES:
            durations_s.append(duration_s)
    return Durations(dict(durations_by_step_s))


def _parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _compute_percentile_95(values: Sequence[float]) -> float:
    """Return the 95th percentile by the nearest-rank method. Of fewer than 20 values, it is the largest value."""
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]


def format_seconds(value_s: float) -> str:
    """Return an expected duration as text, rounded coarsely.

    >>> format_seconds(0.0234), format_seconds(7.26), format_seconds(1440.4)
    ('0.02 s', '7.3 s', '1440 s')
    """
    decimals = 0 if value_s >= 10 else 1 if value_s >= 1 else 2
    return f"{value_s:.{decimals}f} s"


class Forecast:
    """Steps and seconds that remain of a plan. Thread-safe: each switch reports its steps from its own thread."""

    def __init__(self, plan: LabPlan, durations: Durations) -> None:
        self._remaining_by_switch_s = {
            part.switch: [durations.estimate_step(part.switch, step).median_s for step in part.steps]
            for part in plan.switches
        }
        self._lock = Lock()
        self._total_step_count = self._remaining_step_count
        self.total_s = self.remaining_s

    @property
    def _remaining_step_count(self) -> int:
        return sum(map(len, self._remaining_by_switch_s.values()))

    @property
    def remaining_s(self) -> float:
        """Expected seconds until the last switch is done."""
        return max((sum(steps_s) for steps_s in self._remaining_by_switch_s.values()), default=0.0)

    def finish_step(self, switch: str) -> tuple[int, str]:
        """Record that a switch has done its next step; return the progress in percent of time, and as text."""
        with self._lock:
            self._remaining_by_switch_s[switch][:1] = []
            time_share = 1.0 - self.remaining_s / self.total_s if self.total_s else 1.0
            done_count = self._total_step_count - self._remaining_step_count
            return (
                round(100 * time_share),
                f"{done_count} of {self._total_step_count} steps, about {format_seconds(self.remaining_s)} left",
            )
