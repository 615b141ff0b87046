import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from testbed.design.search import optimise
from testbed.design.search.annealing import Annealer, Candidate, Cooling, TimedCandidate, refine_candidates
from testbed.design.search.bound import compute_bound
from testbed.design.search.chains import EarlyStop
from testbed.design.search.moves import Moves
from testbed.design.search.problem import Problem
from testbed.design.search.simulator import simulate_on_quick_routes, simulate_plan_routes
from testbed.design.search.strategies import StrategyObjective
from testbed.design.workloads.roofline import Cluster


@pytest.fixture(scope="module")
def problem(little):
    return Problem(little, Cluster(6), 2, 25)


def start_of(annealer):
    objective = annealer.get_objective(1)
    return Candidate(objective.get_start_point(), 1, objective.get_finding(objective.get_start_point()))


def test_moves_keep_to_legal_shardings_and_change_whole_classes(problem):
    objective = StrategyObjective(problem)
    moves, chance = Moves(problem.workload, objective.shardings, 6), np.random.default_rng(0)
    changed, point = Counter(), objective.get_start_point()
    for _ in range(300):
        other = moves.propose_neighbour(point, chance)
        assert all(0 <= at < len(known) for at, known in zip(other, objective.shardings, strict=True))
        changed[sum(a != b for a, b in zip(point, other, strict=True))] += 1
        point = other
    assert min(changed[count] for count in (1, 2)) >= 20
    assert sorted(moves.classes) == [[0, 1], [2, 3, 4]]
    swapped = moves.swap_operators(point, chance)
    assert Counter(swapped[:2]) + Counter(swapped[2:]) == Counter(point[:2]) + Counter(point[2:])


def test_the_simulator_of_a_search_says_what_the_simulator_says_and_gives_up_early(problem):
    annealer = Annealer(problem)
    start = start_of(annealer)
    strategy, topology = annealer.make_strategy(start), start.finding.topology
    exact_s = simulate_on_quick_routes(problem, strategy, topology).execution.iteration_s
    assert annealer.simulator.compute_lower_bound_s(strategy, topology) <= exact_s
    assert math.isinf(annealer.simulator.simulate_s(strategy, topology, exact_s * 0.99))
    assert annealer.simulator.simulate_s(strategy, topology, exact_s * 1.01) == pytest.approx(exact_s)
    assert math.isinf(annealer.simulator.simulate_s(strategy, topology, exact_s * 0.5))


@pytest.mark.long
def test_routes_of_a_plan_are_never_slower_than_those_it_was_ranked_on(problem):
    """They carry the same bytes, and every message of a pair takes its weights."""
    objective, chance = StrategyObjective(problem), np.random.default_rng(1)
    point, faster = objective.get_start_point(), 0
    for _ in range(8):
        point = objective.draw_neighbour(point, chance)
        strategy, topology = objective.make_strategy(point), objective.get_finding(point).topology
        quick, best = (
            simulate_on_quick_routes(problem, strategy, topology),
            simulate_plan_routes(problem, strategy, topology),
        )
        assert best.execution.iteration_s <= quick.execution.iteration_s
        faster += best.execution.iteration_s < quick.execution.iteration_s
        for one in (quick, best):
            assert one.routes.weight.sum(axis=0) == pytest.approx(np.ones((6, 6)))
    assert faster >= 1


def test_operators_join_their_neighbours_and_chains_are_laid_out_together(problem):
    objective, chance = StrategyObjective(problem), np.random.default_rng(3)
    moves, point = Moves(problem.workload, objective.shardings, 6), objective.get_start_point()
    assert [
        3,
        4,
    ] in moves.groups  # the last two layers: nothing else feeds the second, the first feeds nothing else
    assert [0] in moves.groups
    joined = 0
    for _ in range(60):
        other = moves.copy_neighbour_layout(point, chance)
        (place,) = [at for at, (a, b) in enumerate(zip(point, other, strict=True)) if a != b] or [0]
        layout = objective.shardings[place][other[place]]
        beside = [end for edge in problem.workload.edges if place in edge for end in edge if end != place]
        joined += layout in [objective.shardings[end][other[end]] for end in beside]
        point = other
    assert joined >= 20


@pytest.mark.long
def test_links_for_pairs_are_swapped_until_the_fullest_carries_little(pairs_alone):
    """From what TopologyFinder makes for pairs; with other numbers of microbatches nothing is slower."""
    better = 0
    for number in range(4):
        problem = Problem(pairs_alone(number), Cluster(8), 3, 25)
        annealer = Annealer(problem)
        start = start_of(annealer)
        other = annealer.remake_links(start, start.finding.matching_degree)
        before, after = (
            annealer.simulator.compute_fullest_link_s(annealer.make_strategy(one), one.finding.topology)
            for one in (start, other)
        )
        assert after <= before
        better += after < before * 0.95
        timed = TimedCandidate(annealer.simulate_s(other), other)
        assert annealer.search_microbatches(timed, annealer.work + 50_000).seconds <= timed.seconds
    assert better >= 1


@pytest.mark.long
def test_descents_and_annealing_never_end_above_their_start_and_repeat(problem):
    ends = []
    for _ in range(2):
        annealer = Annealer(problem)
        start = start_of(annealer)
        first_s = annealer.simulate_s(start)
        found = refine_candidates(annealer, [start], np.random.default_rng(5), 60_000, EarlyStop())
        ends.append(found[0])
        assert found[0].seconds <= first_s
        assert [one.seconds for one in found] == sorted(one.seconds for one in found)
        assert annealer.fits_memory(found[0].candidate)
    assert ends[0] == ends[1]
    assert ends[0].seconds < 0.9 * first_s


def test_the_temperature_falls_geometrically():
    cooling = Cooling(first_fraction=0.08, last_fraction=0.0002)
    parts = [cooling.compute_temperature(part) for part in (0, 0.25, 0.5, 0.75, 1, 2)]
    assert np.diff(np.log(parts[:5])) == pytest.approx(math.log(0.0002 / 0.08) / 4)
    assert parts[5] == parts[4]


@pytest.mark.long
def test_no_plan_is_below_the_bound(problem, random_workload):
    """Of random jobs; the bound is near where a server needs all the bytes that there are."""
    near = []
    for number in range(2):
        job = random_workload(np.random.default_rng([7, number]), layers=2, tables=2)
        one = replace(problem, workload=job)
        found = optimise(job, one.cluster, one.degree, one.rate_gbps, steps=20)
        bound = compute_bound(one)
        assert bound == found.predicted.bound
        assert 0 < bound.seconds <= found.predicted.iteration_s
        near.append(bound.seconds / found.predicted.iteration_s)
    assert max(near) > 0.3
    assert compute_bound(replace(problem, cluster=Cluster(1))).by == "compute"
