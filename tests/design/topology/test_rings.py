import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.design.topology.circulants import AllReduceDemand, find_topology
from testbed.design.topology.strides import list_rings, make_ring_order
from testbed.errors import TopologyError


def test_the_testbed_of_twelve_has_four_rings():
    rings = list_rings(find_topology(12, 4))
    assert [ring.stride for ring in rings] == [1, 5, 7, 11]
    assert rings[1].order == (0, 5, 10, 3, 8, 1, 6, 11, 4, 9, 2, 7)


def test_one_way_rings_run_one_way():
    assert [ring.stride for ring in list_rings(find_topology(16, 3, simplex=True))] == [1, 3, 7]


def test_groups_have_a_ring_each():
    topology = find_topology(12, 4, demands=[AllReduceDemand(4, 1)])
    assert [(ring.stride, ring.order) for ring in list_rings(topology, 4)] == [
        (3, (0, 3, 6, 9)),
        (3, (1, 4, 7, 10)),
        (3, (2, 5, 8, 11)),
        (9, (0, 9, 6, 3)),
        (9, (1, 10, 7, 4)),
        (9, (2, 11, 8, 5)),
    ]


def test_a_group_without_links_of_its_own_takes_its_nearest_stride():
    assert {ring.stride for ring in list_rings(find_topology(12, 4), 4)} == {3, 9}
    assert {ring.stride for ring in list_rings(find_topology(12, 4, simplex=True), 4)} == {3}


def test_strides_that_do_not_reach_everybody_are_no_rings_over_all_nodes():
    assert [ring.stride for ring in list_rings(find_topology(12, 5))] == [1, 5, 7, 11]


def test_the_antipodal_stride_is_a_ring_for_each_of_its_links():
    topology = find_topology(12, 4, demands=[AllReduceDemand(12, 1), AllReduceDemand(2, 4)])
    assert Counter(ring.order for ring in list_rings(topology, 2)) == {(i, i + 6): 2 for i in range(6)}


def test_a_group_that_does_not_divide_is_refused():
    with pytest.raises(TopologyError, match="a group of 5 nodes"):
        list_rings(find_topology(12, 4), 5)


def test_ring_orders_are_permutations():
    seen = Counter()

    @settings(max_examples=100)
    @given(st.integers(2, 40), st.data())
    def check(nodes, data):
        stride = data.draw(st.integers(1, nodes - 1))
        ring = make_ring_order(nodes, stride, data.draw(st.integers(0, nodes - 1)))
        group = nodes // math.gcd(stride, nodes)
        start = ring.order[0]
        assert sorted(ring.order) == sorted({(start + k * stride) % nodes for k in range(group)})
        following = ring.order[1:] + ring.order[:1]
        assert all((b - a) % nodes == stride for a, b in zip(ring.order, following, strict=True))
        if group == nodes:
            inverse = pow(stride, -1, nodes)
            assert all(ring.find_position(i) == (i - start) * inverse % nodes for i in range(nodes))
        seen["all nodes" if group == nodes else "group"] += 1

    check()
    assert min(seen["all nodes"], seen["group"]) >= 10, seen
