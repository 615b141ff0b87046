"""Workloads that make no sense, and the demand that topology search takes of those that do."""

from __future__ import annotations

import math

import numpy as np
import pytest

from testbed.design.workloads.iteration.totals import Traffic, traffic
from testbed.design.workloads.model import Workload
from testbed.design.workloads.roofline import Cluster, Device
from testbed.design.workloads.sharding import Strategy
from testbed.design.workloads.strategies import list_legal_shardings
from testbed.errors import WorkloadError


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ({"forward_flops": math.nan}, "forward_flops is nan: give a finite number of 0 or more"),
        ({"backward_flops": math.inf}, "backward_flops is inf"),
        ({"parameter_bytes": -1}, "parameter_bytes is -1"),
        ({"output_bytes": -1}, "output_bytes is -1"),
        ({"moved_bytes": -0.5}, "moved_bytes is -0.5"),
        ({"gradient_bytes": -4}, "gradient_bytes is -4"),
        ({"state_bytes": -4}, "state_bytes is -4"),
        ({"forward_reduce_bytes": -4}, "forward_reduce_bytes is -4"),
        ({"backward_reduce_bytes": -4}, "backward_reduce_bytes is -4"),
        ({"routed": 0}, "routed is 0: give a whole number from 1 to "),
        ({"routed": 1.5}, "routed is 1.5: give a whole number"),
        ({"most_shards": 0}, "most_shards is 0: give a whole number from 1 to "),
        ({"gradient_bytes": 2.5}, "gradient_bytes is 2.5: give a whole number from 0 to "),
        ({"parameter_bytes": 10**16}, "parameter_bytes is 10000000000000000"),
        ({"forward_flops": 10**400}, "forward_flops is 1000"),
        ({"ways": ()}, "it has no ways: choose from data, tensor, place, expert"),
        ({"ways": ("data", "magic")}, r"ways \['magic'\] are unknown"),
    ],
)
def test_operators_that_cannot_be_are_named(make_operator, sizes, told):
    with pytest.raises(WorkloadError, match=f"w: odd: {told}"):
        Workload("w", (make_operator("fine"), make_operator("odd", **sizes)), (), 4)


@pytest.mark.parametrize(
    ("names", "edges", "batch", "told"),
    [
        ("ab", (), 0, "a batch of 0 samples"),
        ("ab", (), 1.5, "a batch of 1.5 samples; give an integer of at least 1"),
        ("ab", (), math.nan, "a batch of nan samples"),
        ("ab", (), True, "a batch of True samples"),
        ("", (), 1, "no operators"),
        ("aba", (), 1, "two operators are named 'a'"),
        ("ab", ((1, 0),), 1, "edge 1 -> 0"),
        ("ab", ((0, 0),), 1, "edge 0 -> 0"),
        ("ab", ((0, 2),), 1, "edge 0 -> 2"),
        ("ab", ((-1, 1),), 1, "edge -1 -> 1"),
    ],
)
def test_workloads_that_cannot_be_are_named(make_operator, names, edges, batch, told):
    with pytest.raises(WorkloadError, match=f"w: {told}"):
        Workload("w", tuple(make_operator(name) for name in names), edges, batch)


def test_what_64_bits_do_not_hold_is_refused(make_operator):
    operators = make_operator("a", output_bytes=1 << 20), make_operator("b", output_bytes=0)
    assert Workload("w", operators, ((0, 1),), 1 << 29).batch == 1 << 29
    with pytest.raises(
        WorkloadError, match="w: a batch of 536870913 samples that each pass on 2097152 bytes exceeds"
    ):
        Workload("w", operators, ((0, 1),), (1 << 29) + 1)


def test_a_cache_is_filled_with_what_it_keeps(make_operator):
    attention = make_operator("attention", output_bytes=100)
    caches = [make_operator(name, kind="cache", output_bytes=size) for name, size in (("c", 30), ("d", 40))]
    workload = Workload("w", (attention, *caches, make_operator("e")), ((0, 1), (1, 2), (2, 3), (0, 3)), 1)
    assert [workload.compute_edge_bytes(edge) for edge in workload.edges] == [30, 30, 40, 100]


def test_sums_over_all_operators(make_operator):
    workload = Workload("w", tuple(make_operator(name, parameter_bytes=7) for name in "abc"), (), 4)
    assert workload.parameter_bytes == 21
    assert workload.index_by_operator == {"a": 0, "b": 1, "c": 2}


@pytest.mark.parametrize(
    "fault",
    [{"peak_flops": 0.0}, {"memory_bytes_per_s": -1.0}, {"attained_flops": math.nan}, {"overhead_s": -1.0}],
)
def test_devices_that_cannot_be_are_named(fault):
    sizes = {"peak_flops": 1.0, "memory_bytes_per_s": 1.0, "memory_bytes": 1}
    with pytest.raises(WorkloadError, match="device odd: "):
        Device("odd", **(sizes | fault))


def test_nothing_passes_within_a_server_without_a_rate():
    with pytest.raises(WorkloadError, match="give a rate above 0"):
        Cluster(4, local_bytes_per_s=0.0)


def test_a_demand_asks_for_all_bytes_and_strides_where_they_fit(make_operator):
    """Groups of one size count with the largest of their tensors; here all are equal."""
    rng = np.random.default_rng(31)
    operators = tuple(
        make_operator(f"d{i}", parameter_bytes=4, gradient_bytes=5040 * (i + 1), output_bytes=12)
        for i in range(4)
    )
    workload = Workload("w", operators, ((0, 1), (1, 2), (2, 3)), 24)
    with_groups = with_pairs = 0
    for _ in range(60):
        nodes = int(rng.choice([1, 2, 6, 7, 12]))
        shardings = list_legal_shardings(operators[0], nodes)
        chosen = tuple(shardings[rng.integers(len(shardings))] for _ in operators)
        sent = traffic(workload, Strategy(chosen), Cluster(nodes))
        demand = sent.demand
        assert demand.allreduce_bytes + demand.pair_bytes == pytest.approx(sent.matrix.sum(), rel=1e-12)
        with_groups += bool(demand.allreduce)
        with_pairs += demand.pair_bytes > 0
    assert with_groups >= 20
    assert with_pairs >= 20


def test_groups_that_no_stride_joins_become_rings_of_pairs():
    groups = {(0, 2, 4): 300, (1, 3, 5): 600, (0, 1): 80, (0, 3): 10, (0, 1, 2, 3, 4, 5): 60}
    demand = Traffic(6, groups, np.zeros((6, 6))).demand
    assert [(each.group_size, each.size_bytes) for each in demand.allreduce] == [(3, 600), (6, 60)]
    pairs = dict(zip(zip(demand.source, demand.target, strict=True), demand.size_bytes, strict=True))
    assert pairs == {(0, 1): 80.0, (1, 0): 80.0, (0, 3): 10.0, (3, 0): 10.0}
