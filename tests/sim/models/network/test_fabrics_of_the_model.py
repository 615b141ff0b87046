"""Fabrics: paths lead from source to target over links that are there, capacities and prices are as described."""

from collections import Counter
from itertools import pairwise, product

import numpy as np
import pytest

from sim.models.network.execution import simulate
from sim.models.network.execution.circuits import (
    CircuitSwitch,
    Controller,
    choose_circuits,
    simulate_circuits,
)
from sim.models.network.fabrics import (
    find_equal_cost_rate_gbps,
    make_circulant,
    make_direct_fabric,
    make_expander,
    make_fat_tree,
    make_ideal_switch,
)
from sim.models.network.fabrics.circulants import balance_strides
from sim.models.network.fabrics.cost import (
    compute_circuit_switch_cost,
    compute_fat_tree_cost,
    compute_patch_panel_cost,
    load_prices,
)
from sim.models.network.latency import NO_LATENCY
from sim.models.network.taskgraph import TaskGraphBuilder

FABRICS = {
    "ideal": make_ideal_switch(12, 100),
    "spread": make_fat_tree(12, 100),
    "hash": make_fat_tree(40, 100, balance="hash"),
    "oversubscribed": make_fat_tree(16, 100, oversubscription=2),
    "circulant": make_circulant(12, (1, 5, 7, 11), 25),
    "prime": make_circulant(13, (1, 5), 25),
    "double": make_circulant(12, (1, 1, 11), 25),
    "expander": make_expander(20, 3, 25, seed=4),
    "one": make_ideal_switch(1, 100),
}


@pytest.mark.long
@pytest.mark.parametrize("name", FABRICS)
def test_paths_lead_from_source_to_target(name):
    fabric = FABRICS[name]
    for source, target, choice in product(range(fabric.node_count), range(fabric.node_count), range(5)):
        path = fabric.find_path(source, target, choice)
        at = source
        for link in path:
            assert fabric.sources[link] == at
            at = fabric.targets[link]
        assert at == target
        assert len(set(path)) == len(path)
        if fabric.hosts_forward:
            assert all(fabric.targets[link] < fabric.node_count for link in path)


@pytest.mark.slow
def test_direct_connect_takes_shortest_paths():
    networkx = pytest.importorskip("networkx")
    for fabric in (FABRICS["circulant"], FABRICS["prime"], FABRICS["expander"]):
        graph = networkx.DiGraph(zip(fabric.sources.tolist(), fabric.targets.tolist(), strict=True))
        hops = dict(networkx.all_pairs_shortest_path_length(graph))
        for source, target in product(range(fabric.node_count), repeat=2):
            assert len(fabric.find_path(source, target)) == hops[source][target]


@pytest.mark.long
@pytest.mark.parametrize("nodes", [2, 5, 16, 17, 54, 128])
def test_a_fat_tree_has_full_bisection(nodes):
    """Above each switch, and each pod, there is as much as the hosts below can send, and paths have 2, 4 or 6 links."""
    fabric = make_fat_tree(nodes, 100)
    for source, target in product(range(nodes), repeat=2):
        path = fabric.find_path(source, target)
        assert len(path) in ({0} if source == target else {2, 4, 6})
        assert fabric.capacity_bps[list(path)].min(initial=100e9) == 100e9
    up = fabric.sources < nodes
    for switch in set(fabric.targets[up].tolist()):
        below = fabric.capacity_bps[up & (fabric.targets == switch)].sum()
        above = fabric.capacity_bps[(fabric.sources == switch) & (fabric.targets > switch)].sum()
        assert above >= below


@pytest.mark.long
def test_hashing_uses_all_up_links_about_alike():
    fabric = make_fat_tree(128, 100, balance="hash")
    used = Counter(fabric.find_path(0, 127, choice)[1:3] for choice in range(3200))
    assert len(used) == 16  # 4 aggregation switches, 4 core switches each
    assert 150 < min(used.values()) <= max(used.values()) < 250


def test_oversubscription_divides_what_leaves_a_switch():
    job = TaskGraphBuilder(16)
    for host in (0, 1):
        job.add_transfer(host, host + 8, 10**9)
    times = [
        simulate(job.build(), make_fat_tree(16, 8, oversubscription=ratio), latency=NO_LATENCY).iteration_s
        for ratio in (1, 2, 4)
    ]
    assert times == pytest.approx([1.0, 2.0, 4.0])


def test_spread_and_hash_agree_where_nothing_collides():
    job = TaskGraphBuilder(16)
    job.add_allreduce(tuple(range(16)), 10**7)
    spread, hashed = (
        simulate(job.build(), make_fat_tree(16, 100, balance=how)) for how in ("spread", "hash")
    )
    assert spread.iteration_s == pytest.approx(hashed.iteration_s, rel=1e-12)
    assert spread.link_bytes.sum() == hashed.link_bytes.sum()


