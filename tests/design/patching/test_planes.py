import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.design.patching import colouring
from testbed.design.patching.colouring import colour_by_kempe_chains, colour_edges
from testbed.design.patching.wiring import split_into_matchings, split_into_permutations
from testbed.errors import TopologyError

PETERSEN = (
    [(i, (i + 1) % 5) for i in range(5)]
    + [(i, i + 5) for i in range(5)]
    + [(5 + i, 5 + (i + 2) % 5) for i in range(5)]
)


def circulant(nodes, strides):
    pairs = {(min(i, (i + p) % nodes), max(i, (i + p) % nodes)) for p in strides for i in range(nodes)}
    return sorted(pairs)


def assert_matchings(nodes, planes, pairs):
    assert Counter(edge for plane in planes for edge in plane) == Counter(pairs)
    for plane in planes:
        assert sorted(end for edge in plane for end in edge) == list(range(nodes))


def test_even_rings_take_two_planes_a_stride():
    planes = split_into_matchings(12, 4, circulant(12, (1, 5)))
    assert_matchings(12, planes, circulant(12, (1, 5)))
    assert [{(b - a) % 12 for a, b in plane} <= {1, 11} for plane in planes] == [True, True, False, False]


@pytest.mark.parametrize(
    ("nodes", "strides"),
    [
        (6, (2, 3)),  # the prism: triangles need the antipodal stride
        (6, (1, 2)),
        (26, (6, 7, 8)),  # found by search, not by alternation: rings of 13
        (30, (4, 12, 15)),
        (38, (14, 16, 17, 18)),
    ],
)
def test_odd_rings_are_split_together_with_even_ones(nodes, strides):
    pairs = circulant(nodes, strides)
    degree = sum(1 if 2 * p == nodes else 2 for p in strides)
    assert_matchings(nodes, split_into_matchings(nodes, degree, pairs), pairs)


def test_every_connected_even_circulant_up_to_14_nodes_splits():
    """Stong (1985): connected Cayley graphs of cyclic groups of even order are 1-factorable."""
    seen = 0
    for nodes in range(4, 15, 2):
        for mask in range(1, 1 << (nodes // 2)):
            strides = [p for p in range(1, nodes // 2 + 1) if mask >> (p - 1) & 1]
            pairs = circulant(nodes, strides)
            degree = 2 * len(pairs) // nodes
            if len({0} | reachable(nodes, strides)) == nodes:
                assert_matchings(nodes, split_into_matchings(nodes, degree, pairs), pairs)
                seen += 1
    assert seen >= 200


def reachable(nodes, strides):
    found, waiting = {0}, [0]
    while waiting:
        node = waiting.pop()
        fresh = {(node + sign * p) % nodes for p in strides for sign in (1, -1)} - found
        found |= fresh
        waiting += fresh
    return found


def test_an_odd_number_of_nodes_has_no_perfect_matching():
    with pytest.raises(TopologyError, match=r"13 nodes: .*no perfect matching"):
        split_into_matchings(13, 2, circulant(13, (1,)))


def test_a_part_with_an_odd_number_of_nodes_is_named():
    with pytest.raises(TopologyError, match="nodes 0, 2, 4 are joined only to each other"):
        split_into_matchings(6, 2, circulant(6, (2,)))


def test_the_petersen_graph_has_no_split():
    with pytest.raises(TopologyError, match=r"all ways were tried.*no 1-factorisation"):
        split_into_matchings(10, 3, PETERSEN)


def test_a_graph_with_a_bridge_has_no_split():
    """Cubic, 16 nodes, three bridges: each colour would have to match parts of odd size."""
    pairs = [(0, 1), (0, 6), (0, 11)]
    for base in (1, 6, 11):
        a, b, c, d, e = range(base, base + 5)
        pairs += [(a, b), (a, c), (b, d), (b, e), (c, d), (c, e), (d, e)]
    assert colour_edges(16, 3, pairs) is None


def test_an_irregular_graph_is_refused():
    with pytest.raises(TopologyError, match="node 0 is on 1"):
        split_into_matchings(4, 2, [(0, 1), (1, 2), (2, 3)])


def test_a_search_that_does_not_end_says_so(monkeypatch):
    monkeypatch.setattr(colouring, "MAX_STEPS", 5)
    with pytest.raises(TopologyError, match="within 5 steps, although one may exist"):
        colour_edges(10, 3, PETERSEN)


@st.composite
def unions_of_matchings(draw):
    """Return a multigraph that is a union of random perfect matchings, in random order."""
    nodes = 2 * draw(st.integers(1, 8))
    degree = draw(st.integers(1, 5))
    chance = random.Random(draw(st.integers(0, 2**32)))
    pairs = []
    for _ in range(degree):
        order = chance.sample(range(nodes), nodes)
        pairs += [tuple(sorted(order[i : i + 2])) for i in range(0, nodes, 2)]
    chance.shuffle(pairs)
    return nodes, degree, pairs


@pytest.mark.slow
def test_a_union_of_matchings_is_split_again():
    seen = Counter()

    @settings(max_examples=150)
    @given(unions_of_matchings())
    def check(graph):
        nodes, degree, pairs = graph
        assert_matchings(nodes, split_into_matchings(nodes, degree, pairs), pairs)
        seen["parallel"] += len(set(pairs)) < len(pairs)
        seen["not bipartite by parity"] += any((b - a) % 2 == 0 for a, b in pairs)

    check()
    assert min(seen["parallel"], seen["not bipartite by parity"]) >= 30, seen


def test_exact_search_agrees_with_the_quick_one():
    seen = Counter()

    @settings(max_examples=80)
    @given(unions_of_matchings())
    def check(graph):
        nodes, degree, pairs = graph
        quick = colour_by_kempe_chains(nodes, degree, pairs)
        exact = colouring._search_exactly(nodes, degree, pairs)
        assert exact is not None
        assert_matchings(nodes, exact, pairs)
        seen["quick"] += quick is not None
        seen["all"] += 1

    check()
    assert seen["quick"] >= 0.95 * seen["all"], seen


def test_permutations_always_exist():
    """Koenig: any d-regular directed multigraph splits into d permutations."""
    seen = Counter()

    @settings(max_examples=150)
    @given(st.integers(2, 20), st.integers(1, 5), st.integers(0, 2**32))
    def check(nodes, degree, seed):
        chance = random.Random(seed)
        edges = [edge for _ in range(degree) for edge in enumerate(chance.sample(range(nodes), nodes))]
        chance.shuffle(edges)
        planes = split_into_permutations(nodes, degree, edges)
        assert Counter(edge for plane in planes for edge in plane) == Counter(edges)
        for plane in planes:
            assert sorted(a for a, _ in plane) == sorted(b for _, b in plane) == list(range(nodes))
        seen["several planes"] += degree > 1 and nodes > 3

    check()
    assert seen["several planes"] >= 30, seen


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([(0, 1), (0, 1), (1, 0), (1, 0)], "node 0 is on 2"),
        ([(0, 1), (1, 1)], "node 0 is on 0"),
    ],
)
def test_permutations_need_a_regular_graph(edges, message):
    with pytest.raises(TopologyError, match=message):
        split_into_permutations(2, 1, edges)
