"""Rounds that flow as one, rings on strides, ends that are rounded: what stays exact, and how far the rest errs."""

from functools import partial
from itertools import pairwise
from math import gcd

import numpy as np
import pytest

from sim.models.network.allreduce import plan_double_binary_tree, plan_halving_doubling, plan_rings
from sim.models.network.allreduce.fluid import (
    choose_position_strides,
    make_circulant_rings,
    make_fluid,
    make_stride_rings,
    plan_fluid_ring,
)
from sim.models.network.engine.program import FLOWS, make_state
from sim.models.network.execution import Change, simulate
from sim.models.network.execution.circuits import CircuitSwitch, Controller, simulate_circuits
from sim.models.network.execution.flows import _make_program_without_tasks
from sim.models.network.fabrics import make_circulant, make_fat_tree, make_ideal_switch
from sim.models.network.latency import NO_LATENCY, Latency
from sim.models.network.taskgraph import TaskGraphBuilder

LATENCIES = {
    "none": NO_LATENCY,
    "packets": Latency(),
    "hosts": Latency(relay_delay_s=3e-6, software_delay_s=2e-4),
}


def one_allreduce(nodes, members, size_bytes):
    job = TaskGraphBuilder(nodes)
    job.add_allreduce(members, size_bytes)
    return job.build()


def exchange_job(nodes):
    """Everybody sends to everybody, different sizes, computes, and sums."""
    job = TaskGraphBuilder(nodes)
    last = []
    for source in range(nodes):
        for target in range(nodes):
            if source != target:
                move = job.add_transfer(source, target, 200_000 + 7_000 * ((source * 5 + target * 3) % 11))
                last.append(job.add_compute(target, 1e-4, predecessors=[move]))
    job.add_allreduce(tuple(range(nodes)), 4_000_000, predecessors=last[:3])
    return job.build()


@pytest.mark.parametrize("latency", LATENCIES.values(), ids=LATENCIES)
@pytest.mark.parametrize(
    "fabric", [make_ideal_switch(12, 100), make_fat_tree(12, 100), make_circulant(12, (1, 5, 7, 11), 100)]
)
def test_a_ring_that_is_alone_takes_the_same_time_and_bytes(fabric, latency):
    """Paths of different length, too: 2, 4 or 6 links in the Fat-tree."""
    graph = one_allreduce(12, tuple(range(12)), 12 * 1_000_003)
    rounds, merged = (
        simulate(graph, fabric, latency=latency, allreduce=how) for how in (plan_rings, plan_fluid_ring)
    )
    assert merged.iteration_s == pytest.approx(rounds.iteration_s, rel=1e-9)
    assert merged.link_bytes.tolist() == rounds.link_bytes.tolist()
    assert (merged.payload_bytes, merged.wire_bytes) == (rounds.payload_bytes, rounds.wire_bytes)
    assert merged.event_count < rounds.event_count / 4


def test_rings_that_share_their_links_all_the_time_take_the_same_time():
    job = TaskGraphBuilder(8)
    for _ in range(3):
        job.add_allreduce(tuple(range(8)), 8_000_000)
    rounds, merged = (
        simulate(job.build(), make_ideal_switch(8, 100), allreduce=how)
        for how in (plan_rings, plan_fluid_ring)
    )
    assert merged.iteration_s == pytest.approx(rounds.iteration_s, rel=1e-9)


def test_a_ring_beside_others_comes_near():
    """An all-to-all comes and goes beside the ring: a few per cent, and every byte is counted."""
    fabric = make_circulant(12, (1, 5, 7, 11), 100)
    rounds, merged = (
        simulate(exchange_job(12), fabric, allreduce=make_circulant_rings(12, (1, 5, 7, 11), exact=exact))
        for exact in (True, False)
    )
    assert merged.link_bytes.tolist() == rounds.link_bytes.tolist()
    assert merged.iteration_s == pytest.approx(rounds.iteration_s, rel=0.1)


