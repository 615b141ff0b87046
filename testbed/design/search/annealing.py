"""Annealing by simulation: the simulator decides, the closed form only selects what is worth simulating.

Strategy, microbatches and topology change together. A change is accepted by Metropolis' rule with a temperature that
falls geometrically (Kirkpatrick, Gelatt and Vecchi, 1983). Candidates that are much slower in closed form are not
simulated (the first of two stages, as in delayed acceptance: Christen and Fox, 2005). The random number of the
acceptance is drawn before the simulation, which ends as soon as the iteration is too long to be accepted.

Links for pairs favour other strategies than rings do, and only the final times show which is better: see `polish`.
So whole groups of operators are laid out first, which is cheap and hardly depends on chance. From the fastest of these
strategies descents begin for each number of links; the best of each is annealed and cut into many microbatches.
For the best of all, links and strategy are then improved in turns: a descent moves operators, and the links are made
again for what the operators send.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from testbed.design.search.chains import Point, Stop
from testbed.design.search.edge_swap import TrialBudget, list_neighbours, propose_starts, swap
from testbed.design.search.moves import Moves
from testbed.design.search.problem import Problem
from testbed.design.search.simulator import Simulator
from testbed.design.search.strategies import FEW_NODES, StrategyObjective
from testbed.design.topology.finder import Finding
from testbed.design.workloads.sharding import Strategy

HOPELESS = 1.15
"""A candidate this many times slower in closed form than the best by simulation is not simulated."""
FULLER, SLOWER = 1.03, 1.015
"""Factors by which the load of the fullest link, and the time of a few microbatches, may grow for new links to be
simulated with all microbatches."""
_CLOSED_WORK = 30
_MICROBATCHES = (1, 2, 3, 4, 6, 8, 12, 16)
_REMADE, _SWAPPED, _CUT = 0.02, 0.12, 0.15
"""Thresholds of a uniform draw: below the first the links are made again for the strategy, below the second links
are swapped, below the third the number of microbatches changes; above it operators move."""
_TRIES = 80
"""Topologies that are tried from each start, without simulation."""
_USELESS = 2
"""Consecutive numbers of microbatches without a gain after which the rest is not tried."""
_FEW, _MANY = 2, 8
"""Microbatches of the descents: few make simulations quick and lead to similar shapes; many are for pipelines."""
_DESCENT = 0.1
"""Maximum part of the budget for each of the first descents."""
_RIVALS = 2
"""Numbers of links for pairs whose best candidate is annealed, and tried with many microbatches."""
_RUN = 0.12
"""Maximum part of the budget for each run and the descent after it."""
_GAIN = 3e-3
"""Minimum part by which an iteration must get shorter for another turn of links and strategy."""
_LINKS, _LAST = 0.25, 0.04
"""Maximum parts of the budget for the last search of links and for the last run."""
_REST = 0.4
"""Part of the budget that is reserved for all that follows the first descents."""


class Candidate(NamedTuple):
    """A strategy as a point, its microbatches, and a topology."""

    point: Point
    microbatches: int
    finding: Finding


class Timed(NamedTuple):
    """A candidate and the simulated seconds of its iteration."""

    seconds: float
    candidate: Candidate


@dataclass(frozen=True, slots=True)
class Cooling:
    """Temperatures as parts of an iteration, from `first` to `last`; the first stage's is never below `closed`."""

    first: float = 0.02
    last: float = 0.002
    closed: float = 0.02

    def temperature_at(self, part: float) -> float:
        """Return the temperature after a part of the budget.

        >>> round(Cooling(first=0.04, last=0.0001).temperature_at(0.5), 6)
        0.002
        """
        return float(self.first * (self.last / self.first) ** min(part, 1.0))


