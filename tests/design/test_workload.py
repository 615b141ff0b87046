"""The second topology of the main job: which workload needs it, and why."""

from __future__ import annotations

import pytest

from testbed.design.routes import find_routes
from testbed.design.topology import find_topology
from testbed.design.wiring import wire
from testbed.design.workload import hybrid_workload


def workload_of(nodes: int, degree: int):
    topology = find_topology(nodes, degree)
    return hybrid_workload(topology, find_routes(wire(topology)))


def test_on_twelve_nodes_groups_of_four_are_served_worst():
    workload = workload_of(12, 4)

    assert (workload.group, workload.stride) == (4, 3)
    assert workload.groups() == ((0, 3, 6, 9), (1, 4, 7, 10), (2, 5, 8, 11))
    assert "3 hops apart" in workload.reason(3)


def test_its_topology_joins_the_neighbours_of_every_group():
    topology = find_topology(12, 4, demands=workload_of(12, 4).demands)

    assert topology.strides == (1, 3)
    assert {(node, (node + 3) % 12) for node in range(12)} <= set(topology.edges)


@pytest.mark.parametrize(("nodes", "degree"), [(13, 4), (7, 2), (4, 2)])
def test_no_groups_or_none_served_badly_means_no_second_topology(nodes, degree):
    assert workload_of(nodes, degree) is None