def test_the_long_middle_of_a_tree_is_merged_and_single_rounds_are_not():
    graph = one_allreduce(8, tuple(range(8)), 64 << 20)
    rounds, merged = (
        simulate(graph, make_ideal_switch(8, 100), allreduce=how)
        for how in (plan_double_binary_tree, make_fluid(plan_double_binary_tree))
    )
    assert merged.link_bytes.tolist() == rounds.link_bytes.tolist()
    assert merged.iteration_s == pytest.approx(rounds.iteration_s, rel=0.05)
    assert merged.event_count < rounds.event_count / 2
    ((*phases,),) = make_fluid(plan_halving_doubling)(range(8), 8_000)
    assert not any(phase.is_merged for phase in phases)


def test_strides_of_a_group_are_rings_over_exactly_its_members():
    checked = 0
    for nodes, steps in ((12, (1, 11, 5, 7)), (16, (1, 15, 6, 10)), (24, (1, 23, 4, 20)), (13, (1, 5))):
        for size in (size for size in range(2, nodes + 1) if nodes % size == 0):
            group = tuple(range(1 % (nodes // size), nodes, nodes // size))
            strides = choose_position_strides(nodes, steps, group)
            assert all(gcd(stride, size) == 1 for stride in strides)
            joined = [stride * nodes // size for stride in strides]
            own = [
                step
                for step in steps
                if step in {j * nodes // size for j in range(size) if gcd(j, size) == 1}
            ]
            assert joined == own or (not own and len(joined) <= len(steps))
            checked += not own
    assert checked >= 8


def test_rings_of_a_group_without_strides_pass_other_hosts():
    """On 12 nodes with +-1, +-5 the group 0, 3, 6, 9 is 3 hops apart; both rings of it are taken."""
    fabric, group = make_circulant(12, (1, 5, 7, 11), 100), (9, 0, 6, 3)
    done = simulate(
        one_allreduce(12, group, 4_000_000), fabric, allreduce=make_circulant_rings(12, (1, 5, 7, 11))
    )
    assert done.bandwidth_tax == pytest.approx(3.0)
    assert choose_position_strides(12, (1, 11, 5, 7), (0, 3, 6, 9)) == (1, 3)


def test_any_other_group_has_one_ring():
    chains = make_circulant_rings(12, (1, 5, 7, 11))((7, 0, 2), 3_000)
    assert [phase.targets.tolist() for (phase,) in chains] == [[2, 7, 0]]


def test_parallel_links_carry_rings_of_their_own():
    chains = make_circulant_rings(6, (1, 1, 5))(range(6), 6_000_000)
    assert [phase.targets[0] for (phase,) in chains] == [1, 1, 5]
    assert len(make_stride_rings(lambda _: (1, 5), exact=True)(range(6), 6)) == 2


def test_rounded_ends_are_late_by_no_more_than_asked():
    from sim.models.network.engine import shares_numpy
    from sim.models.network.engine.timers import round_end_s  # brings numba

    random = np.random.default_rng(8)
    begin_s = random.random(300) * 10.0 ** random.integers(-6, 2, 300)
    lasts_s = random.random(300) * 10.0 ** random.integers(-6, 1, 300) + 1e-7
    for rounding in (0.3, 0.01, 0.001):
        ends = np.array(
            [
                round_end_s(begin, begin + lasts, rounding)
                for begin, lasts in zip(begin_s, lasts_s, strict=True)
            ]
        )
        late = (ends - begin_s - lasts_s) / lasts_s
        assert late.min() >= -1e-6
        assert late.max() <= rounding * (1 + 1e-6)
        assert late.mean() > rounding / 10
        state = make_state(_make_program_without_tasks(300), 1, rounding=rounding)
        state.flow_messages[:], state.counters[FLOWS] = np.arange(300), 300
        state.flow_begin_s[:], state.flow_end_s[:] = begin_s, begin_s + lasts_s
        shares_numpy._round_ends(state, np.arange(300))  # both engines must round alike
        assert state.flow_end_s.tolist() == ends.tolist()


def test_rounding_moves_the_same_bytes_in_nearly_the_same_time_with_less_work():
    """Later ends can also change who waits for whom, so that the sum may be off by more than the rounding."""
    fabric, graph = make_circulant(12, (1, 5, 7, 11), 100), exchange_job(12)
    done = [
        simulate(graph, fabric, allreduce=plan_fluid_ring, rounding=rounding)
        for rounding in (0, 0.001, 0.01, 0.1)
    ]
    assert all(rounded.link_bytes.tolist() == done[0].link_bytes.tolist() for rounded in done[1:])
    assert done[1].iteration_s == pytest.approx(done[0].iteration_s, rel=0.002)
    assert done[2].iteration_s == pytest.approx(done[0].iteration_s, rel=0.02)
    assert all(fewer.event_count < more.event_count for more, fewer in pairwise(done))


@pytest.mark.parametrize("rounding", [-0.1, 1.0, float("nan")])
def test_a_rounding_that_is_no_share_is_refused(rounding):
    with pytest.raises(ValueError, match="rounding is"):
        simulate(one_allreduce(2, (0, 1), 1_000_000), make_ideal_switch(2, 8), rounding=rounding)


def test_circuits_take_fluid_rings_and_rounding():
    graph = one_allreduce(6, tuple(range(6)), 6_000_000)
    switch = CircuitSwitch(6, 2, 8, controller=Controller(period_s=5e-3), delay_s=1e-4, hosts_forward=True)
    run = partial(simulate_circuits, graph, switch, latency=NO_LATENCY, allreduce=plan_fluid_ring)
    exact, rounded = run(), run(rounding=0.01)
    assert exact.iteration_s <= rounded.iteration_s <= exact.iteration_s * 1.02
    assert exact.wire_bytes == rounded.wire_bytes == 60_000_000


def test_a_flow_whose_end_was_put_off_ends_when_its_link_goes():
    """1 ms of bytes, put off to the next multiple of a power of two; in between its link goes dark for good."""
    job = TaskGraphBuilder(node_count=2)
    job.add_transfer(0, 1, 12_500_000)
    fabric, graph = make_ideal_switch(2, 100), job.build()
    late_s = simulate(graph, fabric, latency=NO_LATENCY, rounding=0.9).iteration_s
    assert late_s > 1.02e-3
    dark = Change(1.01e-3, fabric.find_link(0, 2), 0.0)
    done = simulate(graph, fabric, latency=NO_LATENCY, rounding=0.9, changes=[dark])
    assert done.iteration_s == pytest.approx(1.01e-3, rel=1e-9)


@pytest.mark.parametrize(
    "fabric", [make_circulant(24, (1, 5, 19, 23), 100), make_fat_tree(24, 100)], ids=["direct", "fat tree"]
)
def test_late_begins_move_the_same_bytes_in_nearly_the_same_time_with_less_work(fabric):
    """An all-to-all whose senders begin one after another: each begin changes the rates of all flows."""
    job = TaskGraphBuilder(24)
    for source in range(24):
        ready = job.add_compute(source, 1e-3 + 2e-6 * source)
        for target in range(24):
            if source != target:
                moved = job.add_transfer(
                    source, target, 400_000 + 9_000 * ((source + target) % 7), predecessors=[ready]
                )
                job.add_compute(target, 1e-5, predecessors=[moved])
    exact, rounded, waiting = (
        simulate(job.build(), fabric, rounding=end, lag=begin)
        for end, begin in ((0, 0), (0.01, 0), (0.01, 0.01))
    )
    assert waiting.link_bytes.tolist() == exact.link_bytes.tolist()
    assert exact.iteration_s * (1 - 1e-9) <= waiting.iteration_s <= exact.iteration_s * 1.02
    assert waiting.event_count < rounded.event_count < exact.event_count


def test_a_flow_that_begins_alone_waits_for_its_share_of_the_duration():
    """12.5 MB at 12.5 GB/s last 1 ms, so the flow begins 10 us late."""
    job = TaskGraphBuilder(node_count=2)
    job.add_transfer(0, 1, 12_500_000, predecessors=[job.add_compute(0, 1e-3)])
    done = simulate(job.build(), make_ideal_switch(2, 100), latency=NO_LATENCY, lag=0.01)
    assert done.iteration_s == pytest.approx(2.01e-3, rel=1e-9)
