"""Circulant topologies for AllReduce demands, with shortcuts for remaining NICs.

This is TopologyFinder (TopoOpt, NSDI 2023) for AllReduce demands. Each group gets rings in proportion to its bytes.
Rings are strides on Z_n, and the union of the strides is the topology.

Remaining NICs get links across the graph. Antipodal links of a ring at best halve its distances. A random matching
reduces distances to the logarithm of the number of nodes (Bollobas and Chung, 1988), so the best of several random
matchings is used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any, Literal, NamedTuple

import numpy as np

from testbed.design.model import Topology
from testbed.design.topology.demand import AllReduceDemand, Demand, check_group
from testbed.design.topology.hops import count_hops_from_sources, measure_distances
from testbed.design.topology.strides import (
    Method,
    list_direct_strides,
    list_half_range,
    list_prime_strides,
    list_totient_strides,
    select_permutations,
)
from testbed.errors import TopologyError

__all__ = ["AllReduceDemand", "check_possible", "find_topology", "list_circulant_edges", "render_topology"]

ShareRule = Literal["averages", "published"]

MAX_DEGREE = 1024
"""Maximum NICs per node, far above any real node: a typo is refused before it costs memory."""
MAX_NICS = 8_000_000
"""Maximum NICs of all nodes together: their links take a gigabyte of memory."""
Edge = tuple[int, int]
MAX_SHORTCUT_RATIO = 0.8
"""Shortcuts replace antipodal links only if mean hops fall below this fraction, so that small graphs stay regular."""


def find_topology(
    nodes: int,
    degree: int,
    *,
    simplex: bool = False,
    method: Method = "geometric",
    demands: Sequence[AllReduceDemand] = (),
    share_rule: ShareRule = "averages",
    only_primes: bool = False,
) -> Topology:
    """Return a connected topology of `nodes` nodes with `degree` NICs each.

    - Duplex (the default): every stride p has links in both directions, +p and -p. An odd degree adds the antipodal
      matching n/2, or a random matching if it shortens distances much and no group has two nodes.
    - Simplex: strides are one-way rings. A NIC's transmitter and receiver may face different nodes.

    NICs in excess of the number of other nodes get parallel links.

    Rings are shared among the demands in proportion to the bytes that members send (default: one AllReduce over all
    nodes). The group of all nodes comes first, so that the graph is connected. `method` chooses among the strides of
    each group, and `share_rule` is the rule by which groups share rings. A stride repeats only if all usable strides
    are used. The antipodal stride of groups of two is doubled for an even degree. `only_primes` prefers strides that
    are 1 or a prime number of steps of their group, as far as they suffice.

    Raises `TopologyError` if no such topology exists or a group does not divide the nodes.

    >>> find_topology(12, 4).strides
    (1, 5)
    >>> find_topology(12, 4, demands=[AllReduceDemand(12, 2**20), AllReduceDemand(4, 2**20)]).strides
    (1, 3)
    """
    check_possible(nodes, degree, simplex=simplex)
    bytes_by_group: dict[int, float] = {}
    for demand in demands or (AllReduceDemand(nodes, 1),):
        check_group(nodes, demand)
        bytes_by_group[demand.group_size] = bytes_by_group.get(demand.group_size, 0.0) + demand.bytes_sent
    bytes_by_group = dict(sorted(bytes_by_group.items(), key=lambda item: (-item[1], -item[0])))
    stride_options = _StrideSearch(nodes, degree, simplex, method, share_rule, only_primes)
    strides = _choose_strides(stride_options, bytes_by_group)
    if math.gcd(nodes, *strides) != 1:
        connected_options = _StrideSearch(nodes, degree, simplex, method, "averages", only_primes)
        strides = _choose_strides(connected_options, {nodes: 0.0} | bytes_by_group)
    edges = list_circulant_edges(nodes, list_direct_strides(nodes, strides, simplex=simplex))
    circulant = Topology(nodes, degree, simplex, strides, edges)
    return circulant if simplex or degree % 2 == 0 or 2 in bytes_by_group else add_shortcuts(circulant)


def add_shortcuts(topology: Topology) -> Topology:
    """Return a duplex circulant with its antipodal matching replaced, if another matching shortens distances much.

    Return the topology unchanged if it has no single antipodal stride, or if its other strides do not connect all
    nodes.
    """
    nodes, half = topology.nodes, topology.nodes // 2
    if topology.degree < 3 or topology.strides.count(half) != 1:
        return topology
    strides = tuple(stride for stride in topology.strides if stride != half)
    if math.gcd(nodes, *strides) != 1:
        return topology
    rings = list_circulant_edges(nodes, list_direct_strides(nodes, strides, simplex=False))
    links = add_shortcut_matchings(nodes, rings, range(nodes))
    if compute_mean_distance(nodes, rings, links) >= MAX_SHORTCUT_RATIO * compute_mean_distance(
        nodes, topology.edges, ()
    ):
        return topology
    edges = tuple(sorted((*rings, *links, *((target, source) for source, target in links))))
    return Topology(nodes, topology.degree, simplex=False, strides=strides, edges=edges)


def check_possible(nodes: int, degree: int, *, simplex: bool) -> None:
    """Raise `TopologyError` unless a connected topology of this size exists."""
    if nodes < 2:
        raise TopologyError(f"{nodes} nodes: a topology needs at least 2")
    if degree < 1:
        raise TopologyError(f"degree {degree}: every node needs at least 1 NIC; give a degree of 1 or more")
    if degree > MAX_DEGREE:
        raise TopologyError(f"degree {degree} with {nodes} nodes: lower the degree to at most {MAX_DEGREE}")
    if nodes * degree > MAX_NICS:
        raise TopologyError(
            f"{nodes} nodes of degree {degree}: a topology has at most {MAX_NICS:,} NICs; give fewer nodes"
        )
    if not simplex and nodes * degree % 2:
        raise TopologyError(
            f"degree {degree} with {nodes} nodes, duplex: {nodes * degree} NICs cannot be paired, their number "
            f"is odd; use an even degree, an even number of nodes, or simplex links"
        )
    if not simplex and degree == 1 and nodes > 2:
        raise TopologyError(
            f"degree 1 with {nodes} nodes, duplex: one NIC per node only joins pairs, so the graph is not "
            "connected; use a degree of 2 or more"
        )


def list_circulant_edges(nodes: int, direct_strides: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return the sorted directed edges (i, i+step) of every node i and one-way stride."""
    return tuple(sorted((node, (node + step) % nodes) for step in direct_strides for node in range(nodes)))


