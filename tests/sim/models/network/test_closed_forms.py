"""Times that can be worked out by hand or by a linear program, met exactly."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from sim.models.network.allreduce import (
    find_tree_parents,
    plan_double_binary_tree,
    plan_exchange,
    plan_halving_doubling,
    plan_rings,
)
from sim.models.network.execution import simulate
from sim.models.network.execution.flows import Flow, simulate_transfers
from sim.models.network.fabrics import make_circulant, make_direct_fabric, make_ideal_switch
from sim.models.network.latency import NO_LATENCY, Latency
from sim.models.network.taskgraph import TaskGraphBuilder

RATE_GBPS = 100
BYTES_PER_S = RATE_GBPS * 1e9 / 8


def allreduce_s(n, size_bytes, fabric, algorithm=plan_rings, latency=NO_LATENCY):
    job = TaskGraphBuilder(n)
    job.add_allreduce(tuple(range(n)), size_bytes)
    return simulate(job.build(), fabric, latency=latency, allreduce=algorithm)


@pytest.mark.parametrize("n", [2, 3, 7, 12, 16, 64])
def test_a_ring_moves_twice_n_less_one_over_n(n):
    size_bytes = n * 1_000_003
    done = allreduce_s(n, size_bytes, make_ideal_switch(n, RATE_GBPS))
    assert done.iteration_s == pytest.approx(2 * (n - 1) / n * size_bytes / BYTES_PER_S, rel=1e-12)
    assert done.link_bytes.tolist() == [2 * (n - 1) * size_bytes // n] * (2 * n)


@pytest.mark.parametrize("strides", [(1,), (1, 11), (1, 5, 7, 11)])
def test_rings_on_links_of_their_own_divide_the_time(strides):
    size_bytes = 12 * 4 * 1_000_000
    done = allreduce_s(
        12, size_bytes, make_circulant(12, strides, RATE_GBPS), partial(plan_rings, strides=strides)
    )
    assert done.iteration_s == pytest.approx(22 / 12 * size_bytes / len(strides) / BYTES_PER_S, rel=1e-12)
    assert done.bandwidth_tax == 1.0
    assert len(set(done.link_bytes.tolist())) == 1


@pytest.mark.parametrize("n", [2, 4, 8, 32])
def test_halving_and_doubling_moves_the_same_bytes_in_fewer_rounds(n):
    size_bytes = n * 1_000_000
    done = allreduce_s(n, size_bytes, make_ideal_switch(n, RATE_GBPS), plan_halving_doubling)
    assert done.iteration_s == pytest.approx(2 * (n - 1) / n * size_bytes / BYTES_PER_S, rel=1e-12)
    ((*phases,),) = plan_halving_doubling(range(n), size_bytes)
    assert sum(phase.round_count for phase in phases) == 2 * np.log2(n)


def test_members_beyond_a_power_of_two_go_first_and_last():
    """12 = 8 + 4: a whole tensor, 2 * 7/8 of it, a whole tensor."""
    done = allreduce_s(12, 8_000_000, make_ideal_switch(12, RATE_GBPS), plan_halving_doubling)
    assert done.iteration_s == pytest.approx((2 + 2 * 7 / 8) * 8_000_000 / BYTES_PER_S, rel=1e-12)


def reached(chains, n):
    """Return what each member knows in the end: the set of members whose numbers it holds, part by part."""
    known = []
    for chain in chains:
        holds = [{i} for i in range(n)]
        for phase in chain:
            for _ in range(phase.round_count):
                before = [set(held) for held in holds]
                for source, target in zip(phase.sources, phase.targets, strict=True):
                    holds[target] |= before[source]
        known.append(holds)
    return known


@pytest.mark.parametrize("n", [2, 3, 5, 8, 12, 13, 16])
@pytest.mark.parametrize(
    "algorithm",
    [
        plan_rings,
        plan_halving_doubling,
        plan_double_binary_tree,
        partial(plan_double_binary_tree, multiplier=-1),
    ],
)
def test_everybody_hears_of_everybody(n, algorithm):
    for holds in reached(algorithm(range(n), n * 3_000_000), n):
        assert all(held == set(range(n)) for held in holds)


@pytest.mark.parametrize("n", [2, 7, 8, 12, 100])
def test_trees_have_one_root_and_logarithmic_depth(n):
    parents = find_tree_parents(n)
    depth = []
    for position in range(n):
        steps = 0
        while parents[position] != position:
            position, steps = parents[position], steps + 1  # noqa: PLW2901
        assert position == 0
        depth.append(steps)
    assert max(depth) <= np.ceil(np.log2(n)) + 1
    children = np.bincount(parents[1:], minlength=n)
    assert children.max() <= 2
    assert children[0] == 1


def test_each_member_is_a_leaf_in_one_tree_at_least_but_for_the_root():
    """Half of the tensor goes over each tree, so that no member sends much more than the tensor up and down."""
    n, size_bytes = 16, 64 * 512 * 1024
    done = allreduce_s(n, size_bytes, make_ideal_switch(n, RATE_GBPS), plan_double_binary_tree)
    assert done.link_bytes[:n].max() <= 2.02 * size_bytes
    assert done.wire_bytes == 2 * (n - 1) * size_bytes


def test_a_pipelined_tree_takes_a_round_a_level_and_a_chunk():
    """Two members, 8 chunks in each half: up and down are two levels, 9 rounds of one chunk."""
    chunk = 512 * 1024
    ((*phases,), _) = plan_double_binary_tree((0, 1), 16 * chunk)
    assert [phase.round_count for phase in phases] == [1, 7, 1]
    done = allreduce_s(2, 16 * chunk, make_ideal_switch(2, RATE_GBPS), plan_double_binary_tree)
    # The second tree is the mirror: in its 9 rounds, too, each direction of a link carries at most 2 chunks at once.
    assert 16 * chunk / BYTES_PER_S <= done.iteration_s <= 18 * chunk / BYTES_PER_S


def test_a_round_costs_its_latency_once():
    """g = 4 over an ideal switch: 6 rounds of handshake, packets, a packet on the second link, there and back."""
    size_bytes, latency = 4 * 10 * 8936, Latency()
    packet_s = 8936 / BYTES_PER_S
    done = allreduce_s(4, size_bytes, make_ideal_switch(4, RATE_GBPS), latency=latency)
    assert done.iteration_s == pytest.approx(6 * (4e-6 + 10 * packet_s + packet_s + 4e-6), rel=1e-12)


def test_a_small_allreduce_is_one_exchange():
    """Under 9,000 bytes a member: one round of 2 * 3/4 of them, in whole packets."""
    done = allreduce_s(4, 20_000, make_ideal_switch(4, RATE_GBPS), latency=Latency())
    (((phase,),),) = (plan_exchange(range(4), 20_000),)
    assert phase.sizes_bytes.tolist() == [7_500] * 4
    assert done.iteration_s == pytest.approx(8e-6 + 2 * 8936 / BYTES_PER_S, rel=1e-12)


def all_to_all_bound(nodes, edges):
    """Return least time of an all-to-all that may be split and routed at will, for messages and rates of 1.

    Maximum concurrent flow as a linear program: for each source the amount on each edge, and the time.
    """
    linprog = pytest.importorskip("scipy.optimize").linprog
    links = len(edges)
    balance, wanted = np.zeros((nodes * nodes, nodes * links + 1)), np.ones(nodes * nodes)
    load = np.zeros((links, nodes * links + 1))
    load[:, -1] = -1
    for source in range(nodes):
        wanted[source * nodes + source] = 1 - nodes
        for number, (tail, head) in enumerate(edges):
            balance[source * nodes + tail, source * links + number] -= 1
            balance[source * nodes + head, source * links + number] += 1
            load[number, source * links + number] = 1
    objective = np.zeros(nodes * links + 1)
    objective[-1] = 1
    return linprog(objective, A_ub=load, b_ub=np.zeros(links), A_eq=balance, b_eq=wanted).fun


@pytest.mark.parametrize(
    ("strides", "slower"), [((1, 11), 1), ((1, 5, 7, 11), 1), ((1, 3, 9, 11), 1), ((1, 2, 10, 11), 1.25)]
)
def test_all_to_all_on_a_circulant_against_the_bound(strides, slower):
    """Each pair's bytes over all four sets of shortest routes, a flow's number being its choice.

    Where the shortest routes can load the strides evenly no routing whatever is faster; with strides 1 and 2 they
    cannot, and the bound is not met.
    """
    nodes, size_bytes = 12, 4_000_000
    fabric = make_circulant(nodes, strides, RATE_GBPS)
    pairs = [(source, target) for source in range(nodes) for target in range(nodes) if source != target]
    flows = [Flow(*pair, size_bytes // 4) for pair in pairs for _ in range(4)]
    simulated_s = simulate_transfers(fabric, flows).end_s.max()
    edges = list(zip(fabric.sources.tolist(), fabric.targets.tolist(), strict=True))
    bound_s = all_to_all_bound(nodes, edges) * size_bytes / BYTES_PER_S
    assert bound_s * (1 - 1e-9) <= simulated_s <= slower * bound_s * (1 + 1e-9)


def test_rings_of_groups_that_share_links_share_the_rate():
    job = TaskGraphBuilder(4)
    job.add_allreduce((0, 1), 2_000_000)
    job.add_allreduce((0, 1), 2_000_000)
    fabric = make_direct_fabric(4, [(0, 1), (1, 0)], RATE_GBPS)
    done = simulate(job.build(), fabric, latency=NO_LATENCY)
    assert done.iteration_s == pytest.approx(2 * 2_000_000 / BYTES_PER_S, rel=1e-12)


@pytest.mark.parametrize(
    "algorithm", [plan_rings, plan_halving_doubling, plan_double_binary_tree, plan_exchange]
)
def test_one_member_and_no_bytes_move_nothing(algorithm):
    assert algorithm((3,), 1000) == ()
    assert algorithm((0, 1), 0) == ()


def test_a_stride_that_makes_several_rings_is_refused():
    with pytest.raises(
        ValueError, match="stride 4 does not form a single ring of 6 members: choose one without a"
    ):
        plan_rings(range(6), 1000, strides=(1, 4))
    with pytest.raises(ValueError, match="multiplier 2 shares a factor"):
        plan_double_binary_tree(range(6), 1000, multiplier=2)


def test_time_grows_with_size():
    sizes = [0, 1, 100, 10_000, 10**6, 10**8]
    times = [
        allreduce_s(8, size, make_ideal_switch(8, RATE_GBPS), latency=Latency()).iteration_s for size in sizes
    ]
    assert times[0] == 0
    assert all(smaller <= larger for smaller, larger in pairwise(times))
