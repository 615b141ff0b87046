"""TopologyFinder (TopoOpt, NSDI 2023) for any demand: rings for AllReduce, matchings for pairs.

The NICs of a node are split between rings and pairs in proportion to their bytes. Each NIC for pairs is one round: a
matching links the pairs that send most. A pair with a link has a lower weight in the next round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from testbed.design.matching import assign_edges, match_edges, match_priced
from testbed.design.model import Topology
from testbed.design.topology.circulants import (
    ShareRule,
    check_possible,
    find_topology,
    list_circulant_edges,
    split_degree,
)
from testbed.design.topology.demand import Demand
from testbed.design.topology.strides import Method, list_direct_strides, list_totient_strides
from testbed.errors import TopologyError

Discount = Literal["halved", "harmonic"]
Pairs = tuple[tuple[int, int], ...]

#: Up to this number of nodes, dense demands are matched exactly. Beyond, `match_priced` approximates.
EXACT_NODES = 256
#: Demands with at most this number of pairs per node are sparse, and matched exactly at any size.
SPARSE_PAIRS = 16


@dataclass(frozen=True, slots=True)
class Finding:
    """A topology and its parts.

    `ring_degree` and `matching_degree` are the NICs per node for rings and for pairs. For each NIC for pairs,
    `matchings` holds the pairs with demand that got a link, and `fillers` the links that join the other nodes, so that
    no NIC is dark. Duplex pairs have the smaller node first.
    """

    topology: Topology
    ring_degree: int
    matching_degree: int
    matchings: tuple[Pairs, ...]
    fillers: tuple[Pairs, ...]

    @property
    def link_count_by_pair(self) -> Mapping[tuple[int, int], int]:
        """Number of links bought for each pair with demand."""
        return Counter(pair for matching in self.matchings for pair in matching)

    def list_group_strides(self, group: int) -> tuple[int, ...]:
        """Return the strides of the topology whose rings are groups of this size."""
        group_strides = list_totient_strides(self.topology.nodes, group)
        return tuple(stride for stride in self.topology.strides if stride in group_strides)


def plan_topology(
    demand: Demand,
    degree: int,
    *,
    simplex: bool = False,
    method: Method = "geometric",
    share_rule: ShareRule = "averages",
    only_primes: bool = False,
    discount: Discount = "halved",
    matching_degree: int | None = None,
) -> Finding:
    """Return a connected topology for a demand.

    `discount` is the weight of a pair after its c-th link: 1/2^c (`halved`, as published) or 1/(c+1) (`harmonic`, as in
    the released code). `matching_degree` overrides the split by bytes. See `find_topology` for the other options.
    A single node gets no link. Raises `TopologyError` if no topology of this size exists.
    """
    if discount not in {"halved", "harmonic"}:
        raise TopologyError(f"unknown discount {discount!r}: choose 'halved' or 'harmonic'")
    nodes = demand.nodes
    if nodes == 1:
        return Finding(Topology(1, degree, simplex, (), ()), 0, 0, (), ())
    check_possible(nodes, degree, simplex=simplex)
    ring_nics, matching_nics = split_degree(
        demand, degree, simplex=simplex, matching_nic_count=matching_degree
    )
    ring_topology = find_topology(
        nodes,
        ring_nics,
        simplex=simplex,
        method=method,
        demands=demand.allreduce,
        share_rule=share_rule,
        only_primes=only_primes,
    )
    # An odd degree of rings may have links besides its strides. Then no NIC is left for pairs.
    direct_strides = list_direct_strides(
        ring_topology.nodes, ring_topology.strides, simplex=ring_topology.simplex
    )
    shortcut_edges = Counter(ring_topology.edges) - Counter(
        list_circulant_edges(ring_topology.nodes, direct_strides)
    )
    shortcut_links = tuple(sorted(edge for edge in shortcut_edges.elements() if edge[0] < edge[1]))
    if shortcut_links:
        return Finding(
            replace(ring_topology, degree=degree), ring_nics - 1, matching_nics + 1, ((),), (shortcut_links,)
        )
    matchings, fillers = _buy_links(demand, matching_nics, simplex=simplex, discount=discount)
    extra_links = [pair for matching in (*matchings, *fillers) for pair in matching]
    extra_edges = (
        extra_links if simplex else extra_links + [(target, source) for source, target in extra_links]
    )
    edges = tuple(sorted((*ring_topology.edges, *extra_edges)))
    topology = Topology(nodes, degree, simplex, ring_topology.strides, edges)
    return Finding(topology, ring_nics, matching_nics, tuple(matchings), tuple(fillers))


def _buy_links(
    demand: Demand, round_count: int, *, simplex: bool, discount: Discount
) -> tuple[list[Pairs], list[Pairs]]:
    """Return the pairs that get a link in each round, and the filler links between the other nodes.

    Each round takes the heaviest matching of the discounted demand.
    """
    source, target, pair_bytes = demand.source, demand.target, demand.size_bytes
    if not simplex:  # sum both directions of a pair, smaller node first
        low_node, high_node = np.minimum(source, target), np.maximum(source, target)
        pair_key, pair_index = np.unique(low_node * demand.nodes + high_node, return_inverse=True)
        source, target = pair_key // demand.nodes, pair_key % demand.nodes
        pair_bytes = np.bincount(pair_index, pair_bytes, len(pair_key)).astype(np.float64)
    link_counts = np.zeros(len(pair_bytes))
    matchings: list[Pairs] = []
    fillers: list[Pairs] = []
    dark_nodes: list[int] = []
    for _ in range(round_count):
        discounted_bytes = pair_bytes * (0.5**link_counts if discount == "halved" else 1 / (link_counts + 1))
        partners = _find_partners(demand.nodes, source, target, discounted_bytes, simplex=simplex)
        is_bought = partners[source] == target
        link_counts += is_bought
        matchings.append(tuple(zip(source[is_bought].tolist(), target[is_bought].tolist(), strict=True)))
        filler_links, still_dark_nodes = _fill_matching(
            demand.nodes, matchings[-1], dark_nodes, simplex=simplex
        )
        fillers.append(filler_links)
        dark_nodes = still_dark_nodes
    return matchings, fillers


def _find_partners(
    nodes: int,
    source: NDArray[np.int64],
    target: NDArray[np.int64],
    weight: NDArray[np.float64],
    *,
    simplex: bool,
) -> NDArray[np.int64]:
    """Return the partner of each node, or -1, shape (n,)."""
    if simplex:
        return assign_edges(nodes, source, target, weight)
    if nodes <= EXACT_NODES or len(weight) <= SPARSE_PAIRS * nodes:
        return match_edges(nodes, source, target, weight).mate
    weight_matrix = np.zeros((nodes, nodes))
    weight_matrix[source, target] = weight_matrix[target, source] = weight
    return match_priced(weight_matrix).mate


def _fill_matching(
    nodes: int, bought_pairs: Pairs, dark_nodes: list[int], *, simplex: bool
) -> tuple[Pairs, list[int]]:
    """Return links between distant nodes that a matching left out, and the nodes that stay without a link.

    With an odd number of nodes, every duplex matching leaves one out, which then waits in `dark_nodes` for another.
    """
    if simplex:
        # Join senders without a receiver to receivers without a sender, rotated so that fewest nodes face themselves.
        senders = np.setdiff1d(np.arange(nodes), [source for source, _ in bought_pairs])
        receivers = np.setdiff1d(np.arange(nodes), [target for _, target in bought_pairs])
        sender_count = len(senders)
        rotations = [np.roll(receivers, sender_count // 2 + shift) for shift in range(sender_count)]
        best_rotation = min(rotations, key=lambda rotated: int((rotated == senders).sum()), default=receivers)
        is_different = best_rotation != senders
        return tuple(
            zip(senders[is_different].tolist(), best_rotation[is_different].tolist(), strict=True)
        ), []
    linked_nodes = {end for pair in bought_pairs for end in pair}
    unmatched_nodes = [node for node in range(nodes) if node not in linked_nodes]
    if len(unmatched_nodes) % 2:  # a node that already waits for a partner must not be left out again
        unmatched_nodes.append(
            unmatched_nodes.pop(
                next((index for index, node in enumerate(unmatched_nodes) if node not in dark_nodes), 0)
            )
        )
    half_count = len(unmatched_nodes) // 2
    filler_links = list(
        zip(unmatched_nodes[:half_count], unmatched_nodes[half_count : 2 * half_count], strict=True)
    )
    still_dark_nodes = dark_nodes + unmatched_nodes[2 * half_count :]
    if len(still_dark_nodes) == 2 and still_dark_nodes[0] != still_dark_nodes[1]:
        filler_links.append((min(still_dark_nodes), max(still_dark_nodes)))
        still_dark_nodes = []
    return tuple(filler_links), still_dark_nodes
