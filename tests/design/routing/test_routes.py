import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.design.model import Link, Nic, Wiring
from testbed.design.patching.wiring import make_wiring
from testbed.design.routing.routes import find_routes, list_ring_links
from testbed.design.topology.circulants import AllReduceDemand, find_topology
from testbed.design.topology.strides import list_rings, make_ring_order
from testbed.errors import TopologyError


def pairs(nodes):
    return [(s, t) for s in range(nodes) for t in range(nodes) if s != t]


def edges_of(wiring):
    return [(link.source.node, link.target.node) for link in wiring.links]


@st.composite
def wirings(draw):
    """Return a circulant, or a ring with random one-way permutations beside it."""
    nodes = draw(st.integers(3, 24))
    if draw(st.booleans()):
        simplex = draw(st.booleans())
        degree = draw(st.sampled_from([d for d in range(2, min(nodes, 6)) if simplex or nodes * d % 2 == 0]))
        return make_wiring(find_topology(nodes, degree, simplex=simplex))
    chance = random.Random(draw(st.integers(0, 2**32)))
    shuffled = [chance.sample(range(nodes), nodes) for _ in range(draw(st.integers(0, 3)))]
    planes = [[(i + 1) % nodes for i in range(nodes)], *shuffled]
    links = tuple(
        sorted(
            Link(Nic(node, index), Nic(to, index))
            for index, plane in enumerate(planes)
            for node, to in enumerate(plane)
            if node != to
        )
    )
    return Wiring(nodes, len(planes), True, links)


@pytest.mark.long
def test_routes_are_shortest_loop_free_trees(true_hops):
    seen = Counter()

    @settings(max_examples=120)
    @given(wirings())
    def check(wiring):
        routes = find_routes(wiring)
        hops = true_hops(wiring.nodes, edges_of(wiring))
        present = set(wiring.links)
        for source, target in pairs(wiring.nodes):
            path = routes.path(source, target)
            assert len(path) == routes.count_hops(source, target) == hops[source, target]
            assert set(path) <= present
            assert path[0].source.node == source
            assert path[-1].target.node == target
            assert all(a.target.node == b.source.node for a, b in pairwise(path))
            assert path[1:] == (routes.path(path[0].target.node, target) if len(path) > 1 else ())
        assert find_routes(wiring) == routes
        seen["multi-hop"] += hops.max() > 2
        seen["parallel"] += len(set(edges_of(wiring))) < len(wiring.links)
        seen["not circulant"] += len({(t - s) % wiring.nodes for s, t in edges_of(wiring)}) > wiring.degree

    check()
    assert min(seen["multi-hop"], seen["parallel"], seen["not circulant"]) >= 10, seen


@pytest.mark.parametrize(
    ("nodes", "degree", "simplex"),
    [
        (12, 4, False),
        (12, 4, True),
        (16, 3, True),
        (13, 4, True),
        (24, 4, False),
        (40, 4, False),
        (40, 6, False),
    ],
)
def test_load_is_balanced_over_links(nodes, degree, simplex):
    wiring = make_wiring(find_topology(nodes, degree, simplex=simplex))
    routes = find_routes(wiring)
    load = Counter(link for pair in pairs(nodes) for link in routes.path(*pair))
    mean = sum(load.values()) / len(wiring.links)
    assert len(load) == len(wiring.links)
    assert max(load.values()) <= max(1.25 * mean, mean + 1)


def test_order_of_links_does_not_matter():
    wiring = make_wiring(find_topology(12, 4))
    backwards = Wiring(12, 4, False, tuple(reversed(wiring.links)))
    assert find_routes(backwards) == find_routes(wiring)


def test_parallel_links_share_the_pairs():
    demands = [AllReduceDemand(12, 1), AllReduceDemand(2, 4)]
    wiring = make_wiring(find_topology(12, 4, demands=demands))
    routes = find_routes(wiring)
    load = Counter(link for pair in pairs(12) for link in routes.path(*pair))
    twins = [load[link] for link in wiring.links if (link.target.node - link.source.node) % 12 == 6]
    assert len(twins) == 24
    assert min(twins) > 0


def test_a_pair_without_a_path_is_named():
    wiring = Wiring(3, 1, True, (Link(Nic(0, 0), Nic(1, 0)), Link(Nic(1, 0), Nic(0, 0))))
    with pytest.raises(TopologyError, match="node 2 has no path to node 0"):
        find_routes(wiring)


def test_one_missing_link_is_routed_around():
    whole = make_wiring(find_topology(12, 4))
    cut = Wiring(12, 4, False, tuple(link for link in whole.links if edges_of_pair(link) != {0, 1}))
    assert find_routes(whole).count_hops(0, 1) == 1
    assert find_routes(cut).count_hops(0, 1) == 3


def edges_of_pair(link):
    return {link.source.node, link.target.node}


def test_rings_take_their_own_links():
    topology = find_topology(12, 4)
    wiring = make_wiring(topology)
    used = [path for ring in list_rings(topology) for path in list_ring_links(wiring, ring)]
    assert {len(path) for path in used} == {1}
    assert {path[0] for path in used} == set(wiring.links)
    assert len(used) == 48


def test_a_ring_follows_its_stride():
    wiring = make_wiring(find_topology(12, 4))
    order = make_ring_order(12, 7)
    for position, (link,) in enumerate(list_ring_links(wiring, order)):
        assert link.source.node == order.order[position]
        assert link.target.node == (link.source.node + 7) % 12


def test_a_ring_without_links_takes_the_routes():
    wiring = make_wiring(find_topology(12, 4))
    routes = find_routes(wiring)
    paths = list_ring_links(wiring, make_ring_order(12, 3), routes)
    assert paths == tuple(routes.path(i, (i + 3) % 12) for i in (0, 3, 6, 9))
    assert paths == list_ring_links(wiring, make_ring_order(12, 3))


def test_copies_of_a_ring_take_parallel_links():
    topology = find_topology(12, 4, demands=[AllReduceDemand(12, 1), AllReduceDemand(2, 4)])
    wiring = make_wiring(topology)
    first, second = (list_ring_links(wiring, make_ring_order(12, 6), copy_index=copy) for copy in (0, 1))
    assert not {link for path in first for link in path} & {link for path in second for link in path}
