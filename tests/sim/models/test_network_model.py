from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.models.network import (
    Network,
    RingTraffic,
    compute_allreduce_time_s,
    compute_bus_bandwidth_limit_mbps,
    compute_fair_rates,
    compute_link_usage,
    compute_transfer_times_s,
    compute_wire_efficiency,
)

IDEAL = Network(8, efficiency=1, link_latency_s=0, relay_latency_s=0, message_overhead_s=0)  # 1 MB/s


def ring(members, links, size_bytes):
    """Return a ring whose hops take one link each."""
    return RingTraffic(members, tuple((link,) for link in links), size_bytes)


@pytest.mark.long
def test_rates_are_max_min_fair():
    """Every flow meets a full link on which nobody is faster (Bertsekas and Gallager's bottleneck)."""
    seen = Counter()

    @settings(max_examples=300)
    @given(st.integers(1, 6), st.integers(1, 6), st.floats(0.1, 1e9), st.data())
    def check(links, flows, capacity, data):
        counts = st.lists(st.integers(0, 3), min_size=flows, max_size=flows)
        usage = np.array(data.draw(st.lists(counts, min_size=links, max_size=links)), dtype=float)
        rates = compute_fair_rates(usage, capacity)
        for flow in range(flows):
            used = usage[:, flow] > 0
            if not used.any():
                assert rates[flow] == np.inf
                continue
            load = np.array([sum(u * r for u, r in zip(row, rates, strict=True) if u) for row in usage])
            full = used & np.isclose(load, capacity, rtol=1e-9)
            assert (load <= capacity * (1 + 1e-9)).all()
            assert any(
                rates[usage[link] > 0].max() <= rates[flow] * (1 + 1e-9) for link in np.flatnonzero(full)
            )
        finite = rates[np.isfinite(rates)]
        seen["different rates"] += bool(len(finite) > 1 and finite.max() > finite.min() * 1.01)
        seen["unloaded flow"] += len(finite) < flows

    check()
    assert min(seen["different rates"], seen["unloaded flow"]) >= 15, seen


def test_a_step_costs_the_software_of_all_rings_that_its_busiest_member_serves():
    """By hand: two steps, in each of which node 0 serves two rings at a second a message."""
    slow_hosts = Network(8, efficiency=1, link_latency_s=0, relay_latency_s=0, message_overhead_s=1.0)
    rings = [ring((0, 1), (0, 1), 1e6), ring((0, 2), (2, 3), 1e6)]
    assert compute_allreduce_time_s(rings, slow_hosts) == pytest.approx(1.0 + 2 * 2 * 1.0)


def test_two_rings_on_one_way_halve():
    rings = [ring((0, 1), (0, 1), 1e6), ring((0, 1), (0, 1), 1e6)]
    assert compute_transfer_times_s(rings, IDEAL).tolist() == [2.0, 2.0]


def test_the_longer_ring_is_faster_when_the_shorter_one_ends():
    """1 MB and 3 MB share a link: both at half rate for 2 s, then 2 MB alone for 2 s."""
    rings = [ring((0, 1), (0, 1), 1e6), ring((0, 1), (0, 1), 3e6)]
    assert compute_transfer_times_s(rings, IDEAL).tolist() == [2.0, 4.0]


def test_a_relay_link_counts_each_time_it_is_used():
    once = RingTraffic((0, 1), ((0,), (1,)), 1e6)
    twice = RingTraffic((0, 1), ((0, 1), (1, 0)), 1e6)
    assert compute_link_usage([once, twice]).tolist() == [[1, 2], [1, 2]]
    assert compute_transfer_times_s([twice], IDEAL).tolist() == [2.0]


def test_nothing_to_send_takes_no_time():
    assert compute_allreduce_time_s([], IDEAL) == 0
    assert compute_allreduce_time_s([ring((0, 1), (0, 1), 0.0)], IDEAL) == 0


def test_each_step_adds_flight_and_software():
    network = Network(8, efficiency=1, link_latency_s=0.1, relay_latency_s=0.01, message_overhead_s=1.0)
    relayed = RingTraffic((0, 1, 2), ((0,), (1, 2), (3,)), 0.0)
    assert compute_allreduce_time_s([relayed], network) == pytest.approx(4 * (0.21 + 1.0))
    assert compute_allreduce_time_s([relayed, relayed], network) == pytest.approx(4 * (0.21 + 2.0))


def test_headers_slow_the_wire():
    rings = [ring((0, 1), (0, 1), 1e6)]
    ideal_s = compute_transfer_times_s(rings, IDEAL)[0]
    real_s = compute_transfer_times_s(rings, Network(8, efficiency=compute_wire_efficiency(9000)))[0]
    assert real_s == pytest.approx(ideal_s * 9014 / 8948)
    assert compute_wire_efficiency(1500) == pytest.approx(1448 / 1514)


def test_the_slowest_group_sets_the_limit():
    alone = ring((0, 1), (0, 1), 1e6)
    crowded = [ring((2, 3), (2, 3), 1e6), ring((4, 5), (2, 3), 1e6)]
    assert compute_bus_bandwidth_limit_mbps([alone], IDEAL) == 8
    assert compute_bus_bandwidth_limit_mbps([alone, *crowded], IDEAL) == 4


def test_time_grows_with_size_and_falls_with_rate():
    seen = Counter()

    @given(st.integers(2, 12), st.integers(0, 2**30), st.integers(1, 2**30), st.floats(1, 1e5))
    def check(members, size_bytes, more_bytes, rate_mbps):
        def time_s(size, rate):
            order = tuple(range(members))
            return compute_allreduce_time_s([ring(order, order, float(size))], Network(rate))

        assert time_s(size_bytes, rate_mbps) < time_s(size_bytes + more_bytes, rate_mbps)
        assert time_s(size_bytes + more_bytes, rate_mbps) > time_s(size_bytes + more_bytes, 2 * rate_mbps)
        seen["any"] += 1

    check()
    assert seen["any"] >= 20


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rate_mbps": 0}, "must be above 0"),
        (
            {"rate_mbps": 1, "efficiency": 0},
            r"payload per wire byte must lie in \(0, 1\]",
        ),
        (
            {"rate_mbps": 1, "efficiency": 1.2},
            r"payload per wire byte must lie in \(0, 1\]",
        ),
        ({"rate_mbps": 1, "message_overhead_s": -1}, "0 s or more"),
    ],
)
def test_a_network_that_cannot_be_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Network(**wrong)
