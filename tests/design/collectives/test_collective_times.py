"""Simulated collectives on wired hosts, against arithmetic by hand."""

from __future__ import annotations

import pytest

from sim.models.network import compute_wire_efficiency
from sim.models.network.latency import NO_LATENCY, Latency
from testbed.design.collectives.all_reduce import make_allreduce_graph
from testbed.design.collectives.exchange import (
    compute_exchange_limit_mbps,
    compute_exchange_loads,
    make_exchange_graph,
)
from testbed.design.collectives.performance import NAMESPACE_HOST_LATENCY, build_hosts_fabric, predict_time_s
from testbed.design.model import Link, Nic, Wiring
from testbed.design.patching.wiring import make_wiring
from testbed.design.routing.routes import find_routes
from testbed.design.topology.circulants import find_topology
from testbed.design.topology.strides import list_rings, make_ring_order
from testbed.errors import TopologyError

MIB = 1 << 20
PAYLOAD_BPS = 100e6 * (9000 - 52) / 9014
ALL_PAIRS = [(s, t) for s in range(12) for t in range(12) if s != t]


def laid(nodes=12, degree=4, **how):
    topology = find_topology(nodes, degree, **how)
    wiring = make_wiring(topology)
    return topology, wiring, find_routes(wiring)


def fabric_of(wiring, routes):
    return build_hosts_fabric(wiring, routes, 100)


def test_a_link_carries_its_rate_less_headers_and_framing():
    _, wiring, routes = laid()
    fabric = fabric_of(wiring, routes)
    assert fabric.link_count == 48
    assert fabric.capacity_bps.tolist() == [pytest.approx(PAYLOAD_BPS)] * 48
    assert pytest.approx(PAYLOAD_BPS) == 100e6 * compute_wire_efficiency(9000)


def test_a_smaller_mtu_leaves_less_for_the_payload():
    _, wiring, routes = laid()
    small = build_hosts_fabric(wiring, routes, 100, mtu_bytes=1500)
    assert small.capacity_bps[0] == pytest.approx(100e6 * 1448 / 1514)


def test_paths_are_the_installed_routes():
    _, wiring, routes = laid(degree=3, simplex=True)
    fabric = fabric_of(wiring, routes)
    longer = 0
    for source, target in ALL_PAIRS:
        links = fabric.find_path(source, target)
        over = [(int(fabric.sources[link]), int(fabric.targets[link])) for link in links]
        assert over == [(link.source.node, link.target.node) for link in routes.path(source, target)]
        longer += len(over) > 1
    assert longer > 60


def test_parallel_links_carry_what_routes_put_on_each():
    """Four nodes in a line whose first two are joined twice: towards 1 and towards 2 and 3 by different links."""
    ends = [(Nic(0, 0), Nic(1, 0)), (Nic(0, 1), Nic(1, 1)), (Nic(1, 2), Nic(2, 0)), (Nic(2, 1), Nic(3, 0))]
    links = tuple(sorted(Link(*pair) for a, b in ends for pair in ((a, b), (b, a))))
    wiring = Wiring(4, 3, False, links)
    routes = find_routes(wiring)
    fabric = fabric_of(wiring, routes)
    assert fabric.link_count == 8
    assert len({routes.first_link[0, target] for target in (1, 2, 3)}) == 2
    over = {target: fabric.find_path(0, target)[0] for target in (1, 2, 3)}
    assert over == {target: links.index(routes.first_link[0, target]) for target in (1, 2, 3)}
    apart = next((s, t) for s in (1, 2, 3) for t in (1, 2, 3) if over[s] != over[t])
    took = predict_time_s(make_exchange_graph(4, [(0, target) for target in apart], MIB), fabric, NO_LATENCY)
    assert took == pytest.approx(MIB / 2 * 8 / PAYLOAD_BPS), "each half on a link of its own"


@pytest.mark.parametrize("rings", [1, 2, 4])
def test_rings_of_their_own_links_take_the_closed_form(rings):
    topology, wiring, routes = laid()
    graph = make_allreduce_graph(12, list_rings(topology)[:rings], 12 * MIB)
    bits = 22 / 12 * 12 * MIB * 8
    assert predict_time_s(graph, fabric_of(wiring, routes), NO_LATENCY) == pytest.approx(
        bits / rings / PAYLOAD_BPS
    )


