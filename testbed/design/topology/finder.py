"""TopologyFinder (TopoOpt, NSDI 2023) for any demand: rings for AllReduce, matchings for pairs.

Degrees are split by bytes. Strides serve the groups. The remaining NICs go, one matching after the other, to the
pairs that send most; a pair that got a link counts for less in the next matching.
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
    Shares,
    check_possible,
    circulant_edges,
    find_topology,
    split_degree,
)
from testbed.design.topology.demand import Demand
from testbed.design.topology.strides import Method, direct_strides, totient_perms
from testbed.errors import TopologyError

Discount = Literal["halved", "harmonic"]
Pairs = tuple[tuple[int, int], ...]

#: Nodes up to which dense demands are matched exactly; beyond it `match_priced` matches them.
EXACT_NODES = 256
#: Pairs per node up to which demands count as sparse, and are matched exactly at any size.
SPARSE_PAIRS = 16


@dataclass(frozen=True, slots=True)
class Finding:
    """A topology and its parts.

    `ring_degree` and `matching_degree` are NICs of a node. `matchings` holds, for each NIC given to pairs, the pairs
    with demand that got a link; `fillers` the links that join the other nodes, so that no NIC is dark.
    `links_of[(s, t)]` counts links bought for a pair; duplex pairs have the smaller node first.
    """

    topology: Topology
    ring_degree: int
    matching_degree: int
    matchings: tuple[Pairs, ...]
    fillers: tuple[Pairs, ...]

    @property
    def links_of(self) -> Mapping[tuple[int, int], int]:
        """Links bought for each pair with demand."""
        return Counter(pair for matching in self.matchings for pair in matching)

    def strides_of(self, group: int) -> tuple[int, ...]:
        """Return the strides of the topology that serve groups of this size; empty if no ring serves them."""
        usable = totient_perms(self.topology.nodes, group)
        return tuple(stride for stride in self.topology.strides if stride in usable)


def find(
    demand: Demand,
    degree: int,
    *,
    simplex: bool = False,
    method: Method = "geometric",
    shares: Shares = "averages",
    primes: bool = False,
    discount: Discount = "halved",
    matching_degree: int | None = None,
) -> Finding:
    """Return a connected topology for a demand.

    `discount` is the weight of a pair after its c-th link: 1/2^c (`halved`, published) or 1/(c+1)
    (`harmonic`, the released code). `matching_degree` overrides the split by bytes. The other options
    are those of `find_topology`. One node needs no link and gets none.

    Raises `TopologyError` when no topology of this size exists.
    """
    if discount not in {"halved", "harmonic"}:
        raise TopologyError(f"unknown discount {discount!r}: choose 'halved' or 'harmonic'")
    nodes = demand.nodes
    if nodes == 1:
        return Finding(Topology(1, degree, simplex, (), ()), 0, 0, (), ())
    check_possible(nodes, degree, simplex=simplex)
    rings, spare = split_degree(demand, degree, simplex=simplex, wanted=matching_degree)
    base = find_topology(
        nodes, rings, simplex=simplex, method=method, demands=demand.allreduce, shares=shares, primes=primes
    )
    # Links that an odd degree of rings has besides its strides; if there are any, no NIC is left for pairs.
    steps = direct_strides(base.nodes, base.strides, simplex=base.simplex)
    more = Counter(base.edges) - Counter(circulant_edges(base.nodes, steps))
    across = tuple(sorted(edge for edge in more.elements() if edge[0] < edge[1]))
    if across:
        return Finding(replace(base, degree=degree), rings - 1, spare + 1, ((),), (across,))
    matchings, fillers = _buy_links(demand, spare, simplex=simplex, discount=discount)
    extra = [pair for part in (*matchings, *fillers) for pair in part]
    both_ways = extra if simplex else extra + [(target, source) for source, target in extra]
    edges = tuple(sorted((*base.edges, *both_ways)))
    topology = Topology(nodes, degree, simplex, base.strides, edges)
    return Finding(topology, rings, spare, tuple(matchings), tuple(fillers))


def _buy_links(
    demand: Demand, rounds: int, *, simplex: bool, discount: Discount
) -> tuple[list[Pairs], list[Pairs]]:
    """Return the pairs that get a link in each round, and the links between the other nodes.

    Each round is the heaviest matching of the discounted demand.
    """
    source, target, weight = demand.source, demand.target, demand.size_bytes
    if not simplex:  # both directions of a pair are added, smaller node first
        low, high = np.minimum(source, target), np.maximum(source, target)
        key, place = np.unique(low * demand.nodes + high, return_inverse=True)
        source, target = key // demand.nodes, key % demand.nodes
        weight = np.bincount(place, weight, len(key)).astype(np.float64)
    links = np.zeros(len(weight))
    matchings: list[Pairs] = []
    fillers: list[Pairs] = []
    dark: list[int] = []
    for _ in range(rounds):
        discounted = weight * (0.5**links if discount == "halved" else 1 / (links + 1))
        partner = _find_partners(demand.nodes, source, target, discounted, simplex=simplex)
        bought = partner[source] == target
        links += bought
        matchings.append(tuple(zip(source[bought].tolist(), target[bought].tolist(), strict=True)))
        filled, spare = _fill(demand.nodes, matchings[-1], dark, simplex=simplex)
        fillers.append(filled)
        dark = spare
    return matchings, fillers


def _find_partners(
    nodes: int,
    source: NDArray[np.int64],
    target: NDArray[np.int64],
    weight: NDArray[np.float64],
    *,
    simplex: bool,
) -> NDArray[np.int64]:
    """Return the partner of each node, shape (n,), -1 for none."""
    if simplex:
        return assign_edges(nodes, source, target, weight)
    if nodes <= EXACT_NODES or len(weight) <= SPARSE_PAIRS * nodes:
        return match_edges(nodes, source, target, weight).mate
    table = np.zeros((nodes, nodes))
    table[source, target] = table[target, source] = weight
    return match_priced(table).mate


def _fill(nodes: int, bought: Pairs, dark: list[int], *, simplex: bool) -> tuple[Pairs, list[int]]:
    """Return links between distant nodes that a matching left out, and the nodes that stay without a link.

    An odd number of nodes leaves one out of every duplex matching: it waits in `dark` for the next.
    """
    if simplex:
        # Senders without a receiver to receivers without a sender, rotated until no node faces itself.
        senders = np.setdiff1d(np.arange(nodes), [source for source, _ in bought])
        receivers = np.setdiff1d(np.arange(nodes), [target for _, target in bought])
        count = len(senders)
        turns = [np.roll(receivers, count // 2 + turn) for turn in range(count)]
        best = min(turns, key=lambda rotated: int((rotated == senders).sum()), default=receivers)
        apart = best != senders
        return tuple(zip(senders[apart].tolist(), best[apart].tolist(), strict=True)), []
    used = {end for pair in bought for end in pair}
    alone = [node for node in range(nodes) if node not in used]
    if len(alone) % 2:  # a node that waits already must not be left out twice
        alone.append(alone.pop(next((at for at, node in enumerate(alone) if node not in dark), 0)))
    half = len(alone) // 2
    filled = list(zip(alone[:half], alone[half : 2 * half], strict=True))
    waiting = dark + alone[2 * half :]
    if len(waiting) == 2 and waiting[0] != waiting[1]:
        filled.append((min(waiting), max(waiting)))
        waiting = []
    return tuple(filled), waiting
