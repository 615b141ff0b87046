import math

import pytest

from testbed.design.collectives.trees import (
    find_shortest_stride,
    make_double_tree,
    make_double_trees,
    measure_depth,
)
from testbed.design.topology.circulants import find_topology
from testbed.design.topology.hops import make_hop_table
from testbed.design.topology.strides import list_totient_strides


@pytest.mark.parametrize("nodes", [2, 3, 4, 7, 12, 16, 31, 64])
def test_both_trees_hold_everybody_and_share_no_relay(nodes):
    for stride in list_totient_strides(nodes)[:5]:
        pair = make_double_tree(nodes, stride)
        for tree in (pair.first, pair.second):
            assert sorted([tree.root, *(child for child, _ in tree.edges)]) == list(range(nodes))
            assert measure_depth(tree) <= 1 + math.ceil(math.log2(nodes))
            children = [sum(parent == node for _, parent in tree.edges) for node in range(nodes)]
            assert max(children) <= 2
        shared = pair.first.relays & pair.second.relays
        assert shared <= (set() if nodes % 2 == 0 else {pair.order.order[0]})


def test_labels_are_permuted_as_rings_are():
    plain, turned = make_double_tree(12, 1), make_double_tree(12, 5)
    assert turned.first.edges == tuple(sorted((c * 5 % 12, p * 5 % 12) for c, p in plain.first.edges))
    assert turned.order.order[:4] == (0, 5, 10, 3)


def test_a_topology_has_trees_for_each_stride_and_group():
    topology = find_topology(12, 4)
    assert [pair.order.stride for pair in make_double_trees(topology)] == [1, 5]
    groups = make_double_trees(topology, 4)
    assert [sorted(pair.order.order) for pair in groups] == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]


def test_labels_are_chosen_by_hops():
    topology = find_topology(64, 4)
    table = make_hop_table(64, topology.edges)
    hops = {stride: make_double_tree(64, stride).count_hops(table) for stride in list_totient_strides(64)}
    best = find_shortest_stride(64, 64, table)
    assert hops[best] == min(hops.values()) < max(hops.values())
    assert find_shortest_stride(64, 64, table, [3]) == 3
