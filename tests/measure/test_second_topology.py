"""The demo's second job: which topology the planner makes for it, and why."""

from __future__ import annotations

import pytest

from testbed.design.patching.wiring import make_wiring
from testbed.design.routing.routes import find_routes
from testbed.design.topology.circulants import find_topology
from testbed.design.topology.demand import AllReduceDemand
from testbed.design.workloads.roofline import Cluster
from testbed.measure.second_topology import (
    find_farthest_group_size,
    make_fine_tuning_workload,
    plan_second_topology,
)


def second_of(nodes: int, degree: int):
    topology = find_topology(nodes, degree)
    return plan_second_topology(topology, find_routes(make_wiring(topology)), 25.0)


@pytest.mark.long
def test_on_twelve_nodes_the_planner_joins_the_neighbours_of_groups_of_four():
    planned = second_of(12, 4)

    assert planned.topology.strides == (1, 3)
    assert planned.demands == (AllReduceDemand(4, 64 * 2 * (4 << 20)), AllReduceDemand(12, 1 << 26))
    assert "cut over 4 servers, in 3 copies" in planned.reason
    assert "±1, ±3" in planned.reason
    assert second_of(12, 4) == planned


@pytest.mark.parametrize(("nodes", "degree"), [(13, 4), (7, 2), (4, 2), (8, 2)])
def test_no_groups_or_none_served_better_means_no_second_topology(nodes, degree):
    assert second_of(nodes, degree) is None


def test_the_group_that_is_served_worst_is_the_one_farthest_apart():
    topology = find_topology(12, 4)

    assert find_farthest_group_size(12, find_routes(make_wiring(topology))) == 4


def test_the_layers_fit_the_group_and_none_smaller():
    cluster = Cluster(12)
    layers = make_fine_tuning_workload(12, 4, cluster).operators[0]

    assert layers.parameter_bytes / 4 < cluster.memory_bytes < layers.parameter_bytes / 3