def render_topology(topology: Topology) -> dict[str, Any]:
    """Return the JSON document of `testbed topology --json`; `mean_hops` is rounded to six decimals.

    `hops_sampled_from` is present if hops were counted from a sample of nodes, and gives its size, see
    `count_hops_from_sources`. Raises `TopologyError` if a node cannot be reached.
    """
    distances = measure_distances(topology)
    document = {
        "nodes": topology.nodes,
        "degree": topology.degree,
        "simplex": topology.simplex,
        "strides": list(topology.strides),
        "links": [list(link) for link in topology.links],
        "diameter": distances.diameter,
        "mean_hops": round(distances.mean_hops, 6),
    }
    return document | (
        {"hops_sampled_from": distances.sampled_node_count} if distances.sampled_node_count else {}
    )


class _StrideSearch(NamedTuple):
    """Options of a search for strides."""

    nodes: int
    degree: int
    simplex: bool
    method: Method
    share_rule: ShareRule
    only_primes: bool

    def select(
        self, stride_count: int, candidates: Sequence[int], fixed_strides: Sequence[int]
    ) -> tuple[int, ...]:
        """Return the best `stride_count` strides of a pool, in addition to `fixed_strides`."""
        return select_permutations(
            self.nodes,
            stride_count,
            candidates,
            self.method,
            simplex=self.simplex,
            fixed_strides=fixed_strides,
        )


