"""Collectives whose rounds flow as one, and rings on the strides of a circulant: many times fewer events.

A ring AllReduce of g members is 2(g-1) rounds. Its `fluid` form sends what a member sends in all rounds as one message,
followed by the latency of all rounds. Both forms move the same bytes over the same links, and both take the same time
while each message keeps its rate: when the ring's links carry nothing else, or something else all the time. They
differ where others come and go: a ring in rounds leaves its links idle between them, and waits in each round for its
slowest link, while in the fluid form each link goes on by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import gcd

from sim.models.network.allreduce.algorithms import Algorithm, Chain, ring

Group = tuple[int, ...]


def fluid(algorithm: Algorithm) -> Algorithm:
    """Return the collective with each run of equal rounds as one: rings, and the long middle of pipelined trees."""

    def merge(members: Sequence[int], size_bytes: int) -> tuple[Chain, ...]:
        chains = algorithm(members, size_bytes)
        return tuple(tuple(replace(phase, merged=phase.rounds > 1) for phase in chain) for chain in chains)

    return merge


fluid_ring = fluid(ring)
"""One ring in the order of the members, its rounds as one."""


def rings_on(strides_of: Callable[[Group], Sequence[int]], *, exact: bool = False) -> Algorithm:
    """Return rings on the strides of each group, over positions as in `allreduce.ring`.

    Fluid, or in rounds when `exact`.

    >>> both_ways = rings_on(lambda group: (1, len(group) - 1))
    >>> [(phase.targets.tolist(), phase.merged) for (phase,) in both_ways((0, 3, 6), 3_000)]
    [([3, 6, 0], True), ([6, 0, 3], True)]
    """

    def rings(members: Sequence[int], size_bytes: int) -> tuple[Chain, ...]:
        return ring(members, size_bytes, strides=strides_of(tuple(members)))

    return rings if exact else fluid(rings)


def circulant_rings(nodes: int, strides: Iterable[int], *, exact: bool = False) -> Algorithm:
    """Return rings for groups of any kind on a fabric of these one-way strides; equal ones are parallel.

    An evenly spaced group takes the strides that are rings of it. If there are none, it takes its own strides
    that need the fewest hops, at most as many as the fabric has: messages then pass hosts, on the fabric's
    routes. Any other group has one ring, in ascending order. Members may be given in any order.
    """
    steps = tuple(stride % nodes for stride in strides)
    rings = rings_on(lambda group: position_strides(nodes, steps, group), exact=exact)

    def ascending(members: Sequence[int], size_bytes: int) -> tuple[Chain, ...]:
        return rings(sorted(members), size_bytes)

    return ascending


def position_strides(nodes: int, steps: Sequence[int], group: Group) -> tuple[int, ...]:
    """Return the strides over the positions of an ascending group that are rings on a circulant of `steps`.

    >>> position_strides(12, (1, 11, 5, 7), tuple(range(12)))
    (1, 11, 5, 7)
    >>> position_strides(12, (1, 11, 3, 9), (1, 4, 7, 10))
    (1, 3)
    >>> position_strides(
    ...     16, (1, 15, 6, 10), (0, 4, 8, 12)
    ... )  # none is a multiple of 4: 4 is 10 + 10, 12 is 6 + 6
    (1, 3)
    """
    size = len(group)
    apart = nodes // size
    if group != tuple(range(group[0], nodes, apart))[:size] or nodes % size:
        return (1,)
    usable = [stride for stride in range(1, size) if gcd(stride, size) == 1]
    own = tuple(step // apart for step in steps if step % apart == 0 and step // apart in usable)
    if own or size == 1:
        return own or (1,)
    hops = _hops(nodes, steps)
    fewest = min(hops[stride * apart] for stride in usable)
    nearest = [stride for stride in usable if hops[stride * apart] == fewest]
    nearest.sort(key=lambda stride: (min(stride, size - stride), stride))
    return tuple(nearest[: len(steps)])


def _hops(nodes: int, steps: Sequence[int]) -> list[int]:
    """Return hops to every distance; `nodes` where there is no way."""
    hops = [nodes] * nodes
    hops[0] = 0
    reached = [0]
    for place in reached:  # grows while it is walked
        for step in steps:
            onward = (place + step) % nodes
            if hops[onward] == nodes and onward:
                hops[onward] = hops[place] + 1
                reached.append(onward)
    return hops
