"""The task graph of an iteration: what waits for what, in which order, and how long it takes on an ideal network."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from sim.models.network.execution import simulate
from sim.models.network.fabrics.switched import make_ideal_switch
from sim.models.network.taskgraph import Kind
from testbed.design.workloads.iteration.task_graph import iteration
from testbed.design.workloads.iteration.totals import traffic
from testbed.design.workloads.model import Workload
from testbed.design.workloads.roofline import Cluster, Device, compute_operator_seconds
from testbed.design.workloads.sharding import (
    Sharding,
    Strategy,
    make_data_sharding,
    make_gradient_buckets,
    make_placed_sharding,
)
from testbed.design.workloads.strategies import data_parallel
from testbed.errors import StrategyError

TICKS = Device(
    "1 operation/s", 1.0, 1e300, 10**12, attained_flops=1.0, attained_bandwidth=1.0, overhead_s=0.0
)
"""A device on which operations are seconds, so that sums of times are exact."""


def ticking(nodes):
    return Cluster(nodes, TICKS, devices_per_server=1)


def run(graph):
    return simulate(graph, make_ideal_switch(max(graph.node_count, 2), 100.0))


def chain(make_operator, count, batch=8, **sizes):
    operators = tuple(
        make_operator(f"d{i}", **({"parameter_bytes": sizes.get("gradient_bytes", 4)} | sizes))
        for i in range(count)
    )
    return Workload("chain", operators, tuple((i, i + 1) for i in range(count - 1)), batch)


@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (2, 1), (2, 4), (4, 8), (3, 16), (8, 2)])
@pytest.mark.parametrize("backward", [1.0, 2.0])
def test_a_pipelines_bubble_is_s_minus_1_over_m_plus_s_minus_1(make_operator, stages, microbatches, backward):
    workload = chain(
        make_operator, stages, batch=microbatches * 2, forward_flops=1.0, backward_flops=backward
    )
    shardings = tuple(make_placed_sharding([stage]) for stage in range(stages))
    graph = iteration(workload, Strategy(shardings, microbatches), ticking(stages), fuse=False)
    busy_s = 2 * microbatches * (1.0 + backward)
    iteration_s = run(graph).iteration_s
    assert iteration_s == (microbatches + stages - 1) * 2 * (1.0 + backward)
    assert (iteration_s - busy_s) / iteration_s == pytest.approx(
        (stages - 1) / (microbatches + stages - 1), rel=1e-15
    )


@pytest.mark.parametrize(("stages", "microbatches", "length"), [(2, 4, 3), (4, 8, 2), (4, 8, 10), (1, 4, 3)])
@pytest.mark.parametrize("sharding", [make_placed_sharding, make_data_sharding])
@pytest.mark.parametrize("fuse", [False, True])
def test_a_stage_of_many_operators_is_no_slower(make_operator, stages, microbatches, length, sharding, fuse):
    sizes = {"forward_flops": 1.0, "backward_flops": 2.0}
    workload = chain(make_operator, stages * length, batch=microbatches, **sizes)
    shardings = tuple(sharding([place // length]) for place in range(stages * length))
    graph = iteration(workload, Strategy(shardings, microbatches), ticking(stages), fuse=fuse)
    assert run(graph).iteration_s == (microbatches + stages - 1) * 3.0 * length


def test_branches_of_a_stage_are_done_before_the_next_microbatch(make_operator):
    """Two towers and what joins them on one server, the loss on another: 3 s and 1 s a microbatch."""
    names, sizes = ("left", "right", "join", "loss"), {"forward_flops": 1.0}
    workload = Workload(
        "towers", tuple(make_operator(name, **sizes) for name in names), ((0, 2), (1, 2), (2, 3)), 5, False
    )
    shardings = (make_placed_sharding([0]),) * 3 + (make_placed_sharding([1]),)
    done = run(iteration(workload, Strategy(shardings, 5), ticking(2)))
    assert done.iteration_s == 5 * 3.0 + 1.0


def test_a_lookup_from_elsewhere_leaves_a_stage_whole(make_operator):
    """The second operator of the stage reads a table, too; what follows gets its first microbatch after 2 s."""
    operators = tuple(
        make_operator(name, forward_flops=flops)
        for name, flops in (("table", 0.0), ("first", 1.0), ("second", 1.0), ("next", 2.0))
    )
    workload = Workload("w", operators, ((0, 2), (1, 2), (2, 3)), 4, training=False)
    shardings = (
        make_placed_sharding([2]),
        make_placed_sharding([0]),
        make_placed_sharding([0]),
        make_placed_sharding([1]),
    )
    graph = iteration(workload, Strategy(shardings, 4), ticking(3))
    done = run(graph)
    assert done.begin_s[graph.device == 1].tolist() == pytest.approx([2.0, 4.0, 6.0, 8.0], abs=1e-3)


def test_a_server_that_is_visited_twice_takes_what_is_ready(make_operator):
    """Waiting for the second visit of a microbatch would leave both servers idle every other second."""
    operators = tuple(make_operator(name, forward_flops=1.0) for name in ("down", "away", "up", "out"))
    workload = Workload("w", operators, ((0, 1), (1, 2), (2, 3)), 6, training=False)
    shardings = tuple(make_placed_sharding([place % 2]) for place in range(4))
    done = run(iteration(workload, Strategy(shardings, 6), ticking(2)))
    assert done.iteration_s == pytest.approx(2 * 6 + 1, abs=1e-3)


@pytest.mark.parametrize("bucket_bytes", [float("nan"), -5])
def test_buckets_that_cannot_be_are_named(make_operator, bucket_bytes):
    workload = chain(make_operator, 2)
    with pytest.raises(StrategyError, match=f"chain: buckets of {bucket_bytes} bytes: give 0 or more"):
        iteration(workload, data_parallel(workload, 2), ticking(2), bucket_bytes=bucket_bytes)


def test_buckets_of_many_servers_hold_what_fits(make_operator):
    workload = chain(make_operator, 3, gradient_bytes=128 * 10)
    groups = Sharding("tensor", tuple((server, server + 64) for server in range(64)))
    buckets = make_gradient_buckets(workload, Strategy((groups,) * 3), 2 * 640)
    assert [b.operators for b in buckets] == [(2, 1), (0,)]
    assert buckets[0].size_bytes == (1280, 1280)
    assert buckets[0].groups == (tuple(range(64)), tuple(range(64, 128)))


def test_no_backward_pass_begins_before_all_microbatches_have_passed(make_operator):
    slow = make_operator("slow", parameter_bytes=4, forward_flops=4.0)
    quick = make_operator("quick", parameter_bytes=4, forward_flops=1.0, backward_flops=2.0)
    stages = Strategy((make_placed_sharding([0]), make_placed_sharding([1])), 4)
    graph = iteration(Workload("w", (slow, quick), ((0, 1),), 4), stages, ticking(2))
    done = run(graph)
    last_stage = np.flatnonzero(graph.device == 1)
    assert done.begin_s[last_stage].tolist() == [4.0, 8.0, 12.0, 16.0, 17.0, 19.0, 21.0, 23.0]


def test_on_one_server_it_is_computing_and_nothing_else(make_operator):
    workload = chain(
        make_operator, 5, forward_flops=1.0, backward_flops=2.0, gradient_bytes=100, output_bytes=9
    )
    graph = iteration(workload, data_parallel(workload, 1), ticking(1))
    assert set(graph.kind.tolist()) <= {Kind.COMPUTE, Kind.ALLREDUCE}
    assert not traffic(workload, data_parallel(workload, 1), ticking(1)).matrix.any()
    assert run(graph).iteration_s == 5 * 8 * 3.0


def test_each_server_computes_what_the_roofline_says(random_cases):
    several = 0
    for workload, strategy, cluster in random_cases(21, 60):
        graph = iteration(workload, Strategy(strategy.shardings), cluster, fuse=False)
        computed = Counter(graph.device[graph.kind == Kind.COMPUTE].tolist())
        assert set(computed) == {server for sharding in strategy.shardings for server in sharding.servers}
        expected = 0.0
        needs = [
            workload.training and bool(operator.parameter_bytes or operator.gradient_bytes)
            for operator in workload.operators
        ]
        for producer, consumer in workload.edges:
            needs[consumer] |= needs[producer]
        for operator, sharding, backward in zip(workload.operators, strategy.shardings, needs, strict=True):
            for row in range(sharding.replicas):
                count = (
                    workload.batch * (row + 1) // sharding.replicas
                    - workload.batch * row // sharding.replicas
                )
                times = compute_operator_seconds(operator, count, sharding.shards, cluster)
                expected += sharding.shards * (times[0] + backward * times[1])
        assert graph.time_s[graph.kind == Kind.COMPUTE].sum() == pytest.approx(expected, rel=1e-12)
        several += len(workload.operators) > 2
    assert several >= 20


def test_fusing_leaves_times_as_they_are(make_operator):
    sizes = {"forward_flops": 3.0, "backward_flops": 5.0, "output_bytes": 400}
    for gradient_bytes, bucket_bytes in ((0, None), (10**8, 3 * 10**8), (10**8, 10**9)):
        workload = chain(make_operator, 7, gradient_bytes=gradient_bytes, **sizes)
        strategy = data_parallel(workload, 4)
        graphs = [
            iteration(workload, strategy, ticking(4), bucket_bytes=bucket_bytes, fuse=fuse)
            for fuse in (False, True)
        ]
        assert graphs[1].task_count < graphs[0].task_count
        assert run(graphs[0]).iteration_s == run(graphs[1]).iteration_s


def test_what_branches_or_changes_sharding_is_not_fused(make_operator):
    operators = tuple(make_operator(f"d{i}", forward_flops=1.0) for i in range(4))
    fork = Workload("fork", operators, ((0, 1), (0, 2), (1, 3), (2, 3)), 4)
    graph = iteration(fork, data_parallel(fork, 2), ticking(2))
    assert graph.task_count == 8
    line = Workload("line", operators, ((0, 1), (1, 2), (2, 3)), 4)
    here, there = make_data_sharding([0, 1]), make_data_sharding([1, 0])
    graph = iteration(line, Strategy((here, here, there, there)), ticking(2))
    assert (graph.kind == Kind.COMPUTE).sum() == 4


def test_sums_of_activations_keep_operators_apart(make_operator):
    sharding = Sharding("tensor", ((0, 1),))
    sizes = {"forward_reduce_bytes": 100, "parameter_bytes": 4, "backward_reduce_bytes": 100}
    workload = chain(make_operator, 3, **sizes)
    graph = iteration(workload, Strategy((sharding,) * 3), ticking(2))
    assert (graph.kind == Kind.ALLREDUCE).sum() == 6
    assert (graph.kind == Kind.COMPUTE).sum() == 12


def test_buckets_hold_what_fits_in_the_order_of_the_backward_pass(make_operator):
    workload = chain(make_operator, 5, gradient_bytes=40)
    strategy = data_parallel(workload, 4)
    assert [b.operators for b in make_gradient_buckets(workload, strategy, 80)] == [(4, 3), (2, 1), (0,)]
    assert [b.size_bytes for b in make_gradient_buckets(workload, strategy, 80)] == [(80,), (80,), (40,)]
    assert [b.operators for b in make_gradient_buckets(workload, strategy, 10)] == [
        (4,),
        (3,),
        (2,),
        (1,),
        (0,),
    ]
    assert len(make_gradient_buckets(workload, strategy, None)) == 5
    assert len(make_gradient_buckets(workload, strategy, 1e9)) == 1
    halves = Strategy(
        (make_data_sharding([0, 1]), make_data_sharding([2, 3])) * 2 + (make_data_sharding([0, 1]),)
    )
    assert [b.operators for b in make_gradient_buckets(workload, halves, 80)] == [(4, 2), (3, 1), (0,)]


def test_gradients_are_summed_while_the_backward_pass_goes_on(make_operator):
    workload = chain(make_operator, 4, forward_flops=1.0, backward_flops=1.0, gradient_bytes=10**6)
    graph = iteration(workload, data_parallel(workload, 2), ticking(2), bucket_bytes=None)
    done = run(graph)
    sums = np.flatnonzero(graph.kind == Kind.ALLREDUCE)
    assert done.begin_s[sums].tolist() == [
        20.0,
        24.0,
        28.0,
        32.0,
    ]  # 4 samples each: 16 s forward, 4 s an operator
    assert 32.0 < done.iteration_s < 32.001


def test_gradients_are_summed_when_all_microbatches_are_done(make_operator):
    workload = chain(make_operator, 1, forward_flops=1.0, backward_flops=1.0, gradient_bytes=10**6)
    shardings = data_parallel(workload, 2).shardings
    graph = iteration(workload, Strategy(shardings, microbatches=2), ticking(2))
    done = run(graph)
    assert done.begin_s[graph.kind == Kind.ALLREDUCE].tolist() == [
        8.0
    ]  # 4 samples each, forward and backward


def test_a_sum_is_preceded_by_that_within_each_server(make_operator):
    workload = chain(make_operator, 1, gradient_bytes=3 * 10**8)
    graph = iteration(workload, data_parallel(workload, 2), Cluster(2, devices_per_server=4))
    sums = graph.kind == Kind.ALLREDUCE
    assert graph.time_s[sums].tolist() == [1.5 * 3e8 / 300e9]


def test_what_learns_nothing_has_no_backward_pass(make_operator):
    operators = (make_operator("input"), make_operator("layer", parameter_bytes=4), make_operator("loss"))
    for training, passes in ((True, 5), (False, 3)):
        workload = Workload("w", operators, ((0, 1), (1, 2)), 4, training)
        graph = iteration(workload, data_parallel(workload, 1), ticking(1), fuse=False)
        assert graph.task_count == passes


def test_neither_has_it_within_a_step(make_operator):
    flops = {"forward_flops": 1.0, "backward_flops": 2.0}
    operators = (make_operator("frozen", **flops), make_operator("layer", parameter_bytes=4, **flops))
    workload = Workload("w", operators, ((0, 1),), 4)
    graph = iteration(workload, data_parallel(workload, 1), ticking(1))
    assert graph.time_s.tolist() == [8.0, 8.0]


def test_experts_wait_for_their_samples_and_their_results(make_operator):
    before = make_operator("attention", output_bytes=1000)
    experts = make_operator("experts", forward_flops=1.0, output_bytes=1000)
    after = make_operator("norm", forward_flops=1.0)
    shardings = (
        make_data_sharding(range(4)),
        Sharding("expert", ((0, 1, 2, 3),)),
        make_data_sharding(range(4)),
    )
    workload = Workload("moe", (before, experts, after), ((0, 1), (1, 2)), 16)
    graph = iteration(workload, Strategy(shardings), ticking(4))
    done = run(graph)
    computed = np.flatnonzero((graph.kind == Kind.COMPUTE) & (graph.time_s > 0))
    moved = np.flatnonzero(graph.kind == Kind.TRANSFER)
    assert moved.size == 2 * 12
    assert set(graph.size_bytes[moved].tolist()) == {1000}
    there, back = done.end_s[moved[:12]], done.end_s[moved[12:]]
    assert there.max() <= done.begin_s[computed[:4]].max()
    assert back.max() == done.begin_s[computed[4:]].max()


def test_a_wrong_strategy_is_named_before_anything_is_made(make_operator):
    workload = chain(make_operator, 2)
    with pytest.raises(StrategyError, match="d1: its grid names servers 0 to 4: there are 0 to 3"):
        iteration(workload, Strategy((make_data_sharding([0]), make_data_sharding(range(5)))), ticking(4))
