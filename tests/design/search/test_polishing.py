import numpy as np
import pytest

from testbed.design.search import annealing
from testbed.design.search.annealing import Annealer, Candidate, Cooling, TimedCandidate, refine_candidates
from testbed.design.search.chains import EarlyStop
from testbed.design.search.moves import Moves
from testbed.design.search.problem import Problem
from testbed.design.workloads.model import Operator, Workload
from testbed.design.workloads.roofline import Cluster
from testbed.design.workloads.sharding import make_placed_sharding


@pytest.fixture(scope="module")
def annealer(little):
    """Return the annealing of a job whose servers have four links, none or two of them for pairs."""
    return Annealer(Problem(little, Cluster(6), 4, 25))


@pytest.fixture(scope="module")
def start(annealer):
    objective = annealer.get_objective(1)
    return Candidate(objective.get_start_point(), 1, objective.get_finding(objective.get_start_point()))


def links_for_pairs(timed):
    return timed.candidate.finding.matching_degree


@pytest.mark.long
def test_descents_begin_on_every_number_of_links_for_pairs(annealer, start):
    """Their ends alone show which number is the fastest."""
    found = refine_candidates(annealer, [start], np.random.default_rng(0), 60_000, EarlyStop())
    assert annealer.problem.possible_pair_link_counts == (0, 2)
    assert {links_for_pairs(one) for one in found} == {0, 2}
    assert found[0].seconds == min(one.seconds for one in found)


def test_first_descents_lay_out_whole_groups_alone(annealer, start):
    """The tables are one, the layers another: chains within a group and single operators come later."""
    assert annealer.moves.largest_groups == [[0, 1], [2, 3, 4]]
    begun = annealer.simulate_s(start)
    ends = [
        annealer.descend(start, np.random.default_rng(seed), 10**6, annealer.moves.largest_groups)
        for seed in range(6)
    ]
    for end in ends:
        kinds = [
            annealer.get_objective(1).shardings[place][at] for place, at in enumerate(end.candidate.point)
        ]
        assert len({(kind.way, kind.replicas, kind.shards) for kind in kinds[2:]}) == 1
        assert end.seconds <= begun
    assert min(end.seconds for end in ends) < 0.9 * begun


def test_a_chain_moves_to_the_server_of_another():
    """All its operators at once: the first one alone would send to those that it left."""
    layers = [Operator(name, "dense", 1e9, 2e9, 1 << 20, 1 << 10, ways=("data", "place")) for name in "abcd"]
    workload = Workload(
        "chains", (*layers, Operator("sum", "dense", 1, 1, 1, 1)), ((0, 1), (2, 3), (1, 4), (3, 4)), 8
    )
    objective = Annealer(Problem(workload, Cluster(6), 4, 25)).get_objective(1)

    def placed(*servers):
        known = zip(objective.shardings, servers, strict=False)
        return [shardings.index(make_placed_sharding((server,))) for shardings, server in known]

    start = (*placed(1, 1, 4, 4), objective.get_start_point()[4])
    found = [list(point[:4]) for point in Moves(workload, objective.shardings, 6).gather_chains(start)]
    assert placed(4, 4, 4, 4) in found
    assert placed(1, 1, 1, 1) in found


@pytest.mark.long
@pytest.mark.parametrize("degree", [0, 2])
def test_a_run_keeps_the_number_of_links_for_pairs(annealer, start, degree):
    begin = annealer.remake_links(start, degree)
    assert begin.finding.matching_degree == degree
    for seed in range(2):
        end = annealer.run(
            begin, np.random.default_rng(seed), 8_000, Cooling(first_fraction=0.5, last_fraction=0.1)
        )
        assert links_for_pairs(end) == degree


@pytest.mark.long
def test_links_and_strategy_take_turns_until_neither_brings_more(annealer, start):
    """A descent moves operators, so that the links made before it no longer join those that send most."""
    begun = TimedCandidate(annealer.simulate_s(start), start)

    found = annealing._improve_in_turns(
        annealer, begun, np.random.default_rng(1), 30_000, annealer.work + 300_000
    )

    assert found.seconds < begun.seconds
    again = annealing._improve_in_turns(
        annealer, found, np.random.default_rng(2), 30_000, annealer.work + 300_000
    )
    assert again.seconds >= found.seconds * (1 - annealing._MIN_GAIN)


def test_the_last_run_takes_a_part_of_the_budget(annealer, start, monkeypatch):
    """A longer last run made plans of four seeds no better on the whole."""
    budgets = []
    run = annealer.run

    def noting(one, chance, budget, *others):
        budgets.append(budget)
        return run(one, chance, budget, *others)

    monkeypatch.setattr(annealer, "run", noting)
    refine_candidates(annealer, [start], np.random.default_rng(0), 20_000, EarlyStop())
    assert budgets[-1] <= 20_000 * annealing._LAST_SHARE


def _seven_on_six():
    """Return the strategies of seven equal operators on six servers, and moves between them."""
    tables = [
        Operator(name, "dense", 1e9, 2e9, 1 << 20, 1 << 10, ways=("data", "place", "tensor"))
        for name in "abcdefg"
    ]
    workload = Workload(
        "tables", (*tables, Operator("sum", "dense", 1, 1, 1, 1)), tuple((place, 7) for place in range(7)), 8
    )
    objective = Annealer(Problem(workload, Cluster(6), 4, 25)).get_objective(1)
    return objective, Moves(workload, objective.shardings, 6)


def test_of_a_group_one_is_on_each_free_server_and_the_others_are_cut():
    objective, moves = _seven_on_six()
    homes = [
        [shardings[at].servers for shardings, at in zip(objective.shardings, point, strict=True)][:7]
        for point in moves.list_layouts(objective.get_start_point(), moves.largest_groups[0])
    ]
    assert any(sum(len(servers) == 1 for servers in one) == 6 for one in homes)


def test_an_empty_server_gets_one_of_a_class_that_is_cut():
    objective, moves = _seven_on_six()
    point = list(objective.get_start_point())
    for place in range(5):
        point[place] = objective.shardings[place].index(make_placed_sharding((place,)))
    filled = moves._fill_free_servers(tuple(point))
    assert objective.shardings[5][filled[5]] == make_placed_sharding((5,))
    assert filled[6] == point[6]
