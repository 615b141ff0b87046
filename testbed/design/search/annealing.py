"""Annealing by simulation: the simulator decides, and the closed form only selects what is worth simulating.

Strategy, microbatches and topology change together. Metropolis' rule accepts a change, with a temperature that falls
geometrically (Kirkpatrick, Gelatt and Vecchi, 1983). A first stage drops candidates that are much slower in closed
form, as in delayed acceptance (Christen and Fox, 2005). The random number of the acceptance is drawn before the
simulation, so the simulation can stop as soon as the iteration is too long to be accepted.

Links for pairs favour other strategies than rings do, and only the final times show which is better.
`refine_candidates` therefore works in phases:

1. For each number of links for pairs, descents lay out groups of operators together, first coarsely and then finely.
2. For the two best numbers, the best candidate is annealed, and cut into many microbatches.
3. For the best candidate of all, links and strategy improve in turns: a descent moves operators, and the links are made
   again for what the operators send.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from testbed.design.search.chains import EarlyStop, Point
from testbed.design.search.edge_swap import TrialBudget, apply_edge_swaps, list_neighbours, propose_starts
from testbed.design.search.moves import Moves
from testbed.design.search.problem import Problem
from testbed.design.search.simulator import Simulator
from testbed.design.search.strategies import FEW_NODES, StrategyObjective
from testbed.design.topology.finder import Finding
from testbed.design.workloads.sharding import Strategy

MAX_CLOSED_FORM_RATIO = 1.15
"""A candidate is not simulated if its closed form exceeds the best simulated time by this factor."""
MAX_LOAD_GROWTH, MAX_TIME_GROWTH = 1.03, 1.015
"""New links are simulated with all microbatches unless the load of the fullest link, or the time of a few microbatches,
grows by more than these factors."""
_CLOSED_FORM_WORK = 30
_MICROBATCH_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16)
_REMAKE_THRESHOLD, _SWAP_THRESHOLD, _MICROBATCH_THRESHOLD = 0.02, 0.12, 0.15
"""Thresholds of a uniform draw. Below the first, the links are made again for the strategy; below the second, links are
swapped; below the third, the number of microbatches changes; otherwise operators move."""
_MAX_SWAP_TRIES = 80
"""Number of topologies to try from each start, without simulation."""
_MAX_USELESS_COUNTS = 2
"""The search for a number of microbatches ends after this many numbers without a gain."""
_FEW_MICROBATCH_COUNT, _MANY_MICROBATCH_COUNT = 2, 8
"""Numbers of microbatches for descents: few make simulations quick and lead to similar shapes; many suit pipelines."""
_DESCENT_SHARE = 0.1
"""Maximum fraction of the budget for each of the first descents."""
_MAX_RIVALS = 2
"""Number of link counts that are pursued: the best candidate of each is annealed and cut into microbatches."""
_RUN_SHARE = 0.12
"""Maximum fraction of the budget for each annealing run and the descent after it."""
_MIN_GAIN = 3e-3
"""Links and strategy take another turn only if the last one shortened the iteration by at least this fraction."""
_LINK_SHARE, _LAST_SHARE = 0.25, 0.04
"""Maximum fractions of the budget for the last search for links and for the last run."""
_RESERVED_SHARE = 0.4
"""Fraction of the budget that is reserved for everything after the first descents."""


class Candidate(NamedTuple):
    """A strategy (as a point), its microbatches, and a topology."""

    point: Point
    microbatches: int
    finding: Finding


class TimedCandidate(NamedTuple):
    """A candidate and the simulated seconds of its iteration."""

    seconds: float
    candidate: Candidate


@dataclass(frozen=True, slots=True)
class Cooling:
    """Temperatures as fractions of the iteration time, falling from `first_fraction` to `last_fraction`.

    The temperature for the closed form is at least `closed_form_fraction`.
    """

    first_fraction: float = 0.02
    last_fraction: float = 0.002
    closed_form_fraction: float = 0.02

    def compute_temperature(self, spent_fraction: float) -> float:
        """Return the temperature after a fraction of the budget.

        >>> round(Cooling(first_fraction=0.04, last_fraction=0.0001).compute_temperature(0.5), 6)
        0.002
        """
        return float(
            self.first_fraction * (self.last_fraction / self.first_fraction) ** min(spent_fraction, 1.0)
        )


class Annealer:
    """Annealing of one problem. Simulation results are cached across runs."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.simulator = Simulator(problem)
        self._objectives: dict[int, StrategyObjective] = {}
        self.moves = Moves(
            problem.workload, self.get_objective(problem.microbatches).shardings, problem.nodes
        )
        self.estimate_count = 0
        """Number of evaluations of the closed form."""

    @property
    def work(self) -> int:
        """Work so far, in simulated tasks and messages, including the equivalent of closed-form evaluations."""
        return self.simulator.work + self.estimate_count * (_CLOSED_FORM_WORK + self.problem.nodes**2 // 4)

    def get_objective(self, microbatches: int) -> StrategyObjective:
        """Return the objective for strategies with this number of microbatches."""
        if microbatches not in self._objectives:
            self._objectives[microbatches] = StrategyObjective(
                replace(self.problem, microbatches=microbatches)
            )
        return self._objectives[microbatches]

    def make_strategy(self, candidate: Candidate) -> Strategy:
        """Return the strategy of a candidate."""
        return self.get_objective(candidate.microbatches).make_strategy(candidate.point)

    def fits_memory(self, candidate: Candidate) -> bool:
        """Return whether the candidate fits into memory."""
        return self.get_objective(candidate.microbatches).fits_memory(candidate.point)

    def estimate_s(self, candidate: Candidate) -> float:
        """Return the seconds of an iteration in closed form; infinity if it does not fit into memory."""
        self.estimate_count += 1
        return self.get_objective(candidate.microbatches).compute_cost_on(candidate.point, candidate.finding)

    def simulate_s(self, candidate: Candidate, limit_s: float = math.inf) -> float:
        """Return the simulated seconds of an iteration; infinity if they exceed `limit_s`."""
        return self.simulator.simulate_s(self.make_strategy(candidate), candidate.finding.topology, limit_s)

    def run(
        self,
        start: Candidate,
        rng: np.random.Generator,
        budget: int,
        cooling: Cooling,
        microbatch_counts: Sequence[int] = (),
    ) -> TimedCandidate:
        """Return the best of one annealing run that spends `budget`.

        The number of microbatches is drawn from `microbatch_counts`, or from all numbers if that is empty.
        """
        current = best_timed = TimedCandidate(self.simulate_s(start), start)
        estimated_s, start_s = self.estimate_s(start), current.seconds
        begin_work = self.work
        while self.work < begin_work + budget:
            temperature_s = start_s * cooling.compute_temperature((self.work - begin_work) / budget)
            neighbour = self.propose_neighbour(current.candidate, rng, microbatch_counts)
            if neighbour.finding.matching_degree != start.finding.matching_degree:
                continue
            other_estimated_s = self.estimate_s(neighbour)
            estimate_limit_s = estimated_s - max(
                temperature_s, start_s * cooling.closed_form_fraction
            ) * math.log1p(-rng.random())
            if neighbour == current.candidate or other_estimated_s > estimate_limit_s:
                continue
            neighbour_s = self.simulate_s(
                neighbour, current.seconds - temperature_s * math.log1p(-rng.random())
            )
            if math.isfinite(neighbour_s):
                current, estimated_s = TimedCandidate(neighbour_s, neighbour), other_estimated_s
                best_timed = min(best_timed, current, key=get_seconds)
        return best_timed

    def descend(
        self,
        start: Candidate,
        rng: np.random.Generator,
        budget: int,
        groups: Sequence[Sequence[int]] = (),
    ) -> TimedCandidate:
        """Lay out groups of operators in other shapes until nothing gets faster or `budget` is spent; return the best.

        The groups are `groups` (default: all groups of the problem).
        """
        best_timed = TimedCandidate(self.simulate_s(start), start)
        begin_work, unchanged_count, groups = self.work, 0, groups or self.moves.groups
        while unchanged_count < len(groups) and self.work < begin_work + budget:
            for group_index in rng.permutation(len(groups)).tolist():
                previous_best = best_timed
                points = self.moves.list_layouts(best_timed.candidate.point, groups[group_index])
                candidates = [best_timed.candidate._replace(point=point) for point in dict.fromkeys(points)]
                # Most promising first: each improvement lowers the time at which later simulations stop.
                estimates = sorted(
                    (self.estimate_s(candidate), index) for index, candidate in enumerate(candidates)
                )
                for estimated_s, index in estimates:
                    if estimated_s < best_timed.seconds * MAX_CLOSED_FORM_RATIO:
                        simulated_s = self.simulate_s(candidates[index], best_timed.seconds * (1 - 1e-9))
                        if math.isfinite(simulated_s):
                            best_timed = TimedCandidate(simulated_s, candidates[index])
                unchanged_count = unchanged_count + 1 if best_timed is previous_best else 0
                if unchanged_count == len(groups) or self.work >= begin_work + budget:
                    break
        return best_timed

    def move_chains(self, best_timed: TimedCandidate) -> TimedCandidate:
        """Return the fastest candidate after moving a chain of operators to a server of another chain, or `best_timed`.

        Each move gets new links, since the old links join the servers that the chain has left.
        """
        start, moved_candidates = best_timed.candidate, [best_timed]
        for point in dict.fromkeys(self.moves.gather_chains(start.point)):
            moved_candidate = self.remake_links(start._replace(point=point), start.finding.matching_degree)
            if point != start.point and self.fits_memory(moved_candidate):
                moved_candidates.append(TimedCandidate(self.simulate_s(moved_candidate), moved_candidate))
        return min(moved_candidates, key=get_seconds)

    def swap_links(
        self, best_timed: TimedCandidate, few_microbatches: int, rng: np.random.Generator, budget: int
    ) -> TimedCandidate:
        """Return the candidate on better links, found by random swaps within `budget`.

        Three checks of increasing cost decide on a swap. The fullest link may carry only a little more,
        `few_microbatches` microbatches may take only a little longer, and all microbatches must be faster.
        """
        start, begin_work = best_timed.candidate, self.work
        if (
            not self._list_neighbours(start.finding)
            or self.problem.nodes > FEW_NODES
            or not self._has_pair_bytes(start)
        ):
            return best_timed
        strategy, limits_s = self.make_strategy(start), self._compute_limits(start, few_microbatches)
        while self.work < begin_work + budget:
            self.estimate_count += (
                1  # count the draw as work: cached results cost none, so the loop might never end
            )
            neighbours = self._list_neighbours(best_timed.candidate.finding)
            swapped_candidate = start._replace(finding=neighbours[int(rng.integers(len(neighbours)))])
            if (
                self.simulator.compute_fullest_link_s(strategy, swapped_candidate.finding.topology)
                > limits_s[0] * MAX_LOAD_GROWTH
            ):
                continue
            if math.isinf(
                self.simulate_s(
                    swapped_candidate._replace(microbatches=few_microbatches), limits_s[1] * MAX_TIME_GROWTH
                )
            ):
                continue
            simulated_s = self.simulate_s(swapped_candidate, best_timed.seconds * (1 - 1e-9))
            if math.isfinite(simulated_s):
                best_timed, limits_s = (
                    TimedCandidate(simulated_s, swapped_candidate),
                    self._compute_limits(swapped_candidate, few_microbatches),
                )
        return best_timed

    def _compute_limits(self, current: Candidate, microbatches: int) -> tuple[float, float]:
        """Return the seconds for which the fullest link is busy, and the seconds of an iteration of `microbatches`."""
        full_s = self.simulator.compute_fullest_link_s(self.make_strategy(current), current.finding.topology)
        return full_s, self.simulate_s(current._replace(microbatches=microbatches))

    def propose_neighbour(
        self, current: Candidate, rng: np.random.Generator, microbatch_counts: Sequence[int] = ()
    ) -> Candidate:
        """Return a random neighbour: another strategy, other links, or another number of microbatches."""
        draw = rng.random()
        if draw < _REMAKE_THRESHOLD:
            finding = self.get_objective(current.microbatches).get_finding(current.point)
            return current._replace(finding=finding)
        if draw < _SWAP_THRESHOLD:
            neighbours = self._list_neighbours(current.finding)
            return (
                current._replace(finding=neighbours[int(rng.integers(len(neighbours)))])
                if neighbours
                else current
            )
        if draw < _MICROBATCH_THRESHOLD:
            other_counts = [
                count
                for count in (microbatch_counts or self.list_microbatch_counts())
                if count != current.microbatches
            ]
            return (
                current._replace(microbatches=other_counts[int(rng.integers(len(other_counts)))])
                if other_counts
                else current
            )
        return current._replace(point=self.moves.propose_neighbour(current.point, rng))

    def _list_neighbours(self, finding: Finding) -> Sequence[Finding]:
        return list(list_neighbours(finding, frozenset()))

    def list_microbatch_counts(self, candidate_counts: Sequence[int] = _MICROBATCH_COUNTS) -> list[int]:
        """Return the numbers of microbatches to try: only the problem's own number if it is not 1."""
        own_count = self.problem.microbatches
        return (
            [count for count in candidate_counts if count <= self.problem.workload.batch]
            if own_count == 1
            else [own_count]
        )

    def improve_links(self, current: TimedCandidate) -> TimedCandidate:
        """Return the candidate on improved links, as many for pairs as before, or unchanged if they are not faster."""
        relinked = self.remake_links(current.candidate, current.candidate.finding.matching_degree)
        return min(
            current, TimedCandidate(self.simulate_s(relinked, current.seconds), relinked), key=get_seconds
        )

    def find_nearest_microbatch_count(self, target_count: int) -> int:
        """Return the number of microbatches that is nearest to `target_count`."""
        return min(self.list_microbatch_counts(), key=lambda count: abs(count - target_count))

    def remake_links(self, current: Candidate, matching_degree: int) -> Candidate:
        """Return the candidate with `matching_degree` links for pairs, chosen so that the fullest link carries little.

        Edge swaps start from TopologyFinder's links and from the candidate's own links; the better result wins.
        """
        objective, strategy = self.get_objective(current.microbatches), self.make_strategy(current)
        if self.problem.nodes > FEW_NODES or not self._has_pair_bytes(current):
            return current
        demand = objective.compute_demand(current.point)

        def compute_cost_s(finding: Finding) -> float:
            return self.simulator.compute_fullest_link_s(strategy, finding.topology)

        findings = [current.finding, *(start.finding for start in propose_starts(objective, strategy))]
        swap_results = [
            apply_edge_swaps(
                start, compute_cost_s(start), compute_cost_s, demand, TrialBudget(_MAX_SWAP_TRIES)
            )
            for start in dict.fromkeys(findings)
            if start.matching_degree == matching_degree
        ]
        return current._replace(finding=min(swap_results, key=lambda end: end[1])[0])

    def _has_pair_bytes(self, current: Candidate) -> bool:
        """Return whether any bytes pass between pairs."""
        return bool(self.get_objective(current.microbatches).compute_demand(current.point).pair_bytes)

    def search_microbatches(self, best_timed: TimedCandidate, end_work: int) -> TimedCandidate:
        """Return the candidate with its fastest number of microbatches.

        Try numbers outward from its own, until `work` reaches `end_work`.
        """
        counts = self.list_microbatch_counts()
        own_index = counts.index(best_timed.candidate.microbatches)
        for ordered_counts in (counts[own_index + 1 :], counts[:own_index][::-1]):
            useless_count = 0
            for count in ordered_counts:
                candidate = best_timed.candidate._replace(microbatches=count)
                simulated_s = (
                    self.simulate_s(candidate, best_timed.seconds)
                    if self.fits_memory(candidate)
                    else math.inf
                )
                useless_count = 0 if simulated_s < best_timed.seconds else useless_count + 1
                best_timed = min(best_timed, TimedCandidate(simulated_s, candidate), key=get_seconds)
                if useless_count == _MAX_USELESS_COUNTS or self.work >= end_work:
                    break
        return best_timed


def get_seconds(timed: TimedCandidate) -> float:
    """Return the seconds of a timed candidate; a sort key."""
    return timed.seconds


def refine_candidates(
    annealer: Annealer, starts: Sequence[Candidate], rng: np.random.Generator, budget: int, stop: EarlyStop
) -> tuple[TimedCandidate, ...]:
    """Return the candidates that descents and annealing reach from `starts` within `budget`, fastest first.

    A `stop` ends the search and keeps its results so far.
    """
    timed_ends: list[TimedCandidate] = []
    end_work, run_budget = annealer.work + budget, int(budget * _RUN_SHARE)
    with stop:
        for entry in _descend_on_each_degree(annealer, starts, rng, int(budget * _DESCENT_SHARE)):
            timed_ends.append(entry)
            if annealer.work > end_work - budget * _RESERVED_SHARE:
                break
        # The fastest candidate for each number of links for pairs, the fastest of all first.
        fastest_by_degree: dict[int, TimedCandidate] = {}
        for timed_end in sorted(timed_ends, key=get_seconds):
            fastest_by_degree.setdefault(timed_end.candidate.finding.matching_degree, timed_end)
        for rival in list(fastest_by_degree.values())[:_MAX_RIVALS]:
            counts = (rival.candidate.microbatches,)
            annealed = annealer.run(rival.candidate, rng, run_budget // 4, Cooling(), counts)
            same_count = annealer.improve_links(annealer.descend(annealed.candidate, rng, run_budget // 2))
            pipelined_start = same_count.candidate._replace(
                microbatches=annealer.find_nearest_microbatch_count(_MANY_MICROBATCH_COUNT)
            )
            pipelined = annealer.move_chains(
                TimedCandidate(annealer.simulate_s(pipelined_start), pipelined_start)
            )
            timed_ends.extend((same_count, annealer.descend(pipelined.candidate, rng, run_budget)))
        timed_ends.append(annealer.search_microbatches(min(timed_ends, key=get_seconds), end_work))
        timed_ends.append(
            _improve_in_turns(annealer, min(timed_ends, key=get_seconds), rng, run_budget, end_work)
        )
        few_microbatches, remaining_budget = (
            annealer.find_nearest_microbatch_count(_FEW_MICROBATCH_COUNT),
            min(end_work - annealer.work, int(budget * _LINK_SHARE)),
        )
        timed_ends.append(
            annealer.swap_links(min(timed_ends, key=get_seconds), few_microbatches, rng, remaining_budget)
        )
        best_candidate, remaining_budget = (
            min(timed_ends, key=get_seconds).candidate,
            min(end_work - annealer.work, int(budget * _LAST_SHARE)),
        )
        timed_ends.append(
            annealer.run(best_candidate, rng, remaining_budget, Cooling(), (best_candidate.microbatches,))
        )
    return tuple(sorted(timed_ends, key=get_seconds))


def _descend_on_each_degree(
    annealer: Annealer, starts: Sequence[Candidate], rng: np.random.Generator, descent_budget: int
) -> Iterator[TimedCandidate]:
    """Yield the results of descents from the starts, for every number of links for pairs."""
    few_microbatches, coarse_results = (
        annealer.find_nearest_microbatch_count(_FEW_MICROBATCH_COUNT),
        list[TimedCandidate](),
    )
    first_start, *relinked_candidates = starts
    rewired = [
        annealer.remake_links(first_start, degree) for degree in annealer.problem.possible_pair_link_counts
    ]
    for start in dict.fromkeys([first_start, *rewired, *relinked_candidates]):
        yield TimedCandidate(annealer.simulate_s(start), start)
        small_start = start._replace(microbatches=few_microbatches)
        rough_result = annealer.descend(small_start, rng, descent_budget, annealer.moves.largest_groups)
        coarse_results.append(_improve_coarsely(annealer, rough_result, rng, descent_budget))
        yield coarse_results[-1]
    for degree in dict.fromkeys(entry.candidate.finding.matching_degree for entry in coarse_results):
        fastest_by_is_own_degree = {
            entry.candidate.finding.matching_degree == degree: entry
            for entry in sorted(coarse_results, reverse=True, key=get_seconds)
        }
        own_best = fastest_by_is_own_degree[True].candidate
        relinked_candidates = (
            [annealer.remake_links(fastest_by_is_own_degree[False].candidate, degree)]
            if False in fastest_by_is_own_degree
            else []
        )
        start_candidates = dict.fromkeys([own_best, *relinked_candidates])
        descended_results = [annealer.descend(base, rng, descent_budget) for base in start_candidates]
        yield from descended_results
        improved_result = annealer.improve_links(min(descended_results, key=get_seconds))
        yield improved_result
        yield annealer.descend(improved_result.candidate, rng, descent_budget)


def _improve_coarsely(
    annealer: Annealer, best_timed: TimedCandidate, rng: np.random.Generator, descent_budget: int
) -> TimedCandidate:
    """Alternate descents of the largest groups with new links until the gain is small, and return the result."""
    while best_timed.candidate.finding.matching_degree:
        relinked_result = annealer.move_chains(annealer.improve_links(best_timed))
        improved_result = annealer.descend(
            relinked_result.candidate, rng, descent_budget, annealer.moves.largest_groups
        )
        if improved_result.seconds >= best_timed.seconds * (1 - _MIN_GAIN):
            return min(best_timed, improved_result, key=get_seconds)
        best_timed = improved_result
    return best_timed


def _improve_in_turns(
    annealer: Annealer, best_timed: TimedCandidate, rng: np.random.Generator, run_budget: int, end_work: int
) -> TimedCandidate:
    """Alternate new links with descents until the gain is small or work reaches `end_work`, and return the result."""
    while annealer.work < end_work:
        relinked_result = annealer.improve_links(annealer.move_chains(best_timed))
        improved_result = annealer.descend(
            relinked_result.candidate, rng, min(run_budget, end_work - annealer.work)
        )
        if improved_result.seconds >= best_timed.seconds * (1 - _MIN_GAIN):
            return min(best_timed, improved_result, key=get_seconds)
        best_timed = improved_result
    return best_timed
