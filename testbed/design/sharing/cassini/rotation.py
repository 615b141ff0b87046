"""Rotation: the best shifts of the jobs on one link.

Excess is demand above the link's rate, summed over ticks. It is computed for all shifts of a job on top of other jobs,
directly or by correlation. For two jobs, this yields the best shift. More jobs need a depth-first branch and bound. The
bound of a partial choice is its excess plus, for each remaining job, the least excess that it adds: excess is convex in
the demand, so jobs together add at least as much. The total demand above the link's capacity is another bound.

Shifting all jobs together changes nothing. The first job is therefore fixed. Each later job needs only the shifts below
the greatest common divisor of its period and the joint period of the jobs before it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from testbed.design.sharing.cassini.circle import Circle, Floats

TIME_LIMIT_S = 2.0
_ROUNDING = 1e-7

MAX_MATRIX_ENTRIES = 40_000
"""Maximum entries of the matrix of all shifts. Above, correlation by FFT is faster."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """Shifts of a link's jobs in ticks, their excess, and whether this is proven to be the least."""

    shifts: tuple[int, ...]
    excess: float
    is_proven: bool


def find_best_rotation(
    circle: Circle, time_limit_s: float = TIME_LIMIT_S, clock: Callable[[], float] = time.process_time
) -> Rotation:
    """Return the best shifts; ties go to the smallest.

    After the time limit, the best shifts so far are improved job by job. The result is then not proven unless it
    reaches the lower bound.
    """
    # Fix the job with the most shifts, to leave the fewest combinations. Then large demands make the bound tight early.
    demand_sums = [float(demand.sum()) for demand in circle.demands]
    first_job = min(
        range(len(demand_sums)), key=lambda job: (circle.repeat_counts[job], -demand_sums[job], job)
    )
    other_jobs = sorted(
        (job for job in range(len(demand_sums)) if job != first_job), key=lambda job: (-demand_sums[job], job)
    )
    order = [first_job, *other_jobs]
    shift_counts = [1]
    joint_period = circle.shift_counts[order[0]]
    for job in order[1:]:
        own_shift_count = circle.shift_counts[job]
        shift_counts.append(
            math.gcd(own_shift_count, joint_period) if circle.is_periodic else own_shift_count
        )
        joint_period = math.lcm(own_shift_count, joint_period)
    demands = [circle.demands[job_index] for job_index in order]
    if len(order) == 1:
        return Rotation((0,), circle.compute_excess([0]), is_proven=True)
    if len(order) == 2:
        excesses = compute_shift_excess(demands[0], demands[1], shift_counts[1], circle.capacity)
        shift = int(excesses.argmin())
        job_shifts, excess, is_proven = [0, shift], float(excesses[shift]), True
    else:
        search = _RotationSearch(demands, shift_counts, circle.capacity, clock() + time_limit_s, clock)
        job_shifts, excess, is_proven = search.solve()
    shift_by_job = [0] * len(order)
    for job_index, shift in zip(order, job_shifts, strict=True):
        shift_by_job[job_index] = shift
    return Rotation(tuple(shift_by_job), excess, is_proven)