class Annealer:
    """Annealing of one problem; results are remembered from one run to the next."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.simulator = Simulator(problem)
        self._objectives: dict[int, StrategyObjective] = {}
        self.moves = Moves(problem.workload, self.objective(problem.microbatches).shardings, problem.nodes)
        self.closed = 0
        """Number of evaluations of the closed form."""

    @property
    def work(self) -> int:
        """Work spent so far, in simulated tasks and messages; the closed form's grows with the pairs of servers."""
        return self.simulator.work + self.closed * (_CLOSED_WORK + self.problem.nodes**2 // 4)

    def objective(self, microbatches: int) -> StrategyObjective:
        """Return the objective for strategies of `microbatches` microbatches."""
        if microbatches not in self._objectives:
            self._objectives[microbatches] = StrategyObjective(
                replace(self.problem, microbatches=microbatches)
            )
        return self._objectives[microbatches]

    def strategy(self, candidate: Candidate) -> Strategy:
        """Return the strategy of a candidate."""
        return self.objective(candidate.microbatches).strategy(candidate.point)

    def fits(self, candidate: Candidate) -> bool:
        """Return whether the candidate fits into memory."""
        return self.objective(candidate.microbatches).fits(candidate.point)

    def estimate_s(self, candidate: Candidate) -> float:
        """Return the seconds of an iteration in closed form; infinite beyond the memory."""
        self.closed += 1
        return self.objective(candidate.microbatches).cost_on(candidate.point, candidate.finding)

    def seconds(self, candidate: Candidate, most_s: float = math.inf) -> float:
        """Return the simulated seconds of an iteration; infinity if they exceed `most_s`."""
        return self.simulator.seconds(self.strategy(candidate), candidate.finding.topology, most_s)

    def run(
        self,
        start: Candidate,
        chance: np.random.Generator,
        budget: int,
        cooling: Cooling,
        counts: Sequence[int] = (),
    ) -> Timed:
        """Return the best of one annealing run that spends `budget`.

        The number of microbatches is drawn from `counts`, or from all numbers if `counts` is empty.
        """
        at = best = Timed(self.seconds(start), start)
        closed_s, scale_s = self.estimate_s(start), at.seconds
        begin = self.work
        while self.work < begin + budget:
            warm_s = scale_s * cooling.temperature_at((self.work - begin) / budget)
            other = self.propose(at.candidate, chance, counts)
            if other.finding.matching_degree != start.finding.matching_degree:
                continue
            other_closed_s = self.estimate_s(other)
            bar_s = closed_s - max(warm_s, scale_s * cooling.closed) * math.log1p(-chance.random())
            if other == at.candidate or other_closed_s > bar_s:
                continue
            other_s = self.seconds(other, at.seconds - warm_s * math.log1p(-chance.random()))
            if math.isfinite(other_s):
                at, closed_s = Timed(other_s, other), other_closed_s
                best = min(best, at, key=seconds_of)
        return best

    def descend(
        self,
        start: Candidate,
        chance: np.random.Generator,
        budget: int,
        groups: Sequence[Sequence[int]] = (),
    ) -> Timed:
        """Return a candidate that no group of operators makes faster in another shape, or the best when `budget` ends.

        The groups are `groups`, or if these are empty all groups of the problem.
        """
        best = Timed(self.seconds(start), start)
        begin, unchanged, groups = self.work, 0, groups or self.moves.groups
        while unchanged < len(groups) and self.work < begin + budget:
            for which in chance.permutation(len(groups)).tolist():
                before = best
                points = self.moves.layouts(best.candidate.point, groups[which])
                others = [best.candidate._replace(point=point) for point in dict.fromkeys(points)]
                # The most promising first: each improvement lowers the time at which the next simulations stop.
                promised = sorted((self.estimate_s(other), place) for place, other in enumerate(others))
                for closed_s, place in promised:
                    if closed_s < best.seconds * HOPELESS:
                        taken_s = self.seconds(others[place], best.seconds * (1 - 1e-9))
                        if math.isfinite(taken_s):
                            best = Timed(taken_s, others[place])
                unchanged = unchanged + 1 if best is before else 0
                if unchanged == len(groups) or self.work >= begin + budget:
                    break
        return best

    def gather(self, best: Timed) -> Timed:
        """Return the fastest candidate with a chain moved to the server of another, each on links made for it.

        Without new links such a move is slower: the old ones join the servers that the chain has left.
        """
        start, gathered = best.candidate, [best]
        for point in dict.fromkeys(self.moves.gather_chains(start.point)):
            other = self.relink(start._replace(point=point), start.finding.matching_degree)
            if point != start.point and self.fits(other):
                gathered.append(Timed(self.seconds(other), other))
        return min(gathered, key=seconds_of)

    def rewire(self, best: Timed, few: int, chance: np.random.Generator, budget: int) -> Timed:
        """Return the candidate on links found by random swaps, within `budget`.

        Three checks of growing cost decide on a swap: the fullest link may carry only a little more, `few` microbatches
        may take only a little longer, and all microbatches must be faster.
        """
        start, begin = best.candidate, self.work
        if (
            not self._links(start.finding)
            or self.problem.nodes > FEW_NODES
            or not self._has_pair_bytes(start)
        ):
            return best
        strategy, bars = self.strategy(start), self._bars(start, few)
        while self.work < begin + budget:
            self.closed += 1  # a draw is work: otherwise the loop would not end when all its links are known
            others = self._links(best.candidate.finding)
            other = start._replace(finding=others[int(chance.integers(len(others)))])
            if self.simulator.fullest_s(strategy, other.finding.topology) > bars[0] * FULLER:
                continue
            if math.isinf(self.seconds(other._replace(microbatches=few), bars[1] * SLOWER)):
                continue
            taken_s = self.seconds(other, best.seconds * (1 - 1e-9))
            if math.isfinite(taken_s):
                best, bars = Timed(taken_s, other), self._bars(other, few)
        return best

    def _bars(self, at: Candidate, few: int) -> tuple[float, float]:
        """Return the seconds that the fullest link is full, and those of an iteration with `few` microbatches."""
        full_s = self.simulator.fullest_s(self.strategy(at), at.finding.topology)
        return full_s, self.seconds(at._replace(microbatches=few))

    def propose(self, at: Candidate, chance: np.random.Generator, counts: Sequence[int] = ()) -> Candidate:
        """Return a random neighbour: another strategy, other links, or another number of microbatches."""
        draw = chance.random()
        if draw < _REMADE:
            finding = self.objective(at.microbatches).finding(at.point)
            return at._replace(finding=finding)
        if draw < _SWAPPED:
            others = self._links(at.finding)
            return at._replace(finding=others[int(chance.integers(len(others)))]) if others else at
        if draw < _CUT:
            numbers = [count for count in (counts or self.counts()) if count != at.microbatches]
            return at._replace(microbatches=numbers[int(chance.integers(len(numbers)))]) if numbers else at
        return at._replace(point=self.moves.propose(at.point, chance))

    def _links(self, finding: Finding) -> Sequence[Finding]:
        return list(list_neighbours(finding, frozenset()))

    def counts(self, wanted: Sequence[int] = _MICROBATCHES) -> list[int]:
        """Return the numbers of microbatches to try; only the problem's own if it is not 1."""
        fixed = self.problem.microbatches
        return [count for count in wanted if count <= self.problem.workload.batch] if fixed == 1 else [fixed]

    def on_faster_links(self, at: Timed) -> Timed:
        """Return the candidate on improved links with the same number for pairs, or unchanged if they are no faster."""
        other = self.relink(at.candidate, at.candidate.finding.matching_degree)
        return min(at, Timed(self.seconds(other, at.seconds), other), key=seconds_of)

    def nearest_count(self, wanted: int) -> int:
        """Return the number of microbatches to try that is nearest to `wanted`."""
        return min(self.counts(), key=lambda count: abs(count - wanted))

    def relink(self, at: Candidate, degree: int) -> Candidate:
        """Return the candidate with `degree` links for pairs, chosen so that the fullest link carries little.

        Edge swaps improve TopologyFinder's links and the candidate's own; the better result is taken.
        """
        objective, strategy = self.objective(at.microbatches), self.strategy(at)
        if self.problem.nodes > FEW_NODES or not self._has_pair_bytes(at):
            return at
        demand = objective.demand(at.point)

        def cost_of(finding: Finding) -> float:
            return self.simulator.fullest_s(strategy, finding.topology)

        findings = [at.finding, *(start.finding for start in propose_starts(objective, strategy))]
        ends = [
            swap(start, cost_of(start), cost_of, demand, TrialBudget(_TRIES))
            for start in dict.fromkeys(findings)
            if start.matching_degree == degree
        ]
        return at._replace(finding=min(ends, key=lambda end: end[1])[0])

    def _has_pair_bytes(self, at: Candidate) -> bool:
        """Return whether any bytes pass between pairs."""
        return bool(self.objective(at.microbatches).demand(at.point).pair_bytes)

    def recount(self, best: Timed, end: int) -> Timed:
        """Return the candidate with its fastest number of microbatches, tried outward from its own until work `end`."""
        counts = self.counts()
        at = counts.index(best.candidate.microbatches)
        for nearest_first in (counts[at + 1 :], counts[:at][::-1]):
            useless = 0
            for count in nearest_first:
                other = best.candidate._replace(microbatches=count)
                taken_s = self.seconds(other, best.seconds) if self.fits(other) else math.inf
                useless = 0 if taken_s < best.seconds else useless + 1
                best = min(best, Timed(taken_s, other), key=seconds_of)
                if useless == _USELESS or self.work >= end:
                    break
        return best


def seconds_of(timed: Timed) -> float:
    """Return the seconds of a timed candidate; a sort key."""
    return timed.seconds


def polish(
    annealer: Annealer, starts: Sequence[Candidate], chance: np.random.Generator, budget: int, stop: Stop
) -> tuple[Timed, ...]:
    """Return the candidates that descents and annealing lead to from `starts`, fastest first, within `budget`.

    A `stop` ends the search and keeps its results.
    """
    timed_ends: list[Timed] = []
    end, part = annealer.work + budget, int(budget * _RUN)
    with stop:
        for one in _descend_on_each_degree(annealer, starts, chance, int(budget * _DESCENT)):
            timed_ends.append(one)
            if annealer.work > end - budget * _REST:
                break
        # The fastest with each number of links for pairs, the fastest of all first.
        fastest: dict[int, Timed] = {}
        for timed in sorted(timed_ends, key=seconds_of):
            fastest.setdefault(timed.candidate.finding.matching_degree, timed)
        for rival in list(fastest.values())[:_RIVALS]:
            counts = (rival.candidate.microbatches,)
            annealed = annealer.run(rival.candidate, chance, part // 4, Cooling(), counts)
            as_many = annealer.on_faster_links(annealer.descend(annealed.candidate, chance, part // 2))
            more = as_many.candidate._replace(microbatches=annealer.nearest_count(_MANY))
            pipelined = annealer.gather(Timed(annealer.seconds(more), more))
            timed_ends.extend((as_many, annealer.descend(pipelined.candidate, chance, part)))
        timed_ends.append(annealer.recount(min(timed_ends, key=seconds_of), end))
        timed_ends.append(_improve_in_turns(annealer, min(timed_ends, key=seconds_of), chance, part, end))
        few, rest = annealer.nearest_count(_FEW), min(end - annealer.work, int(budget * _LINKS))
        timed_ends.append(annealer.rewire(min(timed_ends, key=seconds_of), few, chance, rest))
        best, rest = min(timed_ends, key=seconds_of).candidate, min(end - annealer.work, int(budget * _LAST))
        timed_ends.append(annealer.run(best, chance, rest, Cooling(), (best.microbatches,)))
    return tuple(sorted(timed_ends, key=seconds_of))


def _descend_on_each_degree(
    annealer: Annealer, starts: Sequence[Candidate], chance: np.random.Generator, part: int
) -> Iterator[Timed]:
    """Yield the ends of descents from the starts, on every number of links for pairs."""
    few, coarse = annealer.nearest_count(_FEW), list[Timed]()
    first, *others = starts
    rewired = [annealer.relink(first, degree) for degree in annealer.problem.possible_pair_links]
    for start in dict.fromkeys([first, *rewired, *others]):
        yield Timed(annealer.seconds(start), start)
        near = start._replace(microbatches=few)
        rough = annealer.descend(near, chance, part, annealer.moves.largest)
        coarse.append(_improve_coarsely(annealer, rough, chance, part))
        yield coarse[-1]
    for degree in dict.fromkeys(one.candidate.finding.matching_degree for one in coarse):
        fastest = {
            one.candidate.finding.matching_degree == degree: one
            for one in sorted(coarse, reverse=True, key=seconds_of)
        }
        own = fastest[True].candidate
        others = [annealer.relink(fastest[False].candidate, degree)] if False in fastest else []
        bases = dict.fromkeys([own, *others])
        ends = [annealer.descend(base, chance, part) for base in bases]
        yield from ends
        other = annealer.on_faster_links(min(ends, key=seconds_of))
        yield other
        yield annealer.descend(other.candidate, chance, part)


def _improve_coarsely(annealer: Annealer, best: Timed, chance: np.random.Generator, part: int) -> Timed:
    """Return the candidate after descents of the largest groups and new links in turns, until the gain is small."""
    while best.candidate.finding.matching_degree:
        linked = annealer.gather(annealer.on_faster_links(best))
        better = annealer.descend(linked.candidate, chance, part, annealer.moves.largest)
        if better.seconds >= best.seconds * (1 - _GAIN):
            return min(best, better, key=seconds_of)
        best = better
    return best


def _improve_in_turns(
    annealer: Annealer, best: Timed, chance: np.random.Generator, part: int, end: int
) -> Timed:
    """Return the candidate after new links and descents in turns, until the gain is small or work reaches `end`."""
    while annealer.work < end:
        linked = annealer.on_faster_links(annealer.gather(best))
        better = annealer.descend(linked.candidate, chance, min(part, end - annealer.work))
        if better.seconds >= best.seconds * (1 - _GAIN):
            return min(best, better, key=seconds_of)
        best = better
    return best
