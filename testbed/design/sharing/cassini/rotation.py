"""The best shifts of the jobs on one link.

Two jobs are solved by trying every shift at once, more by a depth-first branch and bound. Its bound on a partial
choice is its excess, plus for each job that is left the least that it adds: excess is convex in the demand, so what
jobs add together is no less. What the link cannot carry in all is another bound.

Turning all jobs together changes nothing. The first job is therefore fixed, and each later one needs only the shifts
below the greatest common divisor of its period and the period of those before it, together.

Excess is demand above the link's rate when a job is added to others, for every shift of it: directly, or by
correlation.
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

LARGEST_MATRIX = 40_000
"""Entries up to which every shift is written out; above, correlation by FFT is faster."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """Shifts of a link's jobs in ticks, the excess that is left, and True when no shifts have less."""

    turns: tuple[int, ...]
    excess: float
    proven: bool


def best_rotation(
    circle: Circle, time_limit_s: float = TIME_LIMIT_S, clock: Callable[[], float] = time.process_time
) -> Rotation:
    """Return the best shifts; of equal ones those with the smallest ticks.

    After the time limit the best that was found is improved job by job, and not proven.
    """
    # The job with most shifts is fixed; then come the largest demands.
    totals = [float(demand.sum()) for demand in circle.demands]
    first = min(range(len(totals)), key=lambda job: (circle.repeats[job], -totals[job], job))
    rest = sorted((job for job in range(len(totals)) if job != first), key=lambda job: (-totals[job], job))
    order = [first, *rest]
    shifts = [1]
    together = circle.shifts[order[0]]
    for job in order[1:]:
        own = circle.shifts[job]
        shifts.append(math.gcd(own, together) if circle.periodic else own)
        together = math.lcm(own, together)
    demands = [circle.demands[place] for place in order]
    if len(order) == 1:
        return Rotation((0,), circle.excess([0]), proven=True)
    if len(order) == 2:
        found = excess_of_shifts(demands[0], demands[1], shifts[1], circle.capacity)
        turn = int(found.argmin())
        turns, excess, proven = [0, turn], float(found[turn]), True
    else:
        search = _Search(demands, shifts, circle.capacity, clock() + time_limit_s, clock)
        turns, excess, proven = search.solve()
    by_job = [0] * len(order)
    for place, turn in zip(order, turns, strict=True):
        by_job[place] = turn
    return Rotation(tuple(by_job), excess, proven)


@dataclass(slots=True)
class _Search:
    """Depth-first branch and bound over the shifts of jobs in a fixed order."""

    demands: list[Floats]
    shifts: list[int]
    capacity: float
    deadline: float
    clock: Callable[[], float]
    best: float = math.inf
    best_turns: list[int] = field(default_factory=list)
    least: float = 0.0
    is_late: bool = False

    def solve(self) -> tuple[list[int], float, bool]:
        """Return shifts, their excess, and whether no better can be."""
        total = float(np.sum(self.demands))
        self.least = max(0.0, total - self.demands[0].size * self.capacity)
        self.best_turns = [0] * len(self.demands)
        self.best = self._excess(np.sum(self.demands, axis=0))
        self._improve()
        first = self.demands[0]
        self._descend(first, [0], self._excess(first))
        if self.is_late:
            self._improve()
        return self.best_turns, self.best, not self.is_late or self._is_least()

    def _excess(self, demand: Floats) -> float:
        return float(np.maximum(demand - self.capacity, 0.0).sum())

    def _is_least(self) -> bool:
        return self.best <= self.least + _ROUNDING * self.capacity

    def _descend(self, others: Floats, turns: list[int], excess: float) -> None:
        depth = len(turns)
        left = range(depth, len(self.demands))
        totals = {job: self._with(others, job) for job in left[:1]}
        lowest = [float(totals[depth].min()) - excess]
        for job in left[1:]:
            lowest.append(float(self._with(others, job).min()) - excess)
            if excess + sum(lowest) >= self.best - _ROUNDING * self.capacity:
                return
        found, rest = totals[depth], sum(lowest[1:])
        if len(left) == 1:
            turn = int(found.argmin())
            if found[turn] < self.best - _ROUNDING * self.capacity:
                self.best, self.best_turns = float(found[turn]), [*turns, turn]
            return
        for turn in np.argsort(found, kind="stable").tolist():
            if found[turn] + rest >= self.best - _ROUNDING * self.capacity or self._is_least():
                return
            if self.is_late or (late := self.clock() > self.deadline):
                self.is_late = self.is_late or late
                return
            if self._is_repeated(depth, turn, turns):
                continue
            joined = others + np.roll(self.demands[depth], turn)
            self._descend(joined, [*turns, turn], float(found[turn]))

    def _with(self, others: Floats, job: int) -> Floats:
        return excess_of_shifts(others, self.demands[job], self.shifts[job], self.capacity)

    def _is_repeated(self, depth: int, turn: int, turns: Sequence[int]) -> bool:
        """Return whether two jobs that are alike have only changed places."""
        return (
            depth > 1
            and turn < turns[-1]
            and self.shifts[depth] == self.shifts[depth - 1]
            and np.array_equal(self.demands[depth], self.demands[depth - 1])
        )

    def _improve(self) -> None:
        """Shift one job after another to where it is best among the others, until none moves."""
        moved = True
        while moved:
            moved = False
            turned = [np.roll(d, turn) for d, turn in zip(self.demands, self.best_turns, strict=True)]
            total = np.sum(turned, axis=0)
            for job in range(1, len(self.demands)):
                others = total - turned[job]
                found = self._with(others, job)
                turn = int(found.argmin())
                if found[turn] < self.best - _ROUNDING * self.capacity:
                    self.best, moved = float(found[turn]), True
                    self.best_turns = [*self.best_turns[:job], turn, *self.best_turns[job + 1 :]]
                    turned[job] = np.roll(self.demands[job], turn)
                    total = others + turned[job]


def excess_of_shifts(others: Floats, demand: Floats, shifts: int, capacity: float) -> Floats:
    """Return the total excess of `others` and `demand` so many ticks later, for each of `shifts` ticks from 0."""
    if shifts * others.size <= LARGEST_MATRIX:
        return excess_by_matrix(others, demand[places(others.size, shifts)], capacity)
    return excess_by_correlation(others, demand, capacity)[:shifts]


def excess_by_matrix(others: Floats, shifted: Floats, capacity: float) -> Floats:
    """Return the excess for each row of `shifted`, (shifts, ticks)."""
    total = shifted + (others - capacity)
    np.maximum(total, 0.0, out=total)
    found: Floats = total.sum(axis=1)
    return found


def excess_by_correlation(others: Floats, demand: Floats, capacity: float) -> Floats:
    """Return the excess for every shift; exact where demands are whole numbers, for results are rounded to such.

    For each level v of the others: where they have it, correlated with what the job adds to v above the capacity.
    """
    size = others.size
    transformed = np.zeros(size // 2 + 1, complex)
    for level in np.unique(others):
        above = np.maximum(level + demand - capacity, 0.0)
        if above.any():
            transformed += np.fft.rfft(others == level) * np.conj(np.fft.rfft(above))
    found: Floats = np.rint(np.fft.irfft(transformed, size))
    return found


@lru_cache(maxsize=64)
def places(size: int, shifts: int) -> NDArray[np.int64]:
    """Return the index of each tick's demand in the pattern before it was shifted, (shifts, ticks)."""
    return (np.arange(size)[None, :] - np.arange(shifts)[:, None]) % size
