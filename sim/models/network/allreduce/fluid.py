"""Fluid collectives, which need many times fewer events, and rings on the strides of a circulant.

A ring AllReduce of g members is 2(g-1) rounds. Its fluid form sends the bytes of all rounds of a member as one
message, followed by the latency of all rounds. Both forms move the same bytes over the same links. They take the same
time if the rate of each message is constant: if the links of the ring carry no other flows, or the same other flows
all the time. They differ if other flows begin or end meanwhile: a ring in rounds leaves its links idle between rounds
and waits in each round for its slowest link, while in the fluid form each link proceeds independently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import gcd

from sim.models.network.allreduce.algorithms import Algorithm, Chain, plan_rings

Group = tuple[int, ...]


def make_fluid(algorithm: Algorithm) -> Algorithm:
    """Return the collective with the rounds of each phase merged: whole rings, and the middle of pipelined trees."""

    def plan_merged(members: Sequence[int], size_bytes: int) -> tuple[Chain, ...]:
        chains = algorithm(members, size_bytes)
        return tuple(
            tuple(replace(phase, is_merged=phase.round_count > 1) for phase in chain) for chain in chains
        )

    return plan_merged


plan_fluid_ring = make_fluid(plan_rings)
"""A single ring in the order of the members, with merged rounds."""


def make_stride_rings(choose_strides: Callable[[Group], Sequence[int]], *, exact: bool = False) -> Algorithm:
    """Return a collective with one ring for each stride that `choose_strides` returns for a group.

    `plan_rings` explains strides. The rings are fluid, or in rounds if `exact`.

    >>> both_ways = make_stride_rings(lambda group: (1, len(group) - 1))
    >>> [(phase.targets.tolist(), phase.is_merged) for (phase,) in both_ways((0, 3, 6), 3_000)]
    [([3, 6, 0], True), ([6, 0, 3], True)]
    """

    def plan_all_rings(members: Sequence[int], size_bytes: int) -> tuple[Chain, ...]:
        return plan_rings(members, size_bytes, strides=choose_strides(tuple(members)))

    return plan_all_rings if exact else make_fluid(plan_all_rings)


def make_circulant_rings(node_count: int, strides: Iterable[int], *, exact: bool = False) -> Algorithm:
    """Return a collective of rings for any group on a circulant with these one-way strides; equal strides are parallel.

    An evenly spaced group uses the strides of the fabric that form a ring of the group. If there are none, it uses
    the strides of its own that need the fewest hops, at most as many as the fabric has strides; messages are then
    forwarded by hosts, on the routes of the fabric. Any other group has one ring, in ascending order. The order in
    which the members are given does not matter.
    """
    node_strides = tuple(stride % node_count for stride in strides)
    plan_in_order = make_stride_rings(
        lambda group: choose_position_strides(node_count, node_strides, group), exact=exact
    )

    def plan_sorted(members: Sequence[int], size_bytes: int) -> tuple[Chain, ...]:
        return plan_in_order(sorted(members), size_bytes)

    return plan_sorted


def choose_position_strides(node_count: int, node_strides: Sequence[int], group: Group) -> tuple[int, ...]:
    """Return strides over the positions of an ascending group for rings on a circulant with strides `node_strides`.

    >>> choose_position_strides(12, (1, 11, 5, 7), tuple(range(12)))
    (1, 11, 5, 7)
    >>> choose_position_strides(12, (1, 11, 3, 9), (1, 4, 7, 10))
    (1, 3)
    >>> choose_position_strides(
    ...     16, (1, 15, 6, 10), (0, 4, 8, 12)
    ... )  # none is a multiple of 4: 4 is 10 + 10, 12 is 6 + 6
    (1, 3)
    """
    size = len(group)
    spacing = node_count // size
    if group != tuple(range(group[0], node_count, spacing))[:size] or node_count % size:
        return (1,)
    usable_strides = [stride for stride in range(1, size) if gcd(stride, size) == 1]
    fabric_strides = tuple(
        step // spacing for step in node_strides if step % spacing == 0 and step // spacing in usable_strides
    )
    if fabric_strides or size == 1:
        return fabric_strides or (1,)
    hops = _count_hops(node_count, node_strides)
    fewest_hops = min(hops[stride * spacing] for stride in usable_strides)
    nearest_strides = [stride for stride in usable_strides if hops[stride * spacing] == fewest_hops]
    nearest_strides.sort(key=lambda stride: (min(stride, size - stride), stride))
    return tuple(nearest_strides[: len(node_strides)])


def _count_hops(node_count: int, node_strides: Sequence[int]) -> list[int]:
    """Return the number of hops to each distance, (nodes,); `node_count` marks an unreachable distance."""
    hops = [node_count] * node_count
    hops[0] = 0
    reached_nodes = [0]
    for node in reached_nodes:  # a breadth-first search: the loop extends its own list
        for step in node_strides:
            next_node = (node + step) % node_count
            if hops[next_node] == node_count and next_node:
                hops[next_node] = hops[node] + 1
                reached_nodes.append(next_node)
    return hops
