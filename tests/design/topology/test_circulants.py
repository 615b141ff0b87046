import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.design.topology.circulants import (
    AllReduceDemand,
    find_topology,
    list_circulant_edges,
    render_topology,
)
from testbed.design.topology.hops import compute_mean_hops
from testbed.design.topology.strides import list_direct_strides
from testbed.errors import TopologyError

TESTBED12 = {
    "nodes": 12,
    "degree": 4,
    "simplex": False,
    "strides": [1, 5],
    "links": [
        [0, 1], [0, 5], [0, 7], [0, 11], [1, 2], [1, 6], [1, 8], [2, 3], [2, 7], [2, 9], [3, 4], [3, 8],
        [3, 10], [4, 5], [4, 9], [4, 11], [5, 6], [5, 10], [6, 7], [6, 11], [7, 8], [8, 9], [9, 10], [10, 11],
    ],
    "diameter": 3,
    "mean_hops": 1.818182,
}  # fmt: skip


@pytest.mark.parametrize("method", ["geometric", "exhaustive"])
def test_the_testbed_of_twelve_has_strides_1_and_5(method):
    assert render_topology(find_topology(12, 4, method=method)) == TESTBED12


@pytest.mark.parametrize(
    ("nodes", "degree", "simplex", "strides"),
    [
        (12, 4, True, (1, 5, 7, 11)),
        (12, 2, False, (1,)),
        (12, 3, False, (1, 6)),
        (12, 5, False, (1, 5, 6)),
        (2, 1, False, (1,)),
        (2, 1, True, (1,)),
        (3, 1, True, (1,)),
        (4, 3, False, (1, 2)),
        (6, 4, False, (1, 2)),  # one ring over all nodes exists; a second one would be parallel to it
        (6, 5, True, (1, 2, 3, 4, 5)),
        (16, 3, True, (1, 3, 7)),
        (13, 4, True, (1, 2, 4, 7)),
        (128, 4, False, (1, 11)),
    ],
)
def test_strides(nodes, degree, simplex, strides):
    assert find_topology(nodes, degree, simplex=simplex).strides == strides


@pytest.mark.parametrize(
    ("nodes", "degree", "simplex", "copies"),
    [
        (2, 4, False, {4}),
        (2, 3, False, {3}),
        (3, 4, False, {2}),
        (3, 6, False, {3}),
        (2, 4, True, {4}),
        (3, 5, True, {2, 3}),
    ],
)
def test_more_nics_than_other_nodes_are_parallel_links(nodes, degree, simplex, copies):
    topology = find_topology(nodes, degree, simplex=simplex)
    assert set(Counter(topology.edges).values()) == copies
    assert set(Counter(source for source, _ in topology.edges).values()) == {degree}


@pytest.mark.parametrize(("nodes", "degree", "most_hops"), [(128, 3, 5.2), (128, 5, 3.6), (64, 3, 4.2)])
def test_odd_degrees_have_a_ring_and_a_matching_that_brings_nodes_near(nodes, degree, most_hops):
    """A cubic graph of 128 nodes cannot be below 4.65 (Moore); with antipodal links it was at 16.6."""
    topology = find_topology(nodes, degree)
    assert compute_mean_hops(topology) <= most_hops
    assert set(Counter(source for source, _ in topology.edges).values()) == {degree}
    rings = list_circulant_edges(nodes, list_direct_strides(nodes, topology.strides, simplex=False))
    matching = Counter(topology.edges) - Counter(rings)
    assert sorted(source for source, _ in matching.elements()) == list(range(nodes))
    assert (
        nodes // 2
        in find_topology(nodes, degree, demands=[AllReduceDemand(2, 1), AllReduceDemand(nodes, 1)]).strides
    )


def test_simplex_links_are_directed_edges():
    topology = find_topology(3, 1, simplex=True)
    assert topology.links == ((0, 1), (1, 2), (2, 0))
    assert render_topology(topology)["mean_hops"] == 1.5


@pytest.mark.parametrize(
    ("nodes", "degree", "simplex", "message"),
    [
        (1, 1, False, "nodes: a topology needs at least 2"),
        (0, 1, True, "nodes: a topology needs at least 2"),
        (12, 0, False, "at least 1 NIC"),
        (12, 1025, False, "lower the degree to at most 1024"),
        (13, 3, False, "use an even degree, an even number of nodes, or simplex"),
        (12, 1, False, "use a degree of 2 or more"),
    ],
)
def test_what_cannot_exist_is_refused_with_a_hint(nodes, degree, simplex, message):
    with pytest.raises(TopologyError, match=message):
        find_topology(nodes, degree, simplex=simplex)


def test_odd_nodes_and_odd_degree_are_possible_one_way():
    assert find_topology(13, 3, simplex=True).strides == (1, 2, 6)