@pytest.mark.parametrize(
    ("nodes", "strides"), [(12, (1, 5, 7, 11)), (16, (1, 3, 13, 15)), (31, (1, 12, 19, 30))]
)
def test_the_routes_of_a_circulant_load_strides_alike(nodes, strides):
    load = balance_strides(nodes, strides, np.ones(len(strides))).sum(axis=(0, 1))
    assert load.max() <= 1.1 * load.min()


def test_given_paths_are_taken_in_turn():
    edges = [(0, 1), (1, 2), (0, 2), (2, 0)]
    fabric = make_direct_fabric(3, edges, 10, paths={(0, 2): [(0, 2), (0, 1, 2)]})
    ways = [[int(fabric.targets[link]) for link in fabric.find_path(0, 2, choice)] for choice in range(4)]
    assert ways == [[2], [1, 2], [2], [1, 2]]
    assert [int(fabric.targets[link]) for link in fabric.find_path(1, 0)] == [2, 0]


def test_expanders_are_regular_simple_connected_and_the_same_for_a_seed():
    for nodes, degree in ((6, 3), (20, 4), (64, 8), (5, 4), (2, 1)):
        fabric = make_expander(nodes, degree, 25, seed=1)
        again = make_expander(nodes, degree, 25, seed=1)
        assert np.bincount(fabric.sources, minlength=nodes).tolist() == [degree] * nodes
        assert (fabric.capacity_bps == 25e9).all()
        assert fabric.sources.tolist() == again.sources.tolist()
        assert fabric.targets.tolist() == again.targets.tolist()
    assert (
        make_expander(64, 4, 25, seed=1).targets.tolist() != make_expander(64, 4, 25, seed=2).targets.tolist()
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_ideal_switch(0, 100), "at least 1"),
        (lambda: make_ideal_switch(2, 0), "finite and above 0"),
        (lambda: make_ideal_switch(2, float("nan")), "finite and above 0"),
        (lambda: make_fat_tree(4, 100, oversubscription=0.5), "oversubscription is 0.5"),
        (lambda: make_circulant(12, (2, 4), 25), "reach 6 of 12 nodes"),
        (lambda: make_circulant(12, (12,), 25), "from a node to itself"),
        (lambda: make_expander(5, 3, 25), "n \\* d must be even"),
        (lambda: make_expander(4, 1, 25), "no connected 1-regular graph"),
        (lambda: make_direct_fabric(2, [(0, 0)], 25), "different nodes"),
        (lambda: make_direct_fabric(2, [(0, 1)], 25, paths={(0, 1): [(1, 0)]}), "does not lead from 0 to 1"),
        (lambda: make_direct_fabric(3, [(0, 1)], 25, paths={(0, 2): [(0, 1, 2)]}), "which is not an edge"),
        (lambda: make_direct_fabric(3, [(0, 1)], 25).find_path(1, 2), "nothing connects node 1 to node 2"),
        (lambda: make_ideal_switch(2, 8).find_link(0, 1), "no link 0 -> 1"),
        (lambda: CircuitSwitch(4, 1, 25, hosts_forward=True), "2 with forwarding"),
        (
            lambda: CircuitSwitch(4, 2, 25, controller=Controller(period_s=1e-3), delay_s=1e-3),
            "choose a longer period",
        ),
    ],
)
def test_a_fabric_that_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# ------------------------------------------------------------------------------ circuits


def two_transfers(first_bytes):
    job = TaskGraphBuilder(4)
    job.add_transfer(0, 1, first_bytes)
    job.add_transfer(0, 2, 2 * 10**9)
    return job.build()


def test_circuits_follow_the_greatest_demand():
    """One transmitter at 1 GB/s, 1.3 GB to node 1 and 2 GB to node 2; in GB left at each half second:

    0.5: 1.3 1.6; 1.0: 1.3 1.1, it turns; from now on 0.4 a period: 1.5: 0.9 1.1; 2.0: 0.9 0.7; 2.5: 0.5 0.7;
    3.0: 0.5 0.3; 3.5: 0.1 0.3; dark to 3.6, node 2 done at 3.9; at 4.0 it turns, dark to 4.1.
    """
    switch = CircuitSwitch(4, 1, 8, controller=Controller(period_s=0.5), delay_s=0.1)
    done = simulate_circuits(two_transfers(1_300_000_000), switch, latency=NO_LATENCY)
    assert done.end_s == pytest.approx([4.2, 3.9])
    assert done.link_bytes[[1, 2]].tolist() == [1_300_000_000, 2_000_000_000]


def test_the_second_circuit_of_a_pair_counts_half():
    """Two transmitters; GB left of 1 and 2. 0.5: 0.6 1.6, and 1.6 / 2 > 0.6: both to node 2, one stays lit.

    1.0: 0.6 0.7: one each again; 1.5: 0.2 0.2, and so they end together.
    """
    switch = CircuitSwitch(4, 2, 8, controller=Controller(period_s=0.5), delay_s=0.1)
    done = simulate_circuits(two_transfers(1_000_000_000), switch, latency=NO_LATENCY)
    assert done.end_s == pytest.approx([1.7, 1.7])


