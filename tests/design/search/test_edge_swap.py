from collections import Counter

import numpy as np
import pytest

from testbed.design.search import edge_swap
from testbed.design.search.edge_swap import (
    TrialBudget,
    improve_by_edge_swaps,
    improve_proposal,
    propose_starts,
)
from testbed.design.search.problem import Problem
from testbed.design.search.strategies import FEW_NODES, StrategyObjective
from testbed.design.topology.circulants import list_circulant_edges
from testbed.design.topology.hops import make_hop_table
from testbed.design.topology.strides import list_direct_strides
from testbed.design.workloads.model import Operator, Workload
from testbed.design.workloads.roofline import Cluster


def strategies(random_workload, nodes, degree, *, simplex=False, count=4):
    """Yield problems, each with a strategy some steps from its start."""
    for number in range(count):
        chance = np.random.default_rng([5, number])
        workload = random_workload(chance, layers=2, tables=2)
        objective = StrategyObjective(Problem(workload, Cluster(nodes), degree, 25, simplex))
        point = objective.get_start_point()
        for _ in range(3):
            point = objective.draw_neighbour(point, chance)
        yield objective, objective.make_strategy(point)


@pytest.mark.long
@pytest.mark.parametrize(
    ("nodes", "degree", "simplex"), [(6, 3, False), (8, 4, False), (7, 4, False), (6, 3, True)]
)
def test_exchanges_shorten_the_iteration_and_keep_rings_and_matchings(
    random_workload, nodes, degree, simplex
):
    shorter = 0
    for objective, strategy in strategies(random_workload, nodes, degree, simplex=simplex):
        for start in propose_starts(objective, strategy):
            end = improve_proposal(objective, start, TrialBudget())
            finding, topology = end.finding, end.finding.topology
            assert end == improve_proposal(objective, start, TrialBudget())
            assert end.closed_form_s == objective.compute_cost_on(objective.find_point(strategy), finding)
            assert end.closed_form_s <= start.closed_form_s
            shorter += end.closed_form_s < start.closed_form_s
            _check(start.finding, finding)
            assert make_hop_table(nodes, topology.edges).min() >= 0
    assert shorter >= 1


def _check(start, finding):
    """Check that strides and links for pairs make the topology; each round has the ends that it had."""
    topology = finding.topology
    simplex = topology.simplex
    assert finding.matching_degree == start.matching_degree == len(finding.matchings)
    assert finding.ring_degree == start.ring_degree
    assert len(topology.strides) == len(start.topology.strides)
    rounds = [(*bought, *filled) for bought, filled in zip(finding.matchings, finding.fillers, strict=True)]
    before = [(*bought, *filled) for bought, filled in zip(start.matchings, start.fillers, strict=True)]
    for links, old in zip(rounds, before, strict=True):
        assert _ends(links, simplex) == _ends(old, simplex)
        assert all(one != other for one, other in links)
    extra = [link for links in rounds for link in links]
    extra += [] if simplex else [(other, one) for one, other in extra]
    steps = list_direct_strides(topology.nodes, topology.strides, simplex=simplex)
    assert topology.edges == tuple(sorted((*list_circulant_edges(topology.nodes, steps), *extra)))


def _ends(links, simplex):
    if simplex:
        return Counter(one for one, _ in links), Counter(other for _, other in links)
    return Counter(end for link in links for end in link)


@pytest.mark.slow
def test_a_better_matching_is_found_where_one_is(random_workload):
    """Six servers on a ring have 15 perfect matchings: none is better by more than what an exchange must bring."""
    better = 0
    for objective, strategy in strategies(random_workload, 6, 3, count=4):
        point, (_, start) = objective.find_point(strategy), propose_starts(objective, strategy)
        costs = [objective.compute_cost_on(point, other) for other in _all_matchings(start.finding)]
        assert len(costs) == 15
        end = improve_proposal(objective, start, TrialBudget())
        assert min(costs) <= end.closed_form_s <= min(costs) * 1.02
        better += min(costs) < start.closed_form_s * 0.99
    assert better >= 1


def _all_matchings(finding):
    """Return every matching that exchanges lead to, by walking over all of them."""
    known, fresh = {finding.topology.edges: finding}, [finding]
    while fresh:
        for other in edge_swap.list_neighbours(fresh.pop(), frozenset()):
            if other.topology.edges not in known:
                known[other.topology.edges] = other
                fresh.append(other)
    return known.values()


def pure_data():
    operators = [Operator(f"d{i}", "dense", 1e9, 2e9, 10**8, 4096, gradient_bytes=10**8) for i in range(3)]
    return Workload("data", tuple(operators), ((0, 1), (1, 2)), batch=96)


def test_nothing_is_tried_without_bytes_between_pairs_or_beyond_so_many_servers(random_workload):
    objective = StrategyObjective(Problem(pure_data(), Cluster(12), 4, 25))
    start = next(propose_starts(objective, objective.make_strategy(objective.get_start_point())))
    tries = TrialBudget(10)
    assert start.finding.topology.strides == (1, 5)
    assert improve_proposal(objective, start, tries) is start
    assert improve_by_edge_swaps(objective, [start]) == ()
    workload = random_workload(np.random.default_rng(0))
    large = StrategyObjective(Problem(workload, Cluster(FEW_NODES + 2), 2, 25))
    start = next(propose_starts(large, large.make_strategy(large.get_start_point())))
    assert improve_proposal(large, start, tries) is start
    assert tries.remaining_tries == 10


def test_work_is_bounded(random_workload, monkeypatch):
    (objective, strategy), *_ = strategies(random_workload, 8, 4, count=1)
    *_, start = propose_starts(objective, strategy)
    asked, cost_on = [], StrategyObjective.compute_cost_on
    monkeypatch.setattr(
        StrategyObjective, "compute_cost_on", lambda *about: asked.append(about) or cost_on(*about)
    )
    tries = TrialBudget(3)
    improve_proposal(objective, start, tries)
    assert len(asked) == 3
    assert improve_proposal(objective, start, tries) is start


def test_ctrl_c_keeps_what_was_found_so_far(random_workload, monkeypatch):
    (objective, strategy), *_ = strategies(random_workload, 6, 3, count=1)
    proposals = list(propose_starts(objective, strategy))
    calls = iter([proposals[0]._replace(closed_form_s=0.0)])

    def once(*_):
        for call in calls:
            return call
        raise KeyboardInterrupt

    monkeypatch.setattr(edge_swap, "_choose_best", once)
    assert improve_by_edge_swaps(objective, proposals) == (proposals[0]._replace(closed_form_s=0.0),)
