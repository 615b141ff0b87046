from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.design.model import Topology
from testbed.design.topology import hops
from testbed.design.topology.circulants import find_topology, render_topology
from testbed.design.topology.hops import (
    compute_diameter,
    compute_mean_hops,
    count_hops_from,
    make_distance_matrix,
    make_hop_table,
    measure_distances,
)
from testbed.errors import TopologyError


def test_the_testbed_of_twelve():
    topology = find_topology(12, 4)
    assert compute_diameter(topology) == 3
    assert compute_mean_hops(topology) == 20 / 11
    assert make_distance_matrix(topology)[0].tolist() == [0, 1, 2, 3, 2, 1, 2, 1, 2, 3, 2, 1]


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
        assert (make_distance_matrix(topology) == expected).all()
        if expected.min() < 0:
            with pytest.raises(TopologyError, match="has no path to node"):
                compute_diameter(topology)
            seen["not connected"] += 1
        else:
            assert compute_diameter(topology) == expected.max()
            seen["connected"] += 1

    check()
    assert min(seen["connected"], seen["not connected"]) >= 5, seen


def test_a_circulant_is_not_taken_for_its_strides_when_an_edge_is_gone(true_hops):
    whole = find_topology(12, 4)
    cut = Topology(12, 4, False, whole.strides, tuple(e for e in whole.edges if set(e) != {0, 1}))
    assert make_distance_matrix(cut)[0, 1] == 3
    assert (make_distance_matrix(cut) == true_hops(12, cut.edges)).all()


@settings(max_examples=30)
@given(st.integers(2, 40), st.data())
def test_hops_from_some_nodes_are_rows_of_the_table(nodes, data):
    node = st.integers(0, nodes - 1)
    edges = sorted(
        data.draw(st.sets(st.tuples(node, node).filter(lambda edge: edge[0] != edge[1]), max_size=99))
    )
    sources = np.array(sorted(data.draw(st.sets(node, min_size=1))))
    assert (count_hops_from(sources, nodes, edges) == make_hop_table(nodes, edges)[sources]).all()


def test_of_a_large_graph_a_sample_of_nodes_speaks_for_all(monkeypatch):
    topology = find_topology(512, 5)
    whole = measure_distances(topology)
    monkeypatch.setattr(hops, "MAX_EXACT_NODES", 511)
    sample = measure_distances(topology)
    assert (whole.sampled_node_count, sample.sampled_node_count) == (None, 64)
    assert sample.mean_hops == pytest.approx(whole.mean_hops, rel=0.02)
    assert whole.diameter - 1 <= sample.diameter <= whole.diameter
    assert render_topology(topology)["hops_sampled_from"] == 64


@pytest.mark.slow
def test_of_a_large_circulant_one_node_speaks_for_all():
    found = render_topology(find_topology(65_536, 4))
    assert (found["diameter"], found["mean_hops"]) == (256, 128.001953)
    assert "hops_sampled_from" not in found


def test_a_slip_in_the_number_of_nodes_is_told():
    with pytest.raises(TopologyError, match="give fewer nodes"):
        find_topology(10**12, 4)
