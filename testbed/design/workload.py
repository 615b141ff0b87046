"""A workload whose traffic one topology serves badly: data parallel over all nodes, tensor parallel in groups.

Large models split every layer over a group of nodes (tensor parallelism: an AllReduce of activations inside each
group, several times a layer) and copy the groups (data parallelism: one AllReduce of gradients over all nodes).
Where the nodes of a group sit far apart in the graph, each byte of theirs is carried over several links.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.design.model import Routes, Topology
from testbed.design.topology import AllReduceDemand


@dataclass(frozen=True, slots=True)
class HybridWorkload:
    """AllReduce of `tensor_bytes` in each group {s, s+n/k, ...} of `group` nodes, and of `data_bytes` over all.

    Both happen once an iteration.
    """

    nodes: int
    group: int
    tensor_bytes: int
    data_bytes: int

    @property
    def stride(self) -> int:
        """Distance between neighbours of a group: n/k."""
        return self.nodes // self.group

    @property
    def demands(self) -> tuple[AllReduceDemand, AllReduceDemand]:
        """What the topology has to carry, in the order topology search wants it."""
        return (
            AllReduceDemand(group=self.group, size_bytes=self.tensor_bytes),
            AllReduceDemand(group=self.nodes, size_bytes=self.data_bytes),
        )

    def groups(self) -> Sequence[tuple[int, ...]]:
        """The groups, as node numbers: {0, n/k, 2n/k, ...} and its translates."""
        return tuple(tuple(range(start, self.nodes, self.stride)) for start in range(self.stride))

    def reason(self, hops: int) -> str:
        """Why this workload needs another topology than one whose group neighbours are `hops` apart."""
        ratio = self.tensor_bytes / self.data_bytes
        return (
            f"Tensor-parallel groups of {self.group} nodes ({self.stride} apart) move {ratio:g} bytes "
            f"for each byte of gradients; their neighbours are {hops} hops apart here, so every byte of theirs "
            f"takes {hops} links; a ring of stride {self.stride} gives them links of their own."
        )


def hybrid_workload(
    topology: Topology, routes: Routes, *, data_bytes: int = 1 << 28, tensor_ratio: int = 4
) -> HybridWorkload | None:
    """The hybrid workload that `topology` serves worst: the group size whose neighbours are farthest apart.

    Groups have at least three nodes. None when the number of nodes has no such divisor, or when the
    neighbours of every group are linked directly.
    """
    nodes = topology.nodes
    sizes = [size for size in range(3, nodes) if nodes % size == 0]
    farthest = max(sizes, key=lambda size: (routes.hops(0, nodes // size), size), default=None)
    if farthest is None or routes.hops(0, nodes // farthest) == 1:
        return None
    return HybridWorkload(nodes, farthest, tensor_ratio * data_bytes, data_bytes)
