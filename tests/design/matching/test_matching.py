import itertools
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.design.matching import assign_edges, match_edges, match_priced
from testbed.errors import DemandError


def heaviest_by_trying(nodes, weights):
    """Return weight of the heaviest matching, all of them tried."""

    def best(left):
        if len(left) < 2:
            return 0
        first, *others = left
        with_first = (
            weights.get((first, other), 0) + best([node for node in others if node != other])
            for other in others
            if (first, other) in weights
        )
        return max([best(others), *with_first])

    return best(list(range(nodes)))


@st.composite
def weighted_edges(draw):
    nodes = draw(st.integers(2, 8))
    pairs = list(itertools.combinations(range(nodes), 2))
    chosen = draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    largest = draw(st.sampled_from([1, 2, 5, 100]))
    return nodes, {pair: draw(st.integers(1, largest)) for pair in chosen}


def arrays(weights):
    ends = np.array(list(weights), dtype=np.int64)
    return ends[:, 0], ends[:, 1], np.array(list(weights.values()), dtype=float)


@pytest.mark.long
def test_no_matching_is_heavier():
    seen = Counter()

    @settings(max_examples=300, deadline=None)
    @given(weighted_edges())
    def check(graph):
        nodes, weights = graph
        found = match_edges(nodes, *arrays(weights))
        chosen = {(v, int(m)) for v, m in enumerate(found.mate) if v < m}
        assert all(found.mate[found.mate[v]] == v for v in range(nodes) if found.mate[v] >= 0)
        assert found.weight == sum(weights[pair] for pair in chosen)
        assert found.weight == found.bound == heaviest_by_trying(nodes, weights)
        greedy = sum_of_greedy(weights)
        seen["greedy would lose"] += greedy < found.weight
        seen["somebody is left out"] += (found.mate < 0).any()

    check()
    assert min(seen["greedy would lose"], seen["somebody is left out"]) >= 20, seen


def sum_of_greedy(weights):
    used, total = set(), 0
    for (one, other), weight in sorted(weights.items(), key=lambda item: -item[1]):
        if not {one, other} & used:
            used |= {one, other}
            total += weight
    return total


@pytest.mark.parametrize("largest", [1, 2, 10, 10**9])
def test_large_matchings_are_proven_by_their_duals(largest):
    """Odd rings in rings: the duals of nodes and blossoms sum up to the weight, which no matching exceeds."""
    for seed in range(60):
        chance = np.random.default_rng(seed)
        nodes = int(chance.integers(10, 60))
        count = int(chance.integers(nodes, 5 * nodes))
        one, other = chance.integers(0, nodes, (2, count))
        found = match_edges(nodes, one, other, chance.integers(1, largest + 1, count).astype(float))
        assert found.weight == found.bound
        assert found.weight > 0


@pytest.mark.slow
def test_weights_agree_with_networkx():
    networkx = pytest.importorskip("networkx", reason="networkx is the oracle here")
    for seed in range(12):
        chance = random.Random(seed)
        nodes = chance.randint(20, 60)
        pairs = [pair for pair in itertools.combinations(range(nodes), 2) if chance.random() < 0.2]
        weights = {pair: chance.randint(1, 50) for pair in pairs}
        graph = networkx.Graph()
        graph.add_weighted_edges_from((*pair, weight) for pair, weight in weights.items())
        theirs = sum(weights[min(pair), max(pair)] for pair in networkx.max_weight_matching(graph))
        assert match_edges(nodes, *arrays(weights)).weight == theirs


def test_fractions_are_matched_as_they_stand():
    found = match_edges(4, *arrays({(0, 1): 0.1, (1, 2): 0.3, (2, 3): 0.1000001}))
    assert found.mate.tolist() == [-1, 2, 1, -1]
    assert found.weight == pytest.approx(found.bound, rel=1e-12)


def test_parallel_edges_count_once_and_zeros_not_at_all():
    one, other = np.array([0, 1, 2, 2]), np.array([1, 0, 3, 2])
    found = match_edges(4, one, other, np.array([3.0, 5.0, 0.0, 9.0]))
    assert (found.mate.tolist(), found.weight) == ([1, 0, -1, -1], 5.0)


def test_nobody_to_match():
    nothing = np.zeros(0, dtype=np.int64)
    assert match_edges(3, nothing, nothing, np.zeros(0)).mate.tolist() == [-1, -1, -1]


def test_a_weight_beyond_doubles_is_refused():
    with pytest.raises(DemandError, match="between 1e-290 and 1e300"):
        match_edges(2, np.array([0]), np.array([1]), np.array([np.inf]))


def test_one_way_assignments_are_the_heaviest():
    optimize = pytest.importorskip("scipy.optimize", reason="scipy is the oracle here")
    for seed in range(30):
        chance = np.random.default_rng(seed)
        nodes = int(chance.integers(2, 30))
        weights = chance.integers(1, 100, (nodes, nodes)).astype(float)
        np.fill_diagonal(weights, 0)
        source, target = np.nonzero(weights)
        sent = assign_edges(nodes, source, target, weights[source, target])
        mine = sum(weights[node, to] for node, to in enumerate(sent) if to >= 0)
        rows, columns = optimize.linear_sum_assignment(weights, maximize=True)
        assert mine == weights[rows, columns].sum()
        assert len(set(sent[sent >= 0])) == (sent >= 0).sum()


DENSE = {
    "uniform": lambda chance, nodes: chance.random((nodes, nodes)),
    "all alike": lambda _, nodes: np.ones((nodes, nodes)),
    "everybody wants the first few": lambda _, nodes: (
        np.where(np.arange(nodes) < 4, 1.0, 0.9)[None, :] * np.ones((nodes, 1))
    ),
    "heavy tail": lambda chance, nodes: chance.lognormal(0, 3, (nodes, nodes)),
    "products": lambda chance, nodes: np.outer(*chance.random((2, nodes))),
    "cliques of nine": lambda chance, nodes: (
        1.0 * (np.arange(nodes)[:, None] // 9 == np.arange(nodes) // 9) + 0.01 * chance.random((nodes, nodes))
    ),
}


@pytest.mark.parametrize("shape", DENSE)
def test_priced_matchings_are_nearly_the_heaviest_and_say_how_nearly(shape):
    nodes = 96
    upper = np.triu(DENSE[shape](np.random.default_rng(7), nodes), 1)
    weights = upper + upper.T
    priced = match_priced(weights)
    one, other = np.triu_indices(nodes, 1)
    exact = match_edges(nodes, one, other, weights[one, other])
    assert 0.9 * exact.weight <= priced.weight <= exact.weight * (1 + 1e-12)
    assert exact.weight <= priced.bound * (1 + 1e-12)
    assert priced.weight >= 0.9 * priced.bound


def test_priced_matchings_are_exact_when_that_is_wanted():
    upper = np.triu(np.random.default_rng(3).integers(1, 1000, (40, 40)), 1).astype(float)
    weights = upper + upper.T
    one, other = np.triu_indices(40, 1)
    assert (
        match_priced(weights, min_fraction=1.0).weight
        == match_edges(40, one, other, weights[one, other]).weight
    )
