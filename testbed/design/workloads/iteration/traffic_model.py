"""Traffic of an iteration: AllReduce within groups, bytes between pairs, and the demand that topology search takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.models.network.taskgraph import Kind, TaskGraph
from testbed.design.topology.demand import AllReduceDemand, Demand, check_group, demand_of_matrix
from testbed.design.workloads.sharding.sharding import Group

__all__ = ["Group", "Traffic", "traffic_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """Bytes of one iteration among `nodes` servers.

    `allreduce[members]` is the sum of the tensors that this group reduces; `pairs` (nodes, nodes) is what row
    sends to column besides.
    """

    nodes: int
    allreduce: Mapping[Group, int]
    pairs: NDArray[np.float64]

    @property
    def demand(self) -> Demand:
        """For topology search: groups that strides can join stay AllReduces, others become rings of pairs.

        The groups of one size must be evenly spaced and hold every server once; they count with the largest of
        their tensors. Raises `DemandError` as `demand_of_matrix`.
        """
        matrix = self.pairs.copy()
        spaced: dict[int, dict[int, int]] = {}
        for members, size_bytes in self.allreduce.items():
            step = self.nodes // len(members) if len(members) > 1 and self.nodes % len(members) == 0 else 0
            if step and members == tuple(range(members[0], self.nodes, step)):
                spaced.setdefault(len(members), {})[members[0]] = size_bytes
            else:
                _add_ring(matrix, members, size_bytes)
        groups = []
        for size, tensors in spaced.items():
            if len(tensors) == self.nodes // size:
                groups.append(AllReduceDemand(size, max(tensors.values())))
                check_group(self.nodes, groups[-1])
            else:
                for start, size_bytes in tensors.items():
                    _add_ring(matrix, tuple(range(start, self.nodes, self.nodes // size)), size_bytes)
        return demand_of_matrix(matrix, groups)

    @property
    def matrix(self) -> NDArray[np.float64]:
        """Everything as bytes from row to column, AllReduces as one ring in the order of their members."""
        matrix = self.pairs.copy()
        for members, size_bytes in self.allreduce.items():
            _add_ring(matrix, members, size_bytes)
        return matrix


def traffic_of(graph: TaskGraph) -> Traffic:
    """Return the traffic of a task graph."""
    pairs = np.zeros((graph.nodes, graph.nodes))
    resharding = graph.kind == Kind.TRANSFER
    np.add.at(pairs, (graph.source[resharding], graph.target[resharding]), graph.size_bytes[resharding])
    np.fill_diagonal(pairs, 0.0)
    allreduce: dict[Group, int] = {}
    for task in np.flatnonzero(graph.kind == Kind.ALLREDUCE):
        members = tuple(sorted(graph.groups[graph.group[task]]))
        if len(members) > 1:
            allreduce[members] = allreduce.get(members, 0) + int(graph.size_bytes[task])
    return Traffic(graph.nodes, allreduce, pairs)


def _add_ring(matrix: NDArray[np.float64], members: Group, size_bytes: int) -> None:
    """Count what a ring AllReduce sends from each member to the next: 2(g-1)/g of the tensor."""
    if len(members) < 2:
        return
    order = np.array(members)
    matrix[order, np.roll(order, -1)] += 2 * (len(members) - 1) / len(members) * size_bytes
