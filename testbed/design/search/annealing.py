"""Annealing by simulation: the simulator decides, the closed form only says what is worth simulating.

Strategy, microbatches and topology change together. A change is accepted by Metropolis' rule with a temperature that
falls geometrically (Kirkpatrick, Gelatt and Vecchi, 1983). What the closed form expects to be much slower is not
simulated (the first of two stages, as in delayed acceptance: Christen and Fox, 2005), and a simulation ends as soon as
it takes longer than what would be accepted: the draw comes first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from testbed.design.search.chains.objective import Point
from testbed.design.search.chains.stop import Stop
from testbed.design.search.edge_swap import neighbour_findings
from testbed.design.search.moves import Moves
from testbed.design.search.problem import Problem
from testbed.design.search.simulator import Simulator
from testbed.design.search.strategies import StrategyObjective
from testbed.design.topology.finder import Finding
from testbed.design.workloads.sharding.sharding import Strategy


class Candidate(NamedTuple):
    """A strategy as a point, its microbatches, and a topology."""

    point: Point
    microbatches: int
    finding: Finding


class Timed(NamedTuple):
    """A candidate and what it takes by simulation."""

    seconds: float
    candidate: Candidate


@dataclass(frozen=True, slots=True)
class Cooling:
    """Temperatures as parts of an iteration, from `first` to `last`; `closed` is that of the first stage at least."""

    first: float = 0.005
    last: float = 0.0005
    closed: float = 0.005

    def at(self, part: float) -> float:
        """Return the temperature after a part of the budget.

        >>> round(Cooling(first=0.04, last=0.0001).at(0.5), 6)
        0.002
        """
        return float(self.first * (self.last / self.first) ** min(part, 1.0))


HOPELESS = 1.15
"""What is so many times slower in closed form than the best by simulation is not simulated."""
_CLOSED_WORK = 30
_MICROBATCHES = (1, 2, 3, 4, 6, 8, 12, 16)
_LADDER = (2, 8, 16)
"""Microbatches of one descent after the other: with few of them simulations are quick, and shapes much the same."""
_REMADE, _SWAPPED, _CUT = 0.02, 0.12, 0.15
"""Up to these the draw is for links made for the strategy again, links swapped, microbatches."""
_DESCENTS = 0.6
"""Part of the budget for descents at most; what is left is for annealing."""


class Annealer:
    """Annealing of one problem; what it finds out is remembered from one run to the next."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.simulator = Simulator(problem)
        self._objectives: dict[int, StrategyObjective] = {}
        self._moves = Moves(problem.workload, self.objective(problem.microbatches).shardings, problem.nodes)
        self.closed = 0
        """How often the closed form was asked."""

    @property
    def work(self) -> int:
        """Work that was spent so far; that of the closed form grows with the pairs of servers."""
        return self.simulator.work + self.closed * (_CLOSED_WORK + self.problem.nodes**2 // 4)

    def objective(self, microbatches: int) -> StrategyObjective:
        """Return the strategies of so many microbatches."""
        if microbatches not in self._objectives:
            self._objectives[microbatches] = StrategyObjective(
                replace(self.problem, microbatches=microbatches)
            )
        return self._objectives[microbatches]

    def strategy(self, candidate: Candidate) -> Strategy:
        """Return the strategy of a candidate."""
        return self.objective(candidate.microbatches).strategy(candidate.point)

    def fits(self, candidate: Candidate) -> bool:
        """Return whether memory holds it."""
        return self.objective(candidate.microbatches).fits(candidate.point)

    def closed_form_s(self, candidate: Candidate) -> float:
        """Return what the closed form says; infinite beyond the memory."""
        self.closed += 1
        return self.objective(candidate.microbatches).cost_on(candidate.point, candidate.finding)

    def seconds(self, candidate: Candidate, most_s: float = math.inf) -> float:
        """Return what the simulator says; infinity when that is more than `most_s`."""
        return self.simulator.seconds(self.strategy(candidate), candidate.finding.topology, most_s)

    def run(self, start: Candidate, chance: np.random.Generator, budget: int, cooling: Cooling) -> Timed:
        """Return the best of one run that spends `budget`."""
        at = best = Timed(self.seconds(start), start)
        closed_s, scale_s = self.closed_form_s(start), at.seconds
        begin = self.work
        while self.work < begin + budget:
            warm_s = scale_s * cooling.at((self.work - begin) / budget)
            other = self.propose(at.candidate, chance)
            other_closed_s = self.closed_form_s(other)
            bar_s = closed_s - max(warm_s, scale_s * cooling.closed) * math.log1p(-chance.random())
            if other == at.candidate or other_closed_s > bar_s:
                continue
            other_s = self.seconds(other, at.seconds - warm_s * math.log1p(-chance.random()))
            if math.isfinite(other_s):
                at, closed_s = Timed(other_s, other), other_closed_s
                best = min(best, at, key=_seconds)
        return best

    def descend(self, start: Candidate, chance: np.random.Generator, budget: int) -> Timed:
        """Return where no class of operators laid out in another shape is faster, or where the `budget` ends."""
        best = Timed(self.seconds(start), start)
        begin, unchanged, classes = self.work, 0, self._moves.classes
        while unchanged < len(classes) and self.work < begin + budget:
            for which in chance.permutation(len(classes)).tolist():
                before = best
                best = self._best_layout(best, classes[which])
                unchanged = unchanged + 1 if best is before else 0
                if unchanged == len(classes) or self.work >= begin + budget:
                    break
        return best

    def _best_layout(self, best: Timed, members: Sequence[int]) -> Timed:
        """Return the fastest with a class in any of its shapes; those that promise most are simulated first."""
        points = self._moves.layouts(best.candidate.point, members)
        others = [best.candidate._replace(point=point) for point in dict.fromkeys(points)]
        promised = sorted((self.closed_form_s(other), place) for place, other in enumerate(others))
        for closed_s, place in promised:
            if closed_s < best.seconds * HOPELESS:
                taken_s = self.seconds(others[place], best.seconds * (1 - 1e-9))
                if math.isfinite(taken_s):
                    best = Timed(taken_s, others[place])
        return best

    def propose(self, at: Candidate, chance: np.random.Generator) -> Candidate:
        """Return something near a candidate: another strategy, other links, another number of microbatches."""
        drawn = chance.random()
        if drawn < _REMADE:
            finding = self.objective(at.microbatches).finding(at.point)
            return at._replace(finding=finding)
        if drawn < _SWAPPED:
            others = self._links(at.finding)
            return at._replace(finding=others[int(chance.integers(len(others)))]) if others else at
        if drawn < _CUT:
            return at._replace(microbatches=self._cuts(at, chance))
        return at._replace(point=self._moves.propose(at.point, chance))

    def _links(self, finding: Finding) -> Sequence[Finding]:
        return list(neighbour_findings(finding, frozenset()))

    def _cuts(self, at: Candidate, chance: np.random.Generator) -> int:
        others = [count for count in self._counts(_MICROBATCHES) if count != at.microbatches]
        return others[int(chance.integers(len(others)))] if others else at.microbatches

    def _counts(self, wanted: Sequence[int]) -> list[int]:
        """Return numbers of microbatches that may be tried: one that was asked for is kept."""
        fixed = self.problem.microbatches
        return [count for count in wanted if count <= self.problem.workload.batch] if fixed == 1 else [fixed]

    def polish(
        self, starts: Sequence[Candidate], chance: np.random.Generator, budget: int, stop: Stop
    ) -> tuple[Timed, ...]:
        """Return what descents and annealing make of some strategies, the fastest first; ends with the `budget`.

        A `stop` ends it with what was found until then.
        """
        found: list[Timed] = []
        begin, share = self.work, int(budget * _DESCENTS / len(starts))
        with stop:
            for start in starts:
                at = Timed(self.seconds(start), start)
                found.append(at)
                for count in self._counts(_LADDER):
                    at = self.descend(
                        at.candidate._replace(microbatches=count), chance, share // len(_LADDER)
                    )
                    found.append(at)
            found.sort(key=_seconds)
            found.append(self.run(found[0].candidate, chance, begin + budget - self.work, Cooling()))
        return tuple(sorted(found, key=_seconds))


def _seconds(timed: Timed) -> float:
    return timed.seconds