def _choose_strides(options: _StrideSearch, bytes_by_group: Mapping[int, float]) -> tuple[int, ...]:
    """Return strides that use exactly `degree` NICs per node, first for the groups, then for rings over all nodes."""
    nodes, simplex = options.nodes, options.simplex
    strides: list[int] = [] if simplex or options.degree % 2 == 0 else [nodes // 2]
    ring_count = options.degree if simplex else options.degree // 2
    strides_by_group = {
        group_size: _find_candidates(options, group_size, strides) for group_size in bytes_by_group
    }
    stride_count_by_group = {group_size: len(pool) for group_size, pool in strides_by_group.items()}
    ring_count_by_group = share_rings(
        ring_count, nodes, bytes_by_group, stride_count_by_group, options.share_rule
    )
    for group_size, group_ring_count in ring_count_by_group.items():
        group_strides = options.select(group_ring_count, strides_by_group[group_size], strides)
        strides += [
            ring_stride
            for stride in group_strides
            for ring_stride in _list_ring_strides(nodes, stride, simplex=simplex)
        ]
    strides += _fill_strides(options, ring_count - sum(ring_count_by_group.values()), strides)
    nic_count = len(list_direct_strides(nodes, strides, simplex=simplex))
    return tuple(sorted([*strides, *_yield_parallel_strides(options, options.degree - nic_count)]))


def _yield_parallel_strides(options: _StrideSearch, nic_count: int) -> Iterator[int]:
    """Yield repeated strides, which give parallel links, until they use `nic_count` NICs."""
    nodes, simplex = options.nodes, options.simplex
    stride_cycle = cycle(range(1, nodes if simplex else nodes // 2 + 1))
    while nic_count > 0:
        copies = _list_ring_strides(nodes, next(stride_cycle), simplex=simplex)
        yield from copies
        nic_count -= len(list_direct_strides(nodes, copies, simplex=simplex))


def _find_candidates(options: _StrideSearch, group_size: int, used_strides: Sequence[int]) -> tuple[int, ...]:
    """Return the unused strides of a group, up to n/2 if duplex."""
    strides = list_totient_strides(options.nodes, group_size)
    if not options.simplex:
        strides = list_half_range(options.nodes, strides)
    if options.only_primes:
        strides = list_prime_strides(options.nodes, group_size, strides)
    return tuple(stride for stride in strides if stride not in used_strides)


def _list_ring_strides(nodes: int, stride: int, *, simplex: bool) -> tuple[int, ...]:
    """Return the strides of one ring. A duplex ring uses two NICs per node, so the antipodal stride comes twice."""
    return (stride, stride) if not simplex and 2 * stride == nodes else (stride,)


def _fill_strides(options: _StrideSearch, spare_ring_count: int, used_strides: Sequence[int]) -> list[int]:
    """Return strides for rings that no group can use: first strides over all nodes, then any unused stride."""
    all_strides = range(1, options.nodes if options.simplex else (options.nodes + 1) // 2)
    unused_strides = [stride for stride in all_strides if stride not in used_strides]
    candidate_lists = (
        [stride for stride in unused_strides if math.gcd(stride, options.nodes) == 1],
        [stride for stride in unused_strides if math.gcd(stride, options.nodes) != 1],
    )
    strides: list[int] = []
    for candidates in candidate_lists:
        stride_count = min(spare_ring_count - len(strides), len(candidates))
        strides += options.select(stride_count, candidates, (*used_strides, *strides))
    return strides


def parse_demands(texts: Iterable[str]) -> tuple[AllReduceDemand, ...]:
    """Return demands from texts like "12:1e9" (nodes and bytes). Raises `TopologyError` for any other text."""
    demands = []
    for text in texts:
        group, _, size = text.partition(":")
        try:
            demands.append(AllReduceDemand(group_size=int(group), size_bytes=int(float(size))))
        except (ValueError, OverflowError) as error:
            message = f"--demand {text!r} is not NODES:BYTES; write for example --demand 4:4e9"
            raise TopologyError(message) from error
    return tuple(demands)


def add_shortcut_matchings(
    nodes: int, edges: Sequence[Edge], unmatched_nodes: Sequence[int]
) -> tuple[Edge, ...]:
    """Return the best of several random matchings of `unmatched_nodes` (an even number), as duplex links.

    The best matching has the least mean distance. `edges` are directed and connect all nodes. The result is
    deterministic.
    """
    rng, matchings = np.random.default_rng(nodes), []
    for _ in range(max(2, min(200, 4_000_000 // nodes**2))):
        node_pairs = rng.permutation(np.asarray(unmatched_nodes, dtype=np.int64)).reshape(2, -1)
        links = tuple(sorted((int(min(pair)), int(max(pair))) for pair in node_pairs.T))
        matchings.append((compute_mean_distance(nodes, edges, links), links))
    return min(matchings)[1]


def compute_mean_distance(nodes: int, edges: Sequence[Edge], links: Sequence[Edge]) -> float:
    """Return the mean hops over directed edges and duplex links; the mean includes 0 hops from a node to itself.

    If there are many nodes, it counts from a sample, see `count_hops_from_sources`.
    """
    both_directions = [*edges, *links, *((target, source) for source, target in links)]
    _, hops = count_hops_from_sources(nodes, both_directions)
    return float(hops.mean(dtype=np.float64))


def split_degree(
    demand: Demand, degree: int, *, simplex: bool, matching_nic_count: int | None = None
) -> tuple[int, int]:
    """Return the NICs of a node for rings and for matchings: d_A = max(1, ceil(d * A / (A + M))) and d - d_A.

    A is the number of bytes of all AllReduces, M the number of bytes between pairs. A duplex ring takes two NICs, so
    d_A is rounded up to an even number, or to all of an odd degree. Without demand, all NICs are for rings.
    `matching_nic_count` overrides the number of NICs for matchings. Raises `TopologyError` if it leaves too few NICs
    for a ring, which keeps the graph connected.
    """
    if matching_nic_count is not None:
        ring_nics = degree - matching_nic_count
        min_ring_nics = 1 if simplex or degree == 1 else 2
        if (
            matching_nic_count < 0
            or ring_nics < min_ring_nics
            or (not simplex and matching_nic_count and ring_nics % 2)
        ):
            raise TopologyError(
                f"{matching_nic_count} of {degree} NICs for matchings leave {ring_nics} for rings, which need at least "
                f"{min_ring_nics} "
                f"to keep the graph connected{'' if simplex else ' and, duplex, two each'}; choose another "
                "number"
            )
        return ring_nics, matching_nic_count
    total_bytes = demand.allreduce_bytes + demand.pair_bytes
    allreduce_share = demand.allreduce_bytes / total_bytes if total_bytes > 0 else 1.0
    # Rounding may put the product slightly above a whole number: that must not cost another NIC.
    ring_nics = max(1, math.ceil(degree * allreduce_share - 1e-9))
    if not simplex:
        ring_nics = min(degree, ring_nics + ring_nics % 2)
    return ring_nics, degree - ring_nics


def share_rings(
    ring_count: int,
    nodes: int,
    bytes_by_group: Mapping[int, float],
    stride_count_by_group: Mapping[int, int],
    share_rule: ShareRule = "averages",
) -> dict[int, int]:
    """Return the number of rings of each group: at most `ring_count` in all, and at most one per stride of the group.

    - `published`: the heaviest group takes ceil(d * its share), then the next group takes from the rest. If there are
      few rings, the second group gets none.
    - `averages`: each ring goes to the group with the most bytes per ring, counting the new ring (highest averages,
      D'Hondt). Only groups with few bytes get none. The group of all nodes gets the first ring.

    Raises `TopologyError` for another rule.
    """
    if share_rule == "published":
        return _split_as_published(ring_count, bytes_by_group, stride_count_by_group)
    if share_rule == "averages":
        return _split_by_averages(ring_count, nodes, bytes_by_group, stride_count_by_group)
    raise TopologyError(f"unknown rule {share_rule!r} for shares: choose 'averages' or 'published'")


def _split_by_averages(
    ring_count: int, nodes: int, bytes_by_group: Mapping[int, float], stride_count_by_group: Mapping[int, int]
) -> dict[int, int]:
    ring_count_by_group = dict.fromkeys(bytes_by_group, 0)
    for _ in range(ring_count):
        open_groups = [
            group for group in bytes_by_group if ring_count_by_group[group] < stride_count_by_group[group]
        ]
        if not open_groups:
            break
        if nodes in open_groups and ring_count_by_group[nodes] == 0:
            ring_count_by_group[nodes] = 1
            continue
        neediest_group = max(
            open_groups, key=lambda group: (bytes_by_group[group] / (ring_count_by_group[group] + 1), group)
        )
        ring_count_by_group[neediest_group] += 1
    return ring_count_by_group


def _split_as_published(
    ring_count: int, bytes_by_group: Mapping[int, float], stride_count_by_group: Mapping[int, int]
) -> dict[int, int]:
    total_bytes = sum(bytes_by_group.values())
    ring_count_by_group: dict[int, int] = {}
    remaining_ring_count = ring_count
    for group in sorted(bytes_by_group, key=lambda group: (-bytes_by_group[group], -group)):
        byte_share = bytes_by_group[group] / total_bytes if total_bytes > 0 else 1 / len(bytes_by_group)
        ring_count_by_group[group] = min(
            remaining_ring_count, stride_count_by_group[group], math.ceil(ring_count * byte_share - 1e-9)
        )
        remaining_ring_count -= ring_count_by_group[group]
    return ring_count_by_group
