"""Ring permutations: the strides that a group can use, the choice among them, and how far they reach.

A ring of stride p visits s, s+p, s+2p, ... modulo the number of nodes. A graph that consists of such rings is a
circulant: it looks the same from every node, so it suffices to consider node 0. The rules are TotientPerms,
SelectPermutations and CoinChangeMod of TopoOpt (NSDI 2023).

A ring order is the order in which the nodes of a collective pass data on. Each stride has its ring order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from testbed.design.model import RingOrder, Topology
from testbed.errors import TopologyError

Method = Literal["geometric", "exhaustive"]

#: Maximum number of sets of strides that `exhaustive` compares (about 10 microseconds each).
MAX_EXHAUSTIVE_SETS = 250_000

#: Number of rounds. Each round chooses every sequence again, given the load of all other sequences.
_BALANCING_ROUNDS = 4


@dataclass(frozen=True, slots=True, order=True)
class Reach:
    """Reach of a circulant from node 0. Values compare field by field; smaller is better.

    `unreached_count` counts nodes without a path. `total_hops` is the sum of distances to all other nodes.
    """

    unreached_count: int
    diameter: int
    total_hops: int


def list_totient_strides(nodes: int, group: int | None = None) -> tuple[int, ...]:
    """Return the strides whose rings visit exactly a group of k = `group` nodes {s, s + n/k, s + 2n/k, ...}.

    By TotientPerms, these are the phi(k) strides p = j * n/k with 1 <= j < k and gcd(j, k) = 1. Without `group`, the
    group is all nodes. Raises `TopologyError` if k does not divide n or is less than 2.

    >>> list_totient_strides(12)
    (1, 5, 7, 11)
    >>> list_totient_strides(12, 4)
    (3, 9)
    """
    group_size = nodes if group is None else group
    if group_size < 2 or nodes % group_size:
        divisors = ", ".join(str(number) for number in range(2, nodes + 1) if nodes % number == 0)
        raise TopologyError(
            f"a group of {group_size} nodes in a job of {nodes}: groups are evenly spaced, so their size must "
            f"divide {nodes} and be at least 2; use one of {divisors}"
        )
    return tuple(
        step_count * (nodes // group_size)
        for step_count in range(1, group_size)
        if math.gcd(step_count, group_size) == 1
    )


def list_half_range(nodes: int, strides: Iterable[int]) -> tuple[int, ...]:
    """Return the strides without direction: the smaller of p and n-p, each once, ascending.

    >>> list_half_range(12, (1, 5, 7, 11))
    (1, 5)
    """
    return tuple(sorted({min(stride, nodes - stride) for stride in strides}))


def list_prime_strides(nodes: int, group: int, strides: Iterable[int]) -> tuple[int, ...]:
    """Return the strides of a group that are 1 or a prime number of steps n/k, as in the paper at large scale.

    >>> list_prime_strides(12, 12, (1, 5, 7, 11)), list_prime_strides(32, 32, range(1, 16, 2))
    ((1, 5, 7, 11), (1, 3, 5, 7, 11, 13))
    """
    step = nodes // group
    return tuple(stride for stride in strides if stride == step or _is_prime(stride // step))


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % factor for factor in range(2, math.isqrt(number) + 1))


def list_direct_strides(nodes: int, strides: Iterable[int], *, simplex: bool) -> tuple[int, ...]:
    """Return the one-way strides of a topology, in its order: each p, and if duplex, then n-p.

    The antipodal stride n/2 is its own opposite, so it is not repeated.

    >>> list_direct_strides(12, (1, 5, 6), simplex=False)
    (1, 11, 5, 7, 6)
    """
    if simplex:
        return tuple(strides)
    return tuple(
        step
        for stride in strides
        for step in ((stride,) if 2 * stride == nodes else (stride, nodes - stride))
    )


def list_hop_levels(nodes: int, direct_strides: Iterable[int]) -> tuple[int, ...]:
    """Return the nodes that are first reached after 0, 1, 2, ... hops from node 0, each level as a bit mask.

    >>> [level.bit_count() for level in list_hop_levels(12, (1, 5, 7, 11))]
    [1, 4, 5, 2]
    """
    distinct_strides = sorted(set(direct_strides))
    all_nodes = (1 << nodes) - 1
    reached_nodes = frontier = 1
    levels = []
    while frontier:
        levels.append(frontier)
        arrived_nodes = 0
        for step in distinct_strides:
            arrived_nodes |= frontier << step | frontier >> (nodes - step)
        frontier = arrived_nodes & all_nodes & ~reached_nodes
        reached_nodes |= frontier
    return tuple(levels)


def measure_reach(nodes: int, direct_strides: Iterable[int]) -> Reach:
    """Return the reach of the circulant with one-way strides `direct_strides`.

    >>> measure_reach(12, (1, 5, 7, 11))
    Reach(unreached_count=0, diameter=3, total_hops=20)
    """
    node_counts = [level.bit_count() for level in list_hop_levels(nodes, direct_strides)]
    return Reach(
        nodes - sum(node_counts),
        len(node_counts) - 1,
        sum(hops * count for hops, count in enumerate(node_counts)),
    )


def select_permutations(
    nodes: int,
    stride_count: int,
    candidates: Sequence[int],
    method: Method = "geometric",
    *,
    simplex: bool = False,
    fixed_strides: Sequence[int] = (),
) -> tuple[int, ...]:
    """Return `stride_count` different strides chosen from `candidates`, ascending.

    - `geometric` follows the published rule: strides nearest to 1, x, x^2, ... with x = n^(1/`stride_count`).
    - `exhaustive` is exact. It minimises the diameter together with `fixed_strides`, then the mean distance, then
      the lexicographic order.

    Duplex candidates stand for both directions and must be at most n/2. Raises `TopologyError` for too few candidates,
    an unknown method, and more than `MAX_EXHAUSTIVE_SETS` sets for `exhaustive`.
    """
    if stride_count > len(candidates):
        raise TopologyError(
            f"{stride_count} rings needed, but only {len(candidates)} strides are available "
            f"({', '.join(map(str, candidates)) or 'none'}): lower the degree or change the number of nodes"
        )
    if method == "geometric":
        return _select_geometric(nodes, stride_count, candidates)
    if method == "exhaustive":
        return _select_exhaustive(
            nodes, stride_count, candidates, simplex=simplex, fixed_strides=fixed_strides
        )
    raise TopologyError(f"unknown method {method!r}: choose 'geometric' or 'exhaustive'")


def _select_geometric(nodes: int, stride_count: int, candidates: Sequence[int]) -> tuple[int, ...]:
    """Return the nearest unused stride for each of 1, x, x^2, ...; ties go to the smaller stride.

    Powers are computed by repeated multiplication, as published. If x^i is exactly between two strides, the rounding of
    this product decides, the same on every IEEE machine. For example, at n = 1024 the target 32 becomes 31 for 8
    one-way rings and 33 for 4 duplex rings, as in the published tables.
    """
    ratio = nodes ** (1 / max(stride_count, 1))
    remaining_strides = sorted(candidates)
    selected_strides = []
    target = 1.0
    for _ in range(stride_count):
        nearest_stride = min(remaining_strides, key=lambda stride: (abs(stride - target), stride))
        remaining_strides.remove(nearest_stride)
        selected_strides.append(nearest_stride)
        target *= ratio
    return tuple(sorted(selected_strides))


def _select_exhaustive(
    nodes: int, stride_count: int, candidates: Sequence[int], *, simplex: bool, fixed_strides: Sequence[int]
) -> tuple[int, ...]:
    """Return the best set by (reach, lexicographic order)."""
    required_strides, free_candidates = _fix_by_symmetry(
        nodes, stride_count, sorted(candidates), simplex=simplex, fixed_strides=fixed_strides
    )
    set_count = math.comb(len(free_candidates), stride_count - len(required_strides))
    if set_count > MAX_EXHAUSTIVE_SETS:
        raise TopologyError(
            f"{set_count} sets of strides ({stride_count} of {len(candidates)}, {nodes} nodes) are too many for an"
            f" exhaustive search (limit {MAX_EXHAUSTIVE_SETS}): use method 'geometric' or a smaller degree"
        )
    stride_sets = (
        required_strides + free_strides
        for free_strides in combinations(free_candidates, stride_count - len(required_strides))
    )
    return min(
        stride_sets,
        key=lambda stride_set: (
            measure_reach(nodes, list_direct_strides(nodes, (*fixed_strides, *stride_set), simplex=simplex)),
            stride_set,
        ),
    )


def _fix_by_symmetry(
    nodes: int, stride_count: int, candidates: Sequence[int], *, simplex: bool, fixed_strides: Sequence[int]
) -> tuple[tuple[int, ...], Sequence[int]]:
    """Return strides that the best set contains, and the candidates for the other strides.

    Suppose that all totatives are candidates and nothing is given. Multiplying a set by the inverse of one of its
    members renames the nodes and keeps all distances, and the new set contains 1. So the lexicographically first of the
    best sets contains 1.
    """
    totatives = list_totient_strides(nodes)
    all_strides = totatives if simplex else list_half_range(nodes, totatives)
    if fixed_strides or stride_count == 0 or tuple(candidates) != all_strides:
        return (), candidates
    return (candidates[0],), candidates[1:]


def make_stride_sequences(nodes: int, strides: Iterable[int]) -> Mapping[int, tuple[int, ...]]:
    """Return a shortest sequence of strides for each distance 1..n-1 (CoinChangeMod).

    Sequences are consistent: after its first stride, a sequence continues with the sequence of the remaining distance,
    so nodes can forward by destination. Among shortest sequences, the least loaded strides win, then the smaller
    strides, so the result is deterministic. Raises `TopologyError` if a distance cannot be covered.

    >>> make_stride_sequences(12, (1, 5, 7, 11))[4]
    (5, 11)
    """
    distinct_strides = sorted(set(strides))
    hops = compute_hop_distances(nodes, distinct_strides)
    if min(hops) < 0:
        raise TopologyError(
            f"strides {', '.join(map(str, distinct_strides))} do not reach all {nodes} nodes: add a stride so that "
            f"their greatest common divisor with {nodes} is 1"
        )
    load_by_stride = dict.fromkeys(distinct_strides, 0)
    sequence_by_distance: dict[int, tuple[int, ...]] = {0: ()}
    for _ in range(_BALANCING_ROUNDS):
        for distance in sorted(range(1, nodes), key=lambda node: (hops[node], node)):
            _add_load(sequence_by_distance.get(distance, ()), load_by_stride, -1)
            shortest_sequences = (
                (stride, *sequence_by_distance[(distance - stride) % nodes])
                for stride in distinct_strides
                if hops[(distance - stride) % nodes] == hops[distance] - 1
            )
            sequence_by_distance[distance] = min(
                shortest_sequences,
                key=lambda strides: (
                    sum(load_by_stride[sequence_stride] ** 2 for sequence_stride in strides),
                    strides,
                ),
            )
            _add_load(sequence_by_distance[distance], load_by_stride, +1)
    return {distance: sequence_by_distance[distance] for distance in range(1, nodes)}


def _add_load(sequence: Iterable[int], load_by_stride: dict[int, int], sign: int) -> None:
    for stride in sequence:
        load_by_stride[stride] += sign


def compute_hop_distances(nodes: int, direct_strides: Iterable[int]) -> list[int]:
    """Return the hops from node 0 to each node of a circulant; -1 where there is no path."""
    hops = [-1] * nodes
    for count, level in enumerate(list_hop_levels(nodes, direct_strides)):
        for node in range(nodes):
            if level >> node & 1:
                hops[node] = count
    return hops


def make_ring_order(nodes: int, stride: int, start: int = 0) -> RingOrder:
    """Return the ring of stride p that begins with `start`: `order[k]` is start + k*p mod n.

    If g is the greatest common divisor of p and n, the ring holds the n/g nodes of one group. In a ring over all nodes
    from 0, node i is at position i * p^-1 mod n.

    >>> make_ring_order(12, 5).order
    (0, 5, 10, 3, 8, 1, 6, 11, 4, 9, 2, 7)
    >>> make_ring_order(12, 3, start=1).order
    (1, 4, 7, 10)
    """
    member_count = nodes // math.gcd(nodes, stride)
    return RingOrder(stride, tuple((start + position * stride) % nodes for position in range(member_count)))


def list_rings(topology: Topology, group: int | None = None) -> tuple[RingOrder, ...]:
    """Return one ring per direction and stride, over all nodes or over every group of `group` nodes.

    For example, 12 duplex nodes with strides 1 and 5 have the rings 1, 5, 7, 11. Groups of k nodes get n/k rings per
    stride, ordered by stride and then by first member. Parallel links give the same ring again. If no stride of the
    topology fits the group, the rings have stride n/k (both directions if duplex). Their neighbours are not linked, so
    data takes the routes. Raises `TopologyError` if the group does not divide the nodes.
    """
    nodes = topology.nodes
    group_strides = list_totient_strides(nodes, group)
    direct_strides = [
        step
        for step in list_direct_strides(nodes, topology.strides, simplex=topology.simplex)
        if step in group_strides
    ]
    if not direct_strides:
        smallest_strides = (
            group_strides[:1] if topology.simplex else list_half_range(nodes, group_strides)[:1]
        )
        direct_strides = list(list_direct_strides(nodes, smallest_strides, simplex=topology.simplex))
    starts = range(nodes // (group or nodes))
    return tuple(make_ring_order(nodes, step, start) for step in sorted(direct_strides) for start in starts)
