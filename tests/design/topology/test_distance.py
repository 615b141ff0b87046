from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.design.model import Topology
from testbed.design.topology.circulants import find_topology
from testbed.design.topology.distance import diameter, distances, mean_hops
from testbed.errors import TopologyError


def test_the_testbed_of_twelve():
    topology = find_topology(12, 4)
    assert diameter(topology) == 3
    assert mean_hops(topology) == 20 / 11
    assert distances(topology)[0].tolist() == [0, 1, 2, 3, 2, 1, 2, 1, 2, 3, 2, 1]


@pytest.mark.slow
def test_any_graph_has_distances(true_hops):
    seen = Counter()

    @settings(max_examples=100)
    @given(st.integers(2, 12), st.data())
    def check(nodes, data):
        node = st.integers(0, nodes - 1)
        pairs = st.tuples(node, node).filter(lambda edge: edge[0] != edge[1])
        edges = tuple(sorted(data.draw(st.sets(pairs, max_size=3 * nodes))))
        topology = Topology(nodes, 3, True, (), edges)
        expected = true_hops(nodes, edges)
        assert (distances(topology) == expected).all()
        if expected.min() < 0:
            with pytest.raises(TopologyError, match="has no path to node"):
                diameter(topology)
            seen["not connected"] += 1
        else:
            assert diameter(topology) == expected.max()
            seen["connected"] += 1

    check()
    assert min(seen["connected"], seen["not connected"]) >= 5, seen


def test_a_circulant_is_not_taken_for_its_strides_when_an_edge_is_gone(true_hops):
    whole = find_topology(12, 4)
    cut = Topology(12, 4, False, whole.strides, tuple(e for e in whole.edges if set(e) != {0, 1}))
    assert distances(cut)[0, 1] == 3
    assert (distances(cut) == true_hops(12, cut.edges)).all()