def test_with_forwarding_those_without_a_circuit_go_over_others():
    """Degree 2: the ring, and one chosen circuit each; what has none is forwarded, at once."""
    job = TaskGraphBuilder(6)
    for target in range(1, 6):
        job.add_transfer(0, target, 10**8)
    with_, without = (
        simulate_circuits(
            job.build(),
            CircuitSwitch(
                6, 2, 8, controller=Controller(period_s=0.5), delay_s=0.1, hosts_forward=forwarding
            ),
            latency=NO_LATENCY,
        )
        for forwarding in (True, False)
    )
    assert with_.bandwidth_tax > 1.0
    assert without.bandwidth_tax == 1.0
    assert with_.iteration_s < without.iteration_s
    assert without.wire_bytes == without.link_bytes.sum() == 5 * 10**8


def test_bytes_are_counted_on_the_links_they_took():
    """A reroute in mid-flow: the sums over the links into and out of the ends stay those asked for."""
    job = TaskGraphBuilder(6)
    late = job.add_compute(0, 0.7)
    job.add_transfer(0, 3, 2 * 10**9)
    job.add_transfer(1, 4, 8 * 10**9, predecessors=[late])
    job.add_transfer(0, 4, 4 * 10**9, predecessors=[late])
    switch = CircuitSwitch(6, 2, 8, controller=Controller(period_s=0.5), delay_s=0.1, hosts_forward=True)
    done = simulate_circuits(job.build(), switch, latency=NO_LATENCY)
    carried = done.link_bytes.reshape(6, 6)
    assert (carried >= 0).all()
    gained = carried.sum(axis=0) - carried.sum(axis=1)
    assert gained.tolist() == [-6 * 10**9, -8 * 10**9, 0, 2 * 10**9, 12 * 10**9, 0]


def test_lit_circuits_stay_where_nobody_else_wants_the_ports():
    lit = np.zeros((3, 3), np.int64)
    lit[0, 1] = lit[1, 2] = 1
    wanted = np.zeros((3, 3))
    wanted[0, 2] = 5.0
    chosen = choose_circuits(wanted, CircuitSwitch(3, 1, 8), lit)
    assert chosen.tolist() == [[0, 0, 1], [0, 0, 0], [0, 0, 0]]
    wanted[:] = 0
    assert choose_circuits(wanted, CircuitSwitch(3, 1, 8), lit).tolist() == lit.tolist()


def test_a_pair_with_much_demand_gets_several_circuits():
    wanted = np.zeros((4, 4))
    wanted[0, 1], wanted[0, 2] = 9.0, 2.0  # 9, 4.5, 2.25 before 2
    chosen = choose_circuits(wanted, CircuitSwitch(4, 3, 8), np.zeros((4, 4), np.int64))
    assert chosen[0].tolist() == [0, 3, 0, 0]


# ------------------------------------------------------------------------------ cost


def test_costs_are_those_of_the_table():
    """A host with four interfaces at 100 Gbit/s, worked out by hand."""
    fibre = 0.3 * 500
    assert compute_patch_panel_cost(1, 4, 100).total_usd == 4 * (678 + 99 + 25 + 2 * 100 + fibre)
    assert compute_circuit_switch_cost(1, 4, 100).total_usd == 4 * (678 + 99 + 520 + fibre)
    assert compute_fat_tree_cost(1, 100).total_usd == 678 + 5 * 187 + 4 * 99 + 2 * fibre
    assert (
        compute_fat_tree_cost(2, 100, oversubscription=2).total_usd == 2 * 678 + 6 * 187 + 4 * 99 + 2 * fibre
    )


def test_prices_say_that_they_are_recalled():
    assert load_prices()["recalled"] is True
    assert all(fabric.cost.is_unverified for fabric in FABRICS.values())


def test_equal_cost():
    for rate in (10, 25, 100, 137, 400, 1600):
        found = find_equal_cost_rate_gbps(
            compute_fat_tree_cost(128, rate).total_usd, lambda r: compute_fat_tree_cost(128, r)
        )
        assert compute_fat_tree_cost(128, found).total_usd == pytest.approx(
            compute_fat_tree_cost(128, rate).total_usd
        )
    with pytest.raises(ValueError, match="buys no rate"):
        find_equal_cost_rate_gbps(1.0, lambda rate: compute_fat_tree_cost(128, rate))


def test_costs_grow_with_the_rate():
    costs = [compute_fat_tree_cost(1, rate).total_usd for rate in (1, 10, 25, 40, 60, 100, 200, 800)]
    assert all(less <= more for less, more in pairwise(costs))
