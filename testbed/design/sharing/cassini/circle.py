"""Circle of a link: the demands of its jobs around the least common multiple of their periods.

A tick is the greatest common divisor of all periods and burst edges. Among the best shifts, there are always some that
align burst edges. So whole ticks suffice, and the result is exact for the rounded times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.models.contention.job import PeriodicJob
from testbed.errors import WorkloadError

Floats = NDArray[np.float64]

QUANTUM_MS = 1.0
MAX_TICKS = 100_000
KBPS = 1e6
"""kbit/s per Gbit/s. Demands are whole numbers of kbit/s, so sums are exact and ties are recognised."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """Rounding of times to multiples of `quantum_ms`, for circles of at most `max_ticks` ticks.

    If `bin_count` is not 0, the circle has this number of equal bins instead of ticks (72 in the paper).
    """

    quantum_ms: float = QUANTUM_MS
    bin_count: int = 0
    max_ticks: int = MAX_TICKS

    def count_period_quanta(self, job: PeriodicJob) -> int:
        """Return the period in quanta. Raises `WorkloadError` if it rounds to 0."""
        count = round(job.period_ms / self.quantum_ms)
        if count < 1:
            raise WorkloadError(
                f"the period of job {job.name!r} ({job.period_ms:g} ms) is less than half the quantum of "
                f"{self.quantum_ms:g} ms: give a smaller --quantum-ms"
            )
        return count

    def list_burst_edges(self, job: PeriodicJob) -> list[tuple[int, int, int]]:
        """Return the begin and end of each burst in quanta, and its rate in kbit/s."""
        period = self.count_period_quanta(job)
        times = [(burst.start_ms, burst.end_ms, burst.gbps) for burst in job.bursts]
        return [
            (
                min(round(begin_ms / self.quantum_ms), period),
                min(round(end_ms / self.quantum_ms), period),
                round(gbps * KBPS),
            )
            for begin_ms, end_ms, gbps in times
        ]

    def is_exact(self, job: PeriodicJob) -> bool:
        """Return whether all times of the job are multiples of the quantum."""
        times = [job.period_ms, *(time for burst in job.bursts for time in (burst.start_ms, burst.end_ms))]
        return all(abs(time / self.quantum_ms - round(time / self.quantum_ms)) < 1e-6 for time in times)


@dataclass(frozen=True, slots=True, eq=False)
class Circle:
    """Unified circle of a link.

    - `tick`: length of a tick in quanta.
    - `demands`: each job's demand in kbit/s at each tick.
    - `repeat_counts`: number of periods of each job around the circle.
    - `shift_counts`: number of different shifts of each job: its period in ticks.
    - `capacity`: rate of the link in kbit/s.
    - `is_approximate`: whether times were rounded.
    - `is_periodic`: whether every period is a whole number of ticks.
    """

    tick: float
    demands: tuple[Floats, ...]
    repeat_counts: tuple[int, ...]
    shift_counts: tuple[int, ...]
    capacity: float
    is_approximate: bool
    is_periodic: bool

    @property
    def tick_count(self) -> int:
        """Perimeter in ticks."""
        return len(self.demands[0])

    def compute_score(self, excess: float) -> float:
        """Return Cassini's score of a total excess: 1 if jobs are fully compatible; it may be negative."""
        return 1.0 - float(excess) / (self.tick_count * self.capacity)

    def shift_demands(self, shifts: Sequence[int]) -> list[Floats]:
        """Return the demands, each delayed by its number of ticks."""
        return [np.roll(demand, shift) for demand, shift in zip(self.demands, shifts, strict=True)]

    def compute_excess(self, shifts: Sequence[int]) -> float:
        """Return the total demand above the capacity after these shifts, in ticks."""
        total_demand = np.sum(self.shift_demands(shifts), axis=0)
        return float(np.maximum(total_demand - self.capacity, 0.0).sum())


def make_circle(
    jobs: Sequence[PeriodicJob], capacity_gbps: float, rounding: Rounding | None = None
) -> Circle:
    """Return the circle of a link's jobs. Raises `WorkloadError` if it has more than `max_ticks` ticks."""
    rounding = rounding or Rounding()
    periods = [rounding.count_period_quanta(job) for job in jobs]
    edges_by_job = [rounding.list_burst_edges(job) for job in jobs]
    perimeter = math.lcm(*periods)
    is_exact = all(rounding.is_exact(job) for job in jobs)
    # Rates are whole numbers of kbit/s, so their sums are exact.
    capacity = float(round(capacity_gbps * KBPS))
    if rounding.bin_count:
        return _make_binned_circle(periods, edges_by_job, perimeter, capacity, rounding.bin_count)
    tick = math.gcd(
        *periods, *(time for burst_edges in edges_by_job for span in burst_edges for time in span[:2])
    )
    if perimeter // tick > rounding.max_ticks:
        names = ", ".join(f"{job.name} ({job.period_ms:g} ms)" for job in jobs)
        raise WorkloadError(
            f"the least common multiple of the periods of {names} is {perimeter // tick} ticks, above the cap of "
            f"{rounding.max_ticks}: give a coarser --quantum-ms than {rounding.quantum_ms:g}, or raise --most-ticks"
        )
    demands = tuple(
        np.tile(_make_pattern(burst_edges, period, tick), perimeter // period)
        for burst_edges, period in zip(edges_by_job, periods, strict=True)
    )
    repeat_counts = tuple(perimeter // period for period in periods)
    shift_counts = tuple(period // tick for period in periods)
    return Circle(float(tick), demands, repeat_counts, shift_counts, capacity, not is_exact, is_periodic=True)


def _make_pattern(burst_edges: Sequence[tuple[int, int, int]], period: int, tick: int) -> Floats:
    demand = np.zeros(period // tick)
    for begin, end, rate in burst_edges:
        demand[begin // tick : end // tick] += rate
    return demand


def _make_binned_circle(
    periods: Sequence[int],
    edges_by_job: Sequence[Sequence[tuple[int, int, int]]],
    perimeter: int,
    capacity: float,
    bin_count: int,
) -> Circle:
    """Return a circle of `bin_count` equal bins with mean demands.

    It is approximate unless all edges are on bin borders.
    """
    borders = np.arange(bin_count + 1) * (perimeter / bin_count)
    demands = []
    for period, burst_edges in zip(periods, edges_by_job, strict=True):
        sent_kbit = np.zeros(bin_count + 1)
        for begin, end, rate in burst_edges:
            full_periods, time_in_period = np.divmod(borders, period)
            sent_kbit += rate * (
                full_periods * (end - begin) + np.clip(time_in_period - begin, 0, end - begin)
            )
        demands.append(np.rint(np.diff(sent_kbit) / (perimeter / bin_count)))
    repeat_counts = tuple(perimeter // period for period in periods)
    is_aligned = all(
        (time * bin_count) % perimeter == 0
        for period, burst_edges in zip(periods, edges_by_job, strict=True)
        for time in (period, *(edge for span in burst_edges for edge in span[:2]))
    )
    shift_counts = tuple(max(bin_count // repeat_count, 1) for repeat_count in repeat_counts)
    is_periodic = all(bin_count % repeat_count == 0 for repeat_count in repeat_counts)
    return Circle(
        perimeter / bin_count,
        tuple(demands),
        repeat_counts,
        shift_counts,
        capacity,
        not is_aligned,
        is_periodic,
    )
