"""Collectives on the several sets of routes of a plan: what takes each set, and what that puts on the links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from testbed.design.collectives.performance import Pair
from testbed.design.model import Link, Wiring
from testbed.design.routing.route_sets import RouteSets
from testbed.measure.collectives.spec import Configuration


def weights_of(configuration: Configuration, sets: RouteSets) -> tuple[tuple[float, ...], ...]:
    """Return the part of each ring, or pair, that takes each set.

    A library splits the tensor of a ring once, for all of its hops: a set gets what it has of each of them, the first
    set the rest.
    """
    if configuration.pairs:
        return tuple(_of_pair(sets, pair) for pair in configuration.pairs)
    return tuple(_of_ring([_of_pair(sets, hop) for hop in _hops(ring.order)]) for ring in configuration.rings)


def link_shares(
    wiring: Wiring, sets: RouteSets, configuration: Configuration, weights: Sequence[Sequence[float]]
) -> Mapping[Link, float]:
    """Return the tensors of a node that pass over each link."""
    links, shares = links_in_order(wiring), dict[Link, float]()
    for (source, target), part, of_sets in _messages(configuration, weights):
        for number, weight in enumerate(of_sets):
            for edge in sets.path(source, target, number) if weight else ():
                shares[links[edge]] = shares.get(links[edge], 0.0) + part * weight
    return shares


def links_in_order(wiring: Wiring) -> list[Link]:
    """Return the links of a wiring in the order of the edges of its topology, see `route_sets.routes_on`."""
    return sorted(wiring.links, key=lambda link: (link.source.node, link.target.node, link))


def _messages(
    configuration: Configuration, weights: Sequence[Sequence[float]]
) -> Iterator[tuple[Pair, float, Sequence[float]]]:
    """Yield who sends to whom, how much of its tensor, and the parts of that by set."""
    if configuration.pairs:
        targets = Counter(source for source, _ in configuration.pairs)
        for pair, of_sets in zip(configuration.pairs, weights, strict=True):
            yield pair, 1 / targets[pair[0]], of_sets
        return
    part = configuration.collective.bus_factor(configuration.ranks) / configuration.rings_per_node
    for ring, of_sets in zip(configuration.rings, weights, strict=True):
        for hop in _hops(ring.order):
            yield hop, part, of_sets


def _hops(order: Sequence[int]) -> Iterator[Pair]:
    return pairwise((*order, order[0]))


def _of_pair(sets: RouteSets, pair: Pair) -> tuple[float, ...]:
    return tuple(float(weight) for weight in sets.weight[:, pair[0], pair[1]])


def _of_ring(hops: Sequence[Sequence[float]]) -> tuple[float, ...]:
    others = [min(of_set) for of_set in zip(*(hop[1:] for hop in hops), strict=True)]
    return (round(1 - sum(others), 9), *others)
