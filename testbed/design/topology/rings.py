"""Ring orders: in which order the nodes of a collective pass data on, one order a stride."""

from __future__ import annotations

import math

from testbed.design.model import RingOrder, Topology
from testbed.design.topology.strides import directed_strides, half_range, totient_perms


def ring_order(nodes: int, stride: int, start: int = 0) -> RingOrder:
    """Return the ring of a stride that holds `start`, which stands at position 0.

    `order[k]` is start + k*p mod n; of a ring over all nodes from 0, node i is at position i * p^-1 mod n.
    When p and n share a divisor g, the ring holds the n/g nodes of one group.

    >>> ring_order(12, 5).order
    (0, 5, 10, 3, 8, 1, 6, 11, 4, 9, 2, 7)
    >>> ring_order(12, 3, start=1).order
    (1, 4, 7, 10)
    """
    members = nodes // math.gcd(nodes, stride)
    return RingOrder(stride, tuple((start + k * stride) % nodes for k in range(members)))


def rings_of(topology: Topology, group: int | None = None) -> tuple[RingOrder, ...]:
    """Return one ring a direction and stride, for the group of all nodes or for every group of that size.

    n=12 duplex with strides 1 and 5 has the rings 1, 5, 7, 11. Groups of k nodes get n/k rings a
    stride, ordered by stride and then by first member. Parallel links give the same ring again.
    When no stride of the topology serves the group, its rings are those of stride n/k (and back, when
    duplex): their neighbours are not joined directly and data takes the routes.
    Raises `TopologyError` when the group does not divide the nodes.
    """
    nodes = topology.nodes
    usable = totient_perms(nodes, group)
    steps = [
        step for step in directed_strides(nodes, topology.strides, simplex=topology.simplex) if step in usable
    ]
    if not steps:
        steps = list(_virtual_strides(nodes, usable, simplex=topology.simplex))
    starts = range(nodes // (group or nodes))
    return tuple(ring_order(nodes, step, start) for step in sorted(steps) for start in starts)


def _virtual_strides(nodes: int, usable: tuple[int, ...], *, simplex: bool) -> tuple[int, ...]:
    """Return the shortest stride of a group that owns none, in the directions the links have."""
    nearest = usable[:1] if simplex else half_range(nodes, usable)[:1]
    return directed_strides(nodes, nearest, simplex=simplex)
