"""Processor time of Cassini's best rotations, and of its schedule for a thousand jobs.

One JSON line each: two jobs on 72 bins; five jobs, the median of sixty random cases; five jobs with the longest search;
a thousand jobs on 256 links. The first search compiles and does not count.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable

import numpy as np

from sim.models.contention.job import Burst, PeriodicJob
from testbed.design.sharing.cassini.circle import Rounding, make_circle
from testbed.design.sharing.cassini.rotation import find_best_rotation
from testbed.design.sharing.cassini.schedule import Scheduler
from testbed.design.sharing.jobs import Burst as SharedBurst
from testbed.design.sharing.jobs import LabLinks, SharedJob

HARD_ROWS = (
    [(100, (0, 20, 50))] * 5,
    [(120, (0, 12, 50), (30, 12, 25))] * 5,
    [(period, (0, period // 5, 50)) for period in (40, 60, 80, 120, 240)],
)


def main() -> None:
    chance = np.random.default_rng(1)
    two = [(40, (0, 10, 50)), (60, (0, 10, 50))]
    rotation_ms(two)  # compiles
    report("two jobs", min(rotation_ms(two, 500) for _ in range(5)), asked_ms=0.03)
    report("five jobs", statistics.median(rotation_ms(five_jobs(chance)) for _ in range(60)), asked_ms=20)
    report("hard rows", max(min(rotation_ms(row) for _ in range(3)) for row in HARD_ROWS), asked_ms=120)
    scheduler, places = thousand_jobs()
    report("a thousand jobs", milliseconds(lambda: scheduler.schedule([places])), asked_ms=10_000)


def report(case: str, measured_ms: float, asked_ms: float) -> None:
    line = {"benchmark": "sharing", "case": case, "processor_ms": round(measured_ms, 4), "asked_ms": asked_ms}
    print(json.dumps(line), flush=True)


def milliseconds(work: Callable[[], object], repeats: int = 1) -> float:
    """Return the mean processor time of the repeats, in ms."""
    begin_s = time.process_time()
    for _ in range(repeats):
        work()
    return (time.process_time() - begin_s) / repeats * 1e3


def rotation_ms(rows: list[tuple], repeats: int = 1) -> float:
    """Return the processor time in ms of the best rotation; a row is a period and bursts (start, length, rate)."""
    jobs = [
        PeriodicJob(str(number), period_ms, tuple(Burst(*burst) for burst in bursts))
        for number, (period_ms, *bursts) in enumerate(rows)
    ]
    circle = make_circle(jobs, 50.0, Rounding(bin_count=72))
    return milliseconds(lambda: find_best_rotation(circle, 60.0), repeats)


def five_jobs(chance: np.random.Generator) -> list[tuple]:
    rows = []
    for _ in range(5):
        period_ms = int(chance.choice([40, 60, 80, 120, 240]))
        length_ms = int(chance.integers(period_ms // 10, period_ms // 4))
        high, low = int(chance.choice([20, 25, 40, 50])), int(chance.choice([10, 20, 30]))
        rows.append((period_ms, (0, length_ms, high), (length_ms, length_ms, low)))
    return rows


def thousand_jobs() -> tuple[Scheduler, dict[str, tuple[str, ...]]]:
    """Return a scheduler with jobs on neighbouring hosts of a chain of 257, and the hosts of each job."""
    draw = random.Random(7)
    hosts = tuple(f"h{number}" for number in range(257))
    jobs = []
    for number in range(1000):
        first = draw.randrange(256) if number >= 256 else number
        period_ms, fraction = draw.choice([120, 160, 200, 240]), draw.choice([0.1, 0.2, 0.25, 0.3])
        burst = SharedBurst(period_ms * (1 - fraction), period_ms * fraction, 25.0)
        jobs.append(SharedJob(f"j{number}", period_ms, (burst,), hosts[first : first + 2], 2))
    return Scheduler(jobs, LabLinks(hosts, 25.0)), {each.name: each.hosts for each in jobs}


if __name__ == "__main__":
    main()
