import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.design.matching import match_edges
from testbed.design.patching.wiring import make_wiring
from testbed.design.topology.demand import AllReduceDemand, make_demand
from testbed.design.topology.finder import plan_topology
from testbed.design.topology.hops import compute_diameter, compute_mean_hops
from testbed.design.topology.strides import (
    list_direct_strides,
    list_half_range,
    list_totient_strides,
    measure_reach,
    select_permutations,
)
from testbed.errors import TopologyError

GIGABYTE = 10**9


def everybody(nodes):
    return [AllReduceDemand(nodes, GIGABYTE)]


def test_pure_data_parallelism_on_twelve_nodes_is_strides_1_and_5():
    finding = plan_topology(make_demand(12, everybody(12)), 4)
    assert finding.topology.strides == (1, 5)
    assert (finding.ring_degree, finding.matching_degree, finding.matchings) == (4, 0, ())
    assert len(finding.topology.links) == 24
    assert (compute_diameter(finding.topology), round(compute_mean_hops(finding.topology), 3)) == (3, 1.818)


def test_pairs_that_send_most_get_links():
    pairs = [(0, 6, 9 * GIGABYTE), (6, 0, GIGABYTE), (1, 4, 5 * GIGABYTE), (4, 6, 8 * GIGABYTE)]
    finding = plan_topology(make_demand(12, [AllReduceDemand(12, 2 * GIGABYTE)], pairs), 4)
    assert (finding.ring_degree, finding.matching_degree) == (4, 0)  # 44 of 67 GB: 2.6 NICs, so 3, so 4
    finding = plan_topology(make_demand(12, [AllReduceDemand(12, GIGABYTE // 2)], pairs), 4)
    assert (finding.ring_degree, finding.matching_degree) == (2, 2)
    assert finding.matchings[0] == ((0, 6), (1, 4))
    assert finding.matchings[1] == ((4, 6),)  # 8 GB against halves: 5 and 2.5
    assert finding.link_count_by_pair == {(0, 6): 1, (1, 4): 1, (4, 6): 1}


@pytest.mark.parametrize(("discount", "partners"), [("halved", [1, 2, 1, 2]), ("harmonic", [1, 2, 1, 1])])
def test_a_link_makes_the_next_one_less_wanted(discount, partners):
    """0-1 sends 8, 0-2 sends 4.2. Halved: 8, 4 < 4.2, 4 > 2.1, 2 < 2.1. Harmonic: the fourth is 8/3 > 2.1."""
    demand = make_demand(8, [AllReduceDemand(8, 1)], [(0, 1, 8.0), (0, 2, 4.2)])
    bought = plan_topology(demand, 6, discount=discount, matching_degree=4).matchings
    assert [pair for ((_, pair),) in bought] == partners


def test_one_way_links_are_bought_one_way():
    demand = make_demand(6, everybody(6), [(0, 3, 5e9), (3, 1, 4e9)])
    finding = plan_topology(demand, 3, simplex=True, matching_degree=1)
    assert finding.matchings == (((0, 3), (3, 1)),)
    assert (3, 0) not in finding.topology.edges


def test_one_node_needs_nothing():
    finding = plan_topology(make_demand(1), 4)
    assert finding.topology.edges == ()
    assert (compute_diameter(finding.topology), compute_mean_hops(finding.topology)) == (0, 0.0)


@pytest.mark.parametrize(
    ("nodes", "degree", "message"),
    [
        (12, 1, "use a degree of 2 or more"),
        (13, 3, "use an even degree"),
        (4, 2000, "lower the degree to at most 1024"),
    ],
)
def test_what_cannot_exist_is_refused(nodes, degree, message):
    with pytest.raises(TopologyError, match=message):
        plan_topology(make_demand(nodes, everybody(nodes)), degree)


def test_two_nodes_and_a_prime_number_of_nodes():
    assert plan_topology(make_demand(2, everybody(2), [(0, 1, 5.0)]), 1).topology.links == ((0, 1),)
    finding = plan_topology(make_demand(13, everybody(13), [(0, 6, 1e12), (1, 7, 1e12)]), 4)
    assert finding.matchings[0] == ((0, 6), (1, 7))
    assert set(Counter(end for link in finding.topology.links for end in link).values()) == {4}


def test_an_unknown_discount_is_refused():
    with pytest.raises(TopologyError, match="choose 'halved' or 'harmonic'"):
        plan_topology(make_demand(4), 2, discount="thirds")


def test_primes_only():
    finding = plan_topology(make_demand(32, everybody(32)), 8, only_primes=True)
    assert finding.topology.strides == (1, 3, 5, 13)
    assert set(finding.topology.strides) <= {1, 3, 5, 7, 11, 13}


def test_strides_of_a_group():
    finding = plan_topology(make_demand(12, [AllReduceDemand(12, GIGABYTE), AllReduceDemand(4, GIGABYTE)]), 4)
    assert finding.list_group_strides(12) == (1,)
    assert finding.list_group_strides(4) == (3,)
    assert finding.list_group_strides(6) == ()


@st.composite
def jobs(draw):
    nodes = draw(st.integers(3, 24))
    simplex = draw(st.booleans())
    degrees = [d for d in range(2, min(nodes, 8)) if simplex or nodes * d % 2 == 0]
    chance = random.Random(draw(st.integers(0, 2**32)))
    pairs = [
        (chance.randrange(nodes), chance.randrange(nodes), chance.choice([0, 1, 5, 1e9, 1e10]))
        for _ in range(draw(st.integers(0, 4 * nodes)))
    ]
    groups = [k for k in range(2, nodes + 1) if nodes % k == 0]
    reduces = [AllReduceDemand(chance.choice(groups), chance.choice([0, 1, 10**9])) for _ in range(2)]
    return make_demand(nodes, reduces, pairs), draw(st.sampled_from(degrees)), simplex


@pytest.mark.long
def test_every_finding_is_connected_within_its_degree_and_can_be_wired(true_hops):
    seen = Counter()

    @settings(max_examples=200, deadline=None)
    @given(jobs(), st.sampled_from(["averages", "published"]))
    def check(job, shares):
        demand, degree, simplex = job
        finding = plan_topology(demand, degree, simplex=simplex, share_rule=shares)
        topology, nodes = finding.topology, demand.nodes
        hops = true_hops(nodes, topology.edges)
        assert hops.min() >= 0
        assert compute_diameter(topology) == hops.max()
        sends = Counter(source for source, _ in topology.edges)
        receives = Counter(target for _, target in topology.edges)
        assert max(*sends.values(), *receives.values()) <= degree
        assert finding.ring_degree + finding.matching_degree == degree
        wanted = set(zip(demand.source.tolist(), demand.target.tolist(), strict=True))
        for pair in finding.link_count_by_pair:
            assert pair in wanted or (not simplex and pair[::-1] in wanted)
        wiring = make_wiring(topology)
        assert len(wiring.links) == len(topology.edges)
        regular = set(sends.values()) == {degree}
        if not simplex and nodes % 2 == 0:
            assert regular
            one_plane_an_interface = make_wiring(topology, plane_count=degree)
            assert all(link.source.index == link.target.index for link in one_plane_an_interface.links)
        seen["bought"] += bool(finding.link_count_by_pair)
        seen["twice"] += max(finding.link_count_by_pair.values(), default=0) > 1
        seen["planes with matchings"] += not simplex and nodes % 2 == 0 and bool(finding.link_count_by_pair)
        seen["odd duplex"] += not simplex and nodes % 2
        seen["simplex"] += simplex

    check()
    for fact, floor in (
        ("bought", 40), ("twice", 5), ("planes with matchings", 10), ("odd duplex", 10), ("simplex", 30)
    ):  # fmt: skip
        assert seen[fact] >= floor, seen


def test_dense_demands_among_many_nodes_are_matched_nearly_as_heavily():
    nodes = 260
    chance = np.random.default_rng(5)
    one, other = np.triu_indices(nodes, 1)
    weights = chance.lognormal(0, 2, len(one))
    demand = make_demand(nodes, [], zip(one.tolist(), other.tolist(), weights.tolist(), strict=True))
    table = dict(zip(zip(one.tolist(), other.tolist(), strict=True), weights.tolist(), strict=True))
    (first, *_) = plan_topology(demand, 3, matching_degree=1).matchings
    assert sum(table[pair] for pair in first) >= 0.9 * match_edges(nodes, one, other, weights).weight


@pytest.mark.long
@pytest.mark.parametrize("simplex", [True, False])
def test_diameter_grows_no_faster_than_d_times_the_dth_root_of_n(simplex):
    """TopoOpt's bound O(d n^(1/d)) for d geometric strides; the constant is 1, and nearly 1 for few strides."""
    chance = random.Random(2)
    sizes = [*range(8, 200), *chance.sample(range(200, 4096), 40)]
    worst = 0.0
    for count in (1, 2, 3, 4, 6, 8):
        for nodes in sizes:
            candidates = (
                list_totient_strides(nodes)
                if simplex
                else list_half_range(nodes, list_totient_strides(nodes))
            )
            if len(candidates) >= count:
                strides = select_permutations(nodes, count, candidates, simplex=simplex)
                farthest = measure_reach(nodes, list_direct_strides(nodes, strides, simplex=simplex)).diameter
                assert farthest <= count * nodes ** (1 / count), (nodes, strides)
                worst = max(worst, farthest / (count * nodes ** (1 / count)))
    assert worst > (0.9 if simplex else 0.5)