def test_each_step_of_a_ring_adds_software_and_flight():
    topology, wiring, routes = laid()
    graph = make_allreduce_graph(12, list_rings(topology)[:1], 12 * MIB)
    fabric = fabric_of(wiring, routes)
    added = predict_time_s(graph, fabric, NAMESPACE_HOST_LATENCY) - predict_time_s(graph, fabric, NO_LATENCY)
    assert added == pytest.approx(
        22 * (NAMESPACE_HOST_LATENCY.software_delay_s + NAMESPACE_HOST_LATENCY.link_delay_s), rel=1e-6
    )


def test_a_step_over_five_hops_shares_every_link_with_four_others():
    _, wiring, routes = laid(degree=2)
    graph = make_allreduce_graph(12, [make_ring_order(12, 5)], 12 * MIB)
    bits = 22 / 12 * 12 * MIB * 8
    assert predict_time_s(graph, fabric_of(wiring, routes), NO_LATENCY) == pytest.approx(
        5 * bits / PAYLOAD_BPS
    )


def test_one_transfer_over_hops_adds_what_forwarding_costs():
    _, wiring, routes = laid(degree=2)
    latency = Latency(
        1e-3, 1, handshake_count=0, has_acknowledgement=False, relay_delay_s=1e-2, software_delay_s=0.1
    )
    took = predict_time_s(make_exchange_graph(12, [(0, 6)], MIB), fabric_of(wiring, routes), latency)
    assert took == pytest.approx(MIB * 8 / PAYLOAD_BPS + 6 * 1e-3 + 5 * 1e-2 + 0.1)


@pytest.mark.parametrize("degree", [2, 4])
def test_an_all_to_all_takes_at_least_what_its_fullest_link_needs_and_little_more(degree):
    _, wiring, routes = laid(degree=degree)
    size = 11 * MIB
    limit = compute_exchange_limit_mbps(routes, ALL_PAIRS, PAYLOAD_BPS / 1e6)
    lower_bound_s = size * 8 / limit / 1e6
    took = predict_time_s(make_exchange_graph(12, ALL_PAIRS, size), fabric_of(wiring, routes), NO_LATENCY)
    assert lower_bound_s * (1 - 1e-9) <= took <= lower_bound_s * 1.15


def test_a_tensor_is_split_evenly_over_the_targets_of_its_node():
    _, _, routes = laid()
    loads = compute_exchange_loads(routes, [(0, 1), (0, 5), (0, 7), (0, 11), (3, 4)])
    assert sorted(loads.values()) == [0.25] * 4 + [1.0]
    graph = make_exchange_graph(12, [(0, 1), (0, 5), (0, 7), (3, 4)], 10)
    assert graph.size_bytes.tolist() == [4, 3, 3, 10]


def test_all_pairs_of_a_ring_load_its_links_alike():
    _, _, routes = laid(degree=2)
    loads = compute_exchange_loads(routes, ALL_PAIRS)
    assert sum(loads.values()) == pytest.approx(sum(routes.count_hops(*pair) for pair in ALL_PAIRS) / 11)
    assert compute_exchange_limit_mbps(routes, ALL_PAIRS, 100) == pytest.approx(100 / max(loads.values()))


def test_an_exchange_of_nobody_has_no_limit():
    _, _, routes = laid()
    with pytest.raises(TopologyError, match="no pairs, so no link limits the exchange"):
        compute_exchange_limit_mbps(routes, [], 100)


@pytest.mark.parametrize("iterations", [1, 3])
def test_iterations_follow_one_another(iterations):
    topology, wiring, routes = laid()
    fabric = fabric_of(wiring, routes)
    ring = make_allreduce_graph(12, list_rings(topology), 12 * MIB, iterations)
    once = make_allreduce_graph(12, list_rings(topology), 12 * MIB)
    assert predict_time_s(ring, fabric) == pytest.approx(iterations * predict_time_s(once, fabric))
    there = make_exchange_graph(12, [(0, 1)], MIB, iterations)
    assert predict_time_s(there, fabric, NO_LATENCY) == pytest.approx(iterations * MIB * 8 / PAYLOAD_BPS)


def test_a_node_begins_its_next_iteration_when_it_has_done_its_part():
    """Tasks 0 to 2 are 0 -> 1, 0 -> 2, 3 -> 2; tasks 3 to 5 the same again."""
    graph = make_exchange_graph(4, [(0, 1), (0, 2), (3, 2)], 2 * MIB, 2)
    waits = {}
    for before, after in zip(graph.before.tolist(), graph.after.tolist(), strict=True):
        waits.setdefault(after, []).append(before)
    assert waits == {3: [0, 1], 4: [0, 1, 2], 5: [1, 2]}
