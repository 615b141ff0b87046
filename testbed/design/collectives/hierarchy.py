"""Hierarchical AllReduce: inside groups first, then across them, each level on its own rings.

A group of k nodes {s, s + n/k, ...} reduces and scatters the tensor, so that every member holds 1/k of
the group's sum. Nodes that hold the same part, one of each group, reduce it among themselves. Then each
group gathers. Every member sends as much as on one ring over all nodes, but mostly to its own group.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from testbed.design.model import RingOrder, Topology
from testbed.design.topology.strides import rings_of
from testbed.errors import TopologyError

Kind = Literal["reduce-scatter", "allreduce", "all-gather"]


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: all `rings` at the same time, on `share` of the tensor; rings of the same members split it evenly."""

    kind: Kind
    rings: tuple[RingOrder, ...]
    share: float

    @property
    def sent(self) -> float:
        """Bytes that each member sends per byte of the whole tensor: (k-1)/k of `share` in each pass over k members."""
        members = len(self.rings[0].order)
        passes = 2 if self.kind == "allreduce" else 1
        return passes * (members - 1) / members * self.share


def make_hierarchical_stages(topology: Topology, group_size: int) -> tuple[Stage, Stage, Stage]:
    """Return the three stages of an AllReduce over all nodes with groups of k = `group_size` nodes.

    If k and n/k share no divisor, the nodes that hold the same part are a stride apart and use rings of the
    topology. Otherwise they are n/k neighbours, on one ring in their order.
    For 12 nodes in groups of 4: 3/4 + 2 * 2/3 * 1/4 + 3/4 = 2 * 11/12 bytes sent per byte, as on one ring.
    Raise `TopologyError` if `group_size` does not divide the number of nodes, or equals it.
    """
    inner = rings_of(topology, group_size)
    across = topology.nodes // group_size
    if across == 1:
        raise TopologyError(
            f"a hierarchy with a single group of {group_size} nodes has no second level: use rings"
        )
    outer = (
        rings_of(topology, across)
        if math.gcd(group_size, across) == 1
        else tuple(
            RingOrder(1, tuple(range(start, start + across))) for start in range(0, topology.nodes, across)
        )
    )
    return (
        Stage("reduce-scatter", inner, 1.0),
        Stage("allreduce", outer, 1 / group_size),
        Stage("all-gather", inner, 1.0),
    )
