import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.models.network import Network
from testbed.design.collectives.all_reduce import (
    compute_bus_bandwidth_mbps,
    compute_link_limit_mbps,
    count_ring_hops_by_link,
    list_ring_paths,
    predict_allreduce_s,
)
from testbed.design.patching.wiring import make_wiring
from testbed.design.routing.routes import find_routes
from testbed.design.topology.circulants import AllReduceDemand, find_topology
from testbed.design.topology.strides import list_rings
from testbed.errors import TopologyError

IDEAL = Network(100, efficiency=1, link_latency_s=0, relay_latency_s=0, message_overhead_s=0)
WORKLOAD = [AllReduceDemand(12, 2**28), AllReduceDemand(4, 2**30)]


def laid(nodes, degree, group=None, **how):
    topology = find_topology(nodes, degree, **how)
    wiring = make_wiring(topology)
    return wiring, find_routes(wiring), list_rings(topology, group)


def test_four_rings_reach_four_links():
    wiring, routes, rings = laid(12, 4)
    assert [compute_link_limit_mbps(wiring, routes, rings[:k], 100) for k in (1, 2, 3, 4)] == [
        100,
        200,
        300,
        400,
    ]


def test_rings_of_strides_share_no_link():
    wiring, routes, rings = laid(12, 4)
    assert count_ring_hops_by_link(wiring, routes, rings) == dict.fromkeys(wiring.links, 1)


def test_eight_mebibytes_on_one_and_four_rings():
    """By hand: 22/12 * 8 MiB * 8 bit at 100 Mbit/s is 1.23033 s, and a quarter of it."""
    wiring, routes, rings = laid(12, 4)
    assert predict_allreduce_s(wiring, routes, rings[:1], 8 << 20, IDEAL) == pytest.approx(1.230329, abs=1e-6)
    assert predict_allreduce_s(wiring, routes, rings, 8 << 20, IDEAL) == pytest.approx(0.307582, abs=1e-6)


@pytest.mark.long
def test_k_disjoint_rings_follow_the_closed_form():
    seen = Counter()

    @settings(max_examples=80)
    @given(st.integers(3, 24), st.integers(2, 6), st.booleans(), st.integers(2**20, 2**34), st.data())
    def check(nodes, degree, simplex, size_bytes, data):
        if degree >= nodes or (not simplex and nodes * degree % 2):
            return
        wiring, routes, rings = laid(nodes, degree, simplex=simplex)
        count = data.draw(st.integers(1, len(rings)))
        expected_s = 2 * (nodes - 1) / nodes * size_bytes * 8 / (count * 100e6)
        time_s = predict_allreduce_s(wiring, routes, rings[:count], size_bytes, IDEAL)
        assert math.isclose(time_s, expected_s, rel_tol=1e-9)
        limit = compute_link_limit_mbps(wiring, routes, rings[:count], 100)
        assert math.isclose(limit, 100 * count, rel_tol=1e-9)
        assert math.isclose(compute_bus_bandwidth_mbps(size_bytes, nodes, time_s), limit, rel_tol=1e-9)
        seen[min(count, 3)] += 1

    check()
    assert min(seen[1], seen[2], seen[3]) >= 5, seen


@pytest.mark.long
def test_the_limit_is_set_by_the_fullest_link():
    """With even shares the fullest link never rests: k rings reach k/load of its rate."""
    seen = Counter()

    @settings(max_examples=60)
    @given(st.sampled_from([12, 16, 18, 24]), st.sampled_from([3, 4, 5]), st.data())
    def check(nodes, degree, data):
        group = data.draw(st.sampled_from([k for k in range(2, nodes) if nodes % k == 0]))
        wiring, routes, rings = laid(nodes, degree, group)
        fullest = max(count_ring_hops_by_link(wiring, routes, rings).values())
        per_group = len(rings) * group // nodes
        limit = compute_link_limit_mbps(wiring, routes, rings, 100)
        assert math.isclose(limit, 100 * per_group / fullest, rel_tol=1e-9)
        seen["relayed" if fullest > 1 else "direct"] += 1

    check()
    assert min(seen["relayed"], seen["direct"]) >= 5, seen


def test_groups_of_four_gain_from_a_stride_of_their_own():
    before = laid(12, 4, group=4)
    after = laid(12, 4, group=4, demands=WORKLOAD)
    assert max(len(path) for ring in list_ring_paths(*before) for path in ring) == 3
    assert max(len(path) for ring in list_ring_paths(*after) for path in ring) == 1
    assert compute_link_limit_mbps(*after, 100) == pytest.approx(200)
    assert compute_link_limit_mbps(*before, 100) < 100


def test_relays_and_messages_cost_time():
    wiring, routes, rings = laid(12, 4, group=4)
    data_s = predict_allreduce_s(wiring, routes, rings, 1 << 20, IDEAL)
    slow = Network(100, efficiency=1, link_latency_s=1e-3, relay_latency_s=1e-4, message_overhead_s=1e-2)
    # 2(4-1) steps; three links and two relays each; every member serves two rings
    expected_s = data_s + 6 * (3e-3 + 2e-4 + 2 * 1e-2)
    assert predict_allreduce_s(wiring, routes, rings, 1 << 20, slow) == pytest.approx(expected_s)


def test_small_messages_do_not_gain_from_more_rings():
    wiring, routes, rings = laid(12, 4)
    network = Network(100)
    times_s = {k: predict_allreduce_s(wiring, routes, rings[:k], 1 << 10, network) for k in (1, 4)}
    assert times_s[4] > times_s[1]


def test_parallel_links_carry_a_ring_each():
    how = {"demands": [AllReduceDemand(12, 1), AllReduceDemand(2, 4)]}
    wiring, routes, rings = laid(12, 4, group=2, **how)
    assert compute_link_limit_mbps(wiring, routes, rings, 100) == pytest.approx(200)


def test_without_rings_there_is_no_limit():
    wiring, routes, _ = laid(12, 4)
    with pytest.raises(TopologyError, match="no rings"):
        compute_link_limit_mbps(wiring, routes, (), 100)
    with pytest.raises(TopologyError, match="no rings"):
        predict_allreduce_s(wiring, routes, (), 1, IDEAL)
