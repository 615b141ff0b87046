"""Experts of different popularity: the same samples in all, more of them for popular experts, to the byte."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.design.workloads.choice import WorkloadChoice, apply_skew
from testbed.design.workloads.iteration.task_graph import iteration
from testbed.design.workloads.iteration.totals import sum_graph_traffic, traffic
from testbed.design.workloads.sharding import (
    compute_shard_shares,
    make_block_sharding,
    make_dispatch_resharding,
)
from testbed.design.workloads.strategies import default_strategy
from testbed.errors import WorkloadError


def skewed(skew: float, nodes: int = 8):
    choice = WorkloadChoice("moe", settings={"layers": "2"}, device="a100", skew=skew)
    workload, cluster = choice.make_workload(nodes), choice.make_cluster(nodes)
    return workload, default_strategy(workload, nodes), cluster


@given(
    st.lists(st.floats(0.01, 1.0), min_size=2, max_size=16).flatmap(
        lambda parts: st.tuples(st.just(parts), st.integers(2, len(parts)), st.integers(1, 500))
    )
)
def test_popular_experts_get_their_part_of_every_server(case):
    parts, shards, batch = case
    popularity = tuple(np.array(parts) / sum(parts))
    sharding = make_block_sharding("expert", shards, shards)

    sent = make_dispatch_resharding(sharding, batch, 1000, popularity)

    even = make_dispatch_resharding(sharding, batch, 1000)
    by_source = np.bincount(sent.source, sent.size_bytes, shards)
    assert by_source.tolist() == np.bincount(even.source, even.size_bytes, shards).tolist()
    shares = np.bincount(sent.target, sent.size_bytes, shards) / sent.size_bytes.sum()
    assert shares == pytest.approx(
        compute_shard_shares(popularity, shards), abs=shards**2 / sent.size_bytes.sum()
    )


def test_sums_are_those_of_the_task_graph():
    workload, strategy, cluster = skewed(1.5)

    totals, of_graph = (
        traffic(workload, strategy, cluster),
        sum_graph_traffic(iteration(workload, strategy, cluster)),
    )

    assert (totals.pairs == of_graph.pairs).all()
    received = totals.pairs.sum(axis=0)
    assert received.max() > 1.2 * received.min()


def test_popular_experts_compute_longer():
    even, uneven = (iteration(*skewed(skew)) for skew in (0.0, 1.5))
    busiest = [
        np.bincount(graph.device[graph.kind == 0], graph.time_s[graph.kind == 0]).max()
        for graph in (even, uneven)
    ]

    assert busiest[1] > 1.2 * busiest[0]


def test_no_expert_gets_a_sample_twice():
    workload, _, _ = skewed(8.0)

    for operator in workload.operators:
        if operator.popularity:
            assert sum(operator.popularity) == pytest.approx(1)
            assert max(operator.popularity) * operator.routed <= 1 + 1e-9


@pytest.mark.parametrize(
    ("name", "skew", "message"),
    [("gpt", 1.0, "has no experts"), ("moe", -1.0, "a skew of -1.0"), ("moe", float("nan"), "a skew of nan")],
)
def test_a_skew_that_cannot_be_is_refused(name, skew, message):
    with pytest.raises(WorkloadError, match=message):
        apply_skew(WorkloadChoice(name).make_workload(8), skew)
