"""Traffic added up equals that of the task graph, and closed forms."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from testbed.design.workloads import catalogue
from testbed.design.workloads.iteration.task_graph import iteration
from testbed.design.workloads.iteration.totals import TrafficTotals, sum_graph_traffic, traffic
from testbed.design.workloads.model import Workload
from testbed.design.workloads.roofline import Cluster
from testbed.design.workloads.sharding import (
    Strategy,
    make_data_sharding,
    make_placed_sharding,
    make_spaced_sharding,
)
from testbed.design.workloads.strategies import data_parallel, default_strategy, list_legal_shardings


def same(one, other):
    return one.allreduce == other.allreduce and np.array_equal(one.pairs, other.pairs)


@pytest.mark.long
def test_it_is_that_of_the_task_graph(random_cases):
    seen = Counter()
    for number, (workload, strategy, cluster) in enumerate(random_cases(11, 300)):
        added = traffic(workload, strategy, cluster)
        bucket_bytes = (None, 0, 1500, 10**9)[number % 4]
        graph = iteration(workload, strategy, cluster, bucket_bytes=bucket_bytes, fuse=number % 3 > 0)
        assert same(added, sum_graph_traffic(graph))
        seen.update({sharding.way for sharding in strategy.shardings})
        seen["pairs"] += added.pairs.any()
        seen["allreduce"] += bool(added.allreduce)
        seen["microbatches"] += strategy.microbatches > 1
        seen["serving"] += not workload.training
    assert min(seen[what] for what in ("data", "tensor", "place", "expert", "pairs", "allreduce")) >= 60
    assert min(seen["microbatches"], seen["serving"]) >= 30


def test_a_change_of_one_operator_is_as_good_as_adding_up_again(random_cases, any_sharding):
    rng = np.random.default_rng(12)
    moved = 0
    for workload, strategy, cluster in random_cases(13, 60):
        totals = TrafficTotals.from_strategy(workload, strategy, cluster)
        for _ in range(5):
            place, sharding = int(rng.integers(len(workload.operators))), any_sharding(rng, cluster.nodes)
            before, totals = totals, totals.with_sharding(place, sharding)
            assert same(totals.traffic, traffic(workload, totals.strategy, cluster))
            assert same(before.traffic, traffic(workload, before.strategy, cluster))
            moved += not same(before.traffic, totals.traffic)
    assert moved >= 100


def test_so_it_is_on_many_servers():
    """DLRM on 128 servers, each kind of operator laid out otherwise in every way it allows."""
    nodes, rng = 128, np.random.default_rng(15)
    job = catalogue.workload("dlrm-a2a", nodes, preset="fig12", tables=6, top=(512, 512, 1))
    cluster = Cluster(nodes)
    totals = TrafficTotals.from_strategy(job, default_strategy(job, nodes), cluster)
    ways = set()
    for place, operator in enumerate(job.operators):
        choices = list_legal_shardings(operator, nodes)
        sharding = choices[int(rng.integers(1, len(choices)))] if len(choices) > 1 else choices[0]
        totals = totals.with_sharding(place, sharding)
        ways.add(sharding.way)
    assert ways == {"data", "tensor", "place"}
    assert same(totals.traffic, traffic(job, totals.strategy, cluster))
    assert same(totals.traffic, sum_graph_traffic(iteration(job, totals.strategy, cluster)))


def dense(make_operator, name, **sizes):
    return make_operator(name, parameter_bytes=sizes.get("gradient_bytes", 4), **sizes)


def test_data_parallel_sums_all_gradients_and_sends_nothing_else(make_operator):
    operators = tuple(
        dense(make_operator, f"d{i}", gradient_bytes=1000 + i, output_bytes=8) for i in range(5)
    )
    chain = tuple((i, i + 1) for i in range(4))
    workload = Workload("chain", operators, chain, 64)
    sent = traffic(workload, data_parallel(workload, 8), Cluster(8))
    assert sent.allreduce == {tuple(range(8)): 5010}
    assert not sent.pairs.any()


def test_tensor_parallel_sums_activations_in_rows_and_gradients_across(make_operator):
    block = dense(
        make_operator, "mlp", gradient_bytes=4000, forward_reduce_bytes=30, backward_reduce_bytes=50
    )
    workload = Workload("block", (block,), (), 64)
    sent = traffic(workload, Strategy((make_spaced_sharding("tensor", 8, 4),)), Cluster(8))
    rows = {(0, 2, 4, 6): 32 * 80, (1, 3, 5, 7): 32 * 80}
    across = {(0, 1): 1000, (2, 3): 1000, (4, 5): 1000, (6, 7): 1000}
    assert sent.allreduce == rows | across


def test_experts_exchange_four_times_in_training_and_twice_in_serving(make_operator):
    experts = dense(make_operator, "experts", gradient_bytes=800, output_bytes=48, routed=2)
    sharding = Strategy((make_spaced_sharding("expert", 8, 4),))
    for training, times in ((True, 4), (False, 2)):
        sent = traffic(Workload("moe", (experts,), (), 64, training), sharding, Cluster(8))
        assert sent.pairs.sum() == times * 64 * 2 * 48 * 3 / 4
        assert len(sent.allreduce) == (4 if training else 0)


def test_a_table_gets_its_gradients_and_what_has_no_parameters_gets_none(make_operator):
    source = make_operator("input", output_bytes=100)
    table = dense(make_operator, "table", kind="table", output_bytes=100)
    top = dense(make_operator, "top")
    shardings = Strategy((make_placed_sharding([0]), make_placed_sharding([1]), make_data_sharding(range(4))))
    sent = traffic(Workload("w", (source, table, top), ((0, 2), (1, 2)), 8), shardings, Cluster(4))
    assert sent.pairs[0].sum() == 600 + 200  # outputs of the input, and a gradient for the table
    assert sent.pairs[:, 0].sum() == 200  # outputs of the table alone
    assert sent.pairs[1].sum() == 600
    assert sent.pairs[:, 1].sum() == 200 + 600


def test_one_server_sends_nothing(random_cases):
    alone = [case for case in random_cases(14, 200) if case[2].nodes == 1]
    assert len(alone) >= 10
    for case in alone:
        sent = traffic(*case)
        assert not sent.allreduce
        assert not sent.pairs.any()
