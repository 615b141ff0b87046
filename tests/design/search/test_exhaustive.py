from collections import Counter

import numpy as np
import pytest
from witnesses.exhaustive import all_graphs, optimum

from testbed.design.search.chains import Rules, make_first_state, run_steps
from testbed.design.search.problem import Problem
from testbed.design.search.strategies import StrategyObjective
from testbed.design.workloads.roofline import Cluster
from testbed.errors import SearchError


@pytest.mark.parametrize(
    ("nodes", "degree", "simple", "together"),
    # Simple connected cubic graphs on 4 and 6 labelled nodes: K4, and 60 prisms with 10 times K3,3 (OEIS A004109).
    [(4, 3, 1, None), (6, 3, 70, None), (6, 2, 60, 60), (5, 4, 1, None), (2, 3, 0, 1)],
)
def test_all_graphs_are_listed_once(nodes, degree, simple, together):
    graphs = list(all_graphs(nodes, degree))
    assert len({graph.edges for graph in graphs}) == len(graphs)
    assert sum(len(set(graph.edges)) == len(graph.edges) for graph in graphs) == simple
    assert together in {None, len(graphs)}
    for graph in graphs:
        assert set(Counter(source for source, _ in graph.edges).values()) == {degree}


def test_strides_are_those_that_every_node_has():
    strides = Counter(graph.strides for graph in all_graphs(6, 2))
    assert strides[(1,)] == 1
    assert set(strides) == {(), (1,), (3,)}
    assert any(graph.strides == (1, 3) for graph in all_graphs(6, 3))
    assert any(graph.strides == (1, 1) for graph in all_graphs(5, 4))


@pytest.mark.long
def test_a_search_comes_near_the_optimum_and_never_below(random_workload):
    gaps = []
    for number in range(3):
        workload = random_workload(np.random.default_rng([3, number]), layers=2, tables=1)
        problem = Problem(workload, Cluster(4), 3 - number % 2, 25)
        best = optimum(problem)
        objective = StrategyObjective(problem)
        state = run_steps(objective, Rules(steps=400), make_first_state(objective, 0, 0), 400)
        gaps.append(state.best[0].cost_s / best.cost_s - 1)
        assert best.tried >= 150
        assert objective.fits_memory(best.point)
    assert min(gaps) >= -1e-9
    assert np.mean(gaps) <= 0.02


@pytest.mark.slow
def test_what_cannot_be_enumerated_is_refused(little):
    with pytest.raises(SearchError, match="duplex links only"):
        optimum(Problem(little, Cluster(4), 2, 25, simplex=True))
    with pytest.raises(SearchError, match="take fewer servers"):
        optimum(Problem(little, Cluster(6), 4, 25))
    for nodes, degree in ((5, 3), (5, 1), (4, 1), (1, 2)):
        with pytest.raises(SearchError, match=f"no connected graph has {nodes} servers with {degree} duplex"):
            optimum(Problem(little, Cluster(nodes), degree, 25))