GROUPS = [
    # groups and sizes, degree, simplex, strides at 12 nodes
    ([(12, 1), (4, 1)], 4, False, (1, 3)),
    ([(12, 1), (4, 4)], 4, False, (1, 3)),
    ([(4, 4), (12, 1)], 4, False, (1, 3)),
    ([(12, 9), (4, 1)], 4, False, (1, 5)),  # the small group is not worth half of the links
    ([(4, 1)], 4, False, (1, 3)),  # alone it would leave the graph in three parts
    ([(4, 1)], 2, False, (1,)),
    ([(12, 1), (6, 1)], 4, False, (1, 2)),
    ([(12, 1), (3, 2)], 4, False, (1, 4)),
    ([(12, 1), (2, 4)], 4, False, (1, 6, 6)),  # two NICs, one stride: the only way to use both
    ([(12, 1), (2, 4)], 5, False, (1, 5, 6)),
    ([(12, 1), (4, 1)], 6, False, (1, 3, 5)),
    ([(12, 1), (4, 9)], 6, False, (1, 3, 5)),  # the group has one stride, 5 serves everybody
    ([(12, 1), (4, 9)], 4, True, (1, 3, 5, 9)),
    ([(12, 1), (4, 1), (3, 1)], 6, False, (1, 3, 4)),
    ([(4, 2), (3, 1)], 4, False, (3, 4)),  # together these two connect the graph
    ([(12, 1), (12, 1), (4, 1)], 4, False, (1, 5)),  # 2 * 22/12 over two rings still leaves more than 18/12
    ([(12, 0), (4, 1)], 4, False, (1, 3)),
]


@pytest.mark.parametrize(("groups", "degree", "simplex", "strides"), GROUPS)
def test_demands_share_the_degree(groups, degree, simplex, strides):
    demands = [AllReduceDemand(group, size * 2**20) for group, size in groups]
    assert find_topology(12, degree, simplex=simplex, demands=demands).strides == strides


def test_a_group_that_does_not_divide_is_refused():
    with pytest.raises(TopologyError, match="a group of 5 nodes in a job of 12"):
        find_topology(12, 4, demands=[AllReduceDemand(5, 1)])


def test_a_negative_size_is_refused():
    with pytest.raises(TopologyError, match="give a size of 0 or more"):
        find_topology(12, 4, demands=[AllReduceDemand(12, -1)])


def test_bytes_sent_is_ring_arithmetic():
    assert AllReduceDemand(4, 1000).bytes_sent == 1500


@st.composite
def sizes(draw):
    """Return nodes, degree, simplex of a topology that can exist, up to 40 nodes."""
    nodes = draw(st.integers(2, 40))
    simplex = draw(st.booleans())
    degrees = [
        degree
        for degree in range(1, min(nodes, 9))
        if simplex or (nodes * degree % 2 == 0 and (degree > 1 or nodes == 2))
    ]
    return (nodes, draw(st.sampled_from(degrees)), simplex) if degrees else (nodes, nodes - 1, True)


@st.composite
def demands_of(draw, nodes):
    divisors = [k for k in range(2, nodes + 1) if nodes % k == 0]
    groups = draw(st.lists(st.sampled_from(divisors) | st.just(divisors[0]), max_size=3))
    return [AllReduceDemand(group, draw(st.integers(0, 2**30))) for group in groups]


@pytest.mark.long
def test_every_topology_is_connected_regular_and_as_asked(true_hops):
    seen = Counter()

    @settings(max_examples=250)
    @given(sizes(), st.sampled_from(["geometric", "exhaustive"]), st.data())
    def check(size, method, data):
        nodes, degree, simplex = size
        demands = data.draw(demands_of(nodes))
        method = method if nodes <= 16 else "geometric"
        topology = find_topology(nodes, degree, simplex=simplex, method=method, demands=demands)
        assert (topology.nodes, topology.degree, topology.simplex) == size
        hops = true_hops(nodes, topology.edges)
        assert hops.min() >= 0
        assert Counter(source for source, _ in topology.edges) == dict.fromkeys(range(nodes), degree)
        assert Counter(target for _, target in topology.edges) == dict.fromkeys(range(nodes), degree)
        assert all(source != target for source, target in topology.edges)
        if not simplex:
            assert Counter(topology.edges) == Counter((b, a) for a, b in topology.edges)
            assert len(topology.links) == nodes * degree // 2
        document = render_topology(topology)
        assert document["diameter"] == hops.max()
        assert math.isclose(document["mean_hops"], hops.sum() / nodes / (nodes - 1), abs_tol=1e-6)
        parallel = [edge for edge, times in Counter(topology.edges).items() if times > 1]
        assert all((target - source) * 2 % nodes == 0 for source, target in parallel)
        seen["parallel"] += bool(parallel)
        seen["demands"] += bool(demands)
        seen["no demands, no parallel links"] += not demands and not parallel
        seen["multi-hop"] += hops.max() > 2
        seen["simplex"] += simplex
        seen["exhaustive"] += method == "exhaustive"
        seen["odd duplex"] += not simplex and degree % 2

    check()
    for fact, floor in {
        "demands": 50,
        "no demands, no parallel links": 20,
        "multi-hop": 50,
        "simplex": 50,
        "exhaustive": 20,
        "odd duplex": 8,
        "parallel": 3,
    }.items():
        assert seen[fact] >= floor, seen
