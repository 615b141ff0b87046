import math
from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.design.topology import strides
from testbed.design.topology.strides import (
    compute_hop_distances,
    list_direct_strides,
    list_half_range,
    list_totient_strides,
    make_stride_sequences,
    measure_reach,
    select_permutations,
)
from testbed.errors import TopologyError


@pytest.mark.parametrize(
    ("nodes", "group", "expected"),
    [
        (12, None, (1, 5, 7, 11)),
        (12, 12, (1, 5, 7, 11)),
        (12, 6, (2, 10)),
        (12, 4, (3, 9)),
        (12, 3, (4, 8)),
        (12, 2, (6,)),
        (16, None, (1, 3, 5, 7, 9, 11, 13, 15)),
        (13, None, tuple(range(1, 13))),
    ],
)
def test_totient_perms(nodes, group, expected):
    assert list_totient_strides(nodes, group) == expected


@given(st.integers(2, 60), st.data())
def test_totient_perms_are_the_strides_whose_rings_are_the_groups(nodes, data):
    group = data.draw(st.sampled_from([k for k in range(2, nodes + 1) if nodes % k == 0]))
    members = set(range(0, nodes, nodes // group))
    by_walking = tuple(p for p in range(1, nodes) if {k * p % nodes for k in range(nodes)} == members)
    assert list_totient_strides(nodes, group) == by_walking


@pytest.mark.parametrize("group", [0, 1, 5, 24])
def test_a_group_that_does_not_divide_the_nodes_is_refused_with_those_that_do(group):
    with pytest.raises(TopologyError, match=r"use one of 2, 3, 4, 6, 12"):
        list_totient_strides(12, group)


# topoopt.md, the table of algorithm kernels: the published rule on all totatives (one-way rings) and on
# those of the half range (ring pairs). Mean hops to three decimals.
PUBLISHED = [
    (12, 4, True, (1, 5, 7, 11), 3, 1.818),
    (128, 4, True, (1, 3, 11, 39), 8, 4.567),
    (432, 8, True, (1, 5, 7, 11, 19, 43, 95, 203), 7, 4.056),
    (1024, 8, True, (1, 3, 5, 13, 31, 77, 181, 431), 8, 4.936),
    (12, 4, False, (1, 5), 3, 1.818),
    (128, 4, False, (1, 11), 9, 5.480),
    (432, 8, False, (1, 5, 19, 95), 7, 4.190),
    (1024, 8, False, (1, 5, 33, 181), 8, 5.155),
]


@pytest.mark.parametrize(("nodes", "degree", "simplex", "expected", "diameter", "mean"), PUBLISHED)
def test_geometric_as_published(nodes, degree, simplex, expected, diameter, mean):
    totatives = list_totient_strides(nodes)
    candidates = totatives if simplex else list_half_range(nodes, totatives)
    chosen = select_permutations(nodes, degree if simplex else degree // 2, candidates, simplex=simplex)
    assert chosen == expected
    found = measure_reach(nodes, list_direct_strides(nodes, chosen, simplex=simplex))
    assert (found.unreached_count, found.diameter) == (0, diameter)
    assert round(found.total_hops / (nodes - 1), 3) == mean


def best_by_enumeration(nodes, count, candidates, simplex, true_hops, ring_edges, given=()):
    """Return the best set of strides, with nothing of ours but the question; and how far each set reaches."""
    scores = {}
    for choice in combinations(candidates, count):
        one_way = {*given, *choice}
        steps = one_way if simplex else {step for p in one_way for step in (p, nodes - p)}
        row = true_hops(nodes, ring_edges(nodes, steps))[0]
        scores[choice] = (int((row < 0).sum()), int(row.max()), int(row.sum()), choice)
    return min(scores, key=scores.get), scores


@pytest.mark.parametrize(
    ("nodes", "count", "choices", "diameters"), [(16, 3, 56, {4, 5}), (13, 4, 495, {2, 3})]
)
def test_exhaustive_is_best_of_all_simplex_choices(nodes, count, choices, diameters, true_hops, ring_edges):
    candidates = list_totient_strides(nodes)
    best, scores = best_by_enumeration(nodes, count, candidates, True, true_hops, ring_edges)
    assert len(scores) == choices
    assert {diameter for _, diameter, _, _ in scores.values()} == diameters
    assert select_permutations(nodes, count, candidates, "exhaustive", simplex=True) == best
    assert scores[best][1] == min(diameters)


@pytest.mark.parametrize(("nodes", "count", "expected"), [(16, 3, (1, 3, 7)), (13, 4, (1, 2, 4, 7))])
def test_geometric_where_there_is_a_choice(nodes, count, expected):
    assert select_permutations(nodes, count, list_totient_strides(nodes), simplex=True) == expected


def test_exhaustive_beats_geometric_at_128_nodes():
    candidates = list_half_range(128, list_totient_strides(128))
    chosen = select_permutations(128, 2, candidates, "exhaustive")
    found = measure_reach(128, list_direct_strides(128, chosen, simplex=False))
    assert chosen == (1, 15)
    assert (found.diameter, round(found.total_hops / 127, 3)) == (8, 5.354)


@pytest.mark.slow
def test_exhaustive_is_best_for_any_candidates(true_hops, ring_edges):
    seen = Counter()

    @settings(max_examples=100)
    @given(st.integers(7, 18), st.booleans(), st.sampled_from(["totatives", "some", "with given"]), st.data())
    def check(nodes, simplex, kind, data):
        everything = range(1, nodes if simplex else (nodes + 1) // 2)
        candidates = [p for p in everything if math.gcd(p, nodes) == 1]
        taken = ()
        if kind == "some":
            candidates = sorted(data.draw(st.sets(st.sampled_from(everything), min_size=2)))
        if kind == "with given":
            taken = (data.draw(st.sampled_from(everything)),)
        count = data.draw(st.integers(1, min(3, len(candidates))))
        best, scores = best_by_enumeration(nodes, count, candidates, simplex, true_hops, ring_edges, taken)
        chosen = select_permutations(
            nodes, count, candidates, "exhaustive", simplex=simplex, fixed_strides=taken
        )
        assert chosen == best
        seen["settled by symmetry"] += kind == "totatives" and count > 1
        seen["without the smallest"] += candidates[0] not in best
        seen["a choice of reach"] += len({score[:3] for score in scores.values()}) > 1
        seen["some disconnected"] += any(score[0] for score in scores.values())

    check()
    assert len(seen) == 4
    assert min(seen.values()) >= 5, seen


def test_exhaustive_refuses_what_it_cannot_finish():
    candidates = list_half_range(432, list_totient_strides(432))
    with pytest.raises(TopologyError, match=r"\(limit 250000\): use method 'geometric'"):
        select_permutations(432, 5, candidates, "exhaustive")


def test_the_limit_counts_the_sets_that_are_looked_at(monkeypatch):
    monkeypatch.setattr(strides, "MAX_EXHAUSTIVE_SETS", 21)
    assert (
        select_permutations(16, 3, list_totient_strides(16), "exhaustive", simplex=True)[0] == 1
    )  # 7 over 2
    monkeypatch.setattr(strides, "MAX_EXHAUSTIVE_SETS", 20)
    with pytest.raises(TopologyError, match="21 sets of strides"):
        select_permutations(16, 3, list_totient_strides(16), "exhaustive", simplex=True)


def test_more_rings_than_strides_are_refused():
    with pytest.raises(
        TopologyError, match=r"3 rings needed, but only 2 strides are available \(1, 5\): lower the degree"
    ):
        select_permutations(12, 3, (1, 5))


def test_an_unknown_method_is_refused():
    with pytest.raises(TopologyError, match="choose 'geometric' or 'exhaustive'"):
        select_permutations(12, 2, (1, 5), "random")


# topoopt.md 1.10: what the original testbed used. Its ties were broken by hand, so other sequences of
# the same length are as good.
GOLDEN_HOPS = {
    1: (1,),
    2: (1, 1),
    3: (5, 11, 11),
    4: (5, 11),
    5: (5,),
    6: (7, 11),
    7: (7,),
    8: (1, 7),
    9: (1, 1, 7),
    10: (11, 11),
    11: (11,),
}


def test_coin_change_on_the_original_testbed():
    found = make_stride_sequences(12, (1, 5, 7, 11))
    assert {m: len(coins) for m, coins in found.items()} == {m: len(c) for m, c in GOLDEN_HOPS.items()}
    assert all(sum(coins) % 12 == m for m, coins in found.items())
    assert all(sum(coins) % 12 == m for m, coins in GOLDEN_HOPS.items())  # the vector itself
    assert sum(map(len, found.values())) == 20  # mean 1.818


def test_coin_change_shares_ties_among_strides():
    load = Counter(coin for coins in make_stride_sequences(12, (1, 5, 7, 11)).values() for coin in coins)
    assert load.total() == 20
    assert set(load) == {1, 5, 7, 11}
    assert max(load.values()) <= 6  # 5 each would be even


@pytest.mark.slow
def test_coin_change_is_shortest_and_consistent(true_hops, ring_edges):
    seen = Counter()

    @settings(max_examples=200)
    @given(st.integers(3, 40), st.data())
    def check(nodes, data):
        coins = data.draw(st.sets(st.integers(1, nodes - 1), min_size=1, max_size=5))
        if math.gcd(nodes, *coins) != 1:
            with pytest.raises(TopologyError, match="greatest common divisor"):
                make_stride_sequences(nodes, coins)
            seen["refused"] += 1
            return
        found = make_stride_sequences(nodes, coins)
        row = true_hops(nodes, ring_edges(nodes, coins))[0]
        assert [len(found[m]) for m in range(1, nodes)] == row[1:].tolist()
        for m, sequence in found.items():
            assert set(sequence) <= coins
            assert sum(sequence) % nodes == m
            rest = (m - sequence[0]) % nodes
            assert sequence[1:] == found.get(rest, ())
        assert make_stride_sequences(nodes, sorted(coins, reverse=True)) == found
        seen["far"] += row.max() >= 4

    check()
    assert seen["refused"] >= 3, seen
    assert seen["far"] >= 20, seen


def test_a_node_without_a_path_is_minus_one():
    assert compute_hop_distances(6, (2,)) == [0, -1, 1, -1, 2, -1]
    assert measure_reach(6, (2,)).unreached_count == 3