@dataclass(slots=True)
class _RotationSearch:
    """Depth-first branch and bound over the shifts of jobs in a fixed order."""

    demands: list[Floats]
    shift_counts: list[int]
    capacity: float
    deadline_s: float
    clock: Callable[[], float]
    least_excess: float = math.inf
    best_shifts: list[int] = field(default_factory=list)
    lower_bound: float = 0.0
    is_late: bool = False

    def solve(self) -> tuple[list[int], float, bool]:
        """Return the best shifts, their excess, and whether this is proven to be the least."""
        total_demand = float(np.sum(self.demands))
        self.lower_bound = max(0.0, total_demand - self.demands[0].size * self.capacity)
        self.best_shifts = [0] * len(self.demands)
        self.least_excess = self._sum_excess(np.sum(self.demands, axis=0))
        self._improve()
        first_demand = self.demands[0]
        self._descend(first_demand, [0], self._sum_excess(first_demand))
        if self.is_late:
            self._improve()
        return self.best_shifts, self.least_excess, not self.is_late or self._is_optimal()

    def _sum_excess(self, demand: Floats) -> float:
        return float(np.maximum(demand - self.capacity, 0.0).sum())

    def _is_optimal(self) -> bool:
        return self.least_excess <= self.lower_bound + _ROUNDING * self.capacity

    def _descend(self, other_demand: Floats, shifts_so_far: list[int], excess: float) -> None:
        depth = len(shifts_so_far)
        remaining_jobs = range(depth, len(self.demands))
        # The excess is convex: a job adds at least as much to any sum as to `other_demand`, a bound on completions.
        excesses_by_job = {job: self._add_job(other_demand, job) for job in remaining_jobs[:1]}
        least_added_excesses = [float(excesses_by_job[depth].min()) - excess]
        for job in remaining_jobs[1:]:
            least_added_excesses.append(float(self._add_job(other_demand, job).min()) - excess)
            if excess + sum(least_added_excesses) >= self.least_excess - _ROUNDING * self.capacity:
                return
        excesses, later_excess = excesses_by_job[depth], sum(least_added_excesses[1:])
        if len(remaining_jobs) == 1:
            shift = int(excesses.argmin())
            if excesses[shift] < self.least_excess - _ROUNDING * self.capacity:
                self.least_excess, self.best_shifts = float(excesses[shift]), [*shifts_so_far, shift]
            return
        for shift in np.argsort(excesses, kind="stable").tolist():
            if (
                excesses[shift] + later_excess >= self.least_excess - _ROUNDING * self.capacity
                or self._is_optimal()
            ):
                return
            if self.is_late or (has_expired := self.clock() > self.deadline_s):
                self.is_late = self.is_late or has_expired
                return
            if self._swaps_equal_jobs(depth, shift, shifts_so_far):
                continue
            demand = other_demand + np.roll(self.demands[depth], shift)
            self._descend(demand, [*shifts_so_far, shift], float(excesses[shift]))

    def _add_job(self, other_demand: Floats, job: int) -> Floats:
        return compute_shift_excess(other_demand, self.demands[job], self.shift_counts[job], self.capacity)

    def _swaps_equal_jobs(self, depth: int, shift: int, shifts_so_far: Sequence[int]) -> bool:
        """Return whether a shift only swaps two equal jobs, so that its subtree was searched before."""
        return (
            depth > 1
            and shift < shifts_so_far[-1]
            and self.shift_counts[depth] == self.shift_counts[depth - 1]
            and np.array_equal(self.demands[depth], self.demands[depth - 1])
        )

    def _improve(self) -> None:
        """Move one job after the other to its best shift, until no move improves the excess."""
        has_moved = True
        while has_moved:
            has_moved = False
            shifted_demands = [
                np.roll(demand, shift) for demand, shift in zip(self.demands, self.best_shifts, strict=True)
            ]
            total_demand = np.sum(shifted_demands, axis=0)
            for job in range(1, len(self.demands)):
                other_demand = total_demand - shifted_demands[job]
                excesses = self._add_job(other_demand, job)
                shift = int(excesses.argmin())
                if excesses[shift] < self.least_excess - _ROUNDING * self.capacity:
                    self.least_excess, has_moved = float(excesses[shift]), True
                    self.best_shifts = [*self.best_shifts[:job], shift, *self.best_shifts[job + 1 :]]
                    shifted_demands[job] = np.roll(self.demands[job], shift)
                    total_demand = other_demand + shifted_demands[job]


def compute_shift_excess(other_demand: Floats, demand: Floats, shift_count: int, capacity: float) -> Floats:
    """Return the total excess of `other_demand` plus `demand` shifted by 0, 1, ... ticks, shape (`shift_count`,)."""
    if shift_count * other_demand.size <= MAX_MATRIX_ENTRIES:
        return compute_excess_by_matrix(
            other_demand, demand[list_positions(other_demand.size, shift_count)], capacity
        )
    return compute_excess_by_correlation(other_demand, demand, capacity)[:shift_count]


def compute_excess_by_matrix(other_demand: Floats, shifted_demands: Floats, capacity: float) -> Floats:
    """Return the excess for each row of `shifted_demands`, shape (shifts, ticks)."""
    total = shifted_demands + (other_demand - capacity)
    np.maximum(total, 0.0, out=total)
    excess: Floats = total.sum(axis=1)
    return excess


def compute_excess_by_correlation(other_demand: Floats, demand: Floats, capacity: float) -> Floats:
    """Return the excess for every shift, rounded to whole numbers; exact if all demands are whole numbers.

    For each level v of `other_demand`, it correlates the ticks at that level with the excess of `demand` on top of v.
    """
    size = other_demand.size
    spectrum = np.zeros(size // 2 + 1, complex)
    for level in np.unique(other_demand):
        excess_at_level = np.maximum(level + demand - capacity, 0.0)
        if excess_at_level.any():
            spectrum += np.fft.rfft(other_demand == level) * np.conj(np.fft.rfft(excess_at_level))
    excess: Floats = np.rint(np.fft.irfft(spectrum, size))
    return excess


@lru_cache(maxsize=64)
def list_positions(size: int, shift_count: int) -> NDArray[np.int64]:
    """Return the index of each shifted tick in the original pattern, shape (shifts, ticks)."""
    return (np.arange(size)[None, :] - np.arange(shift_count)[:, None]) % size
