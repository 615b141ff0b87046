"""Circulant direct connect: the same strides from every host, so routes depend on the distance alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sim.models.network.fabrics.cost import patch_panel_cost
from sim.models.network.fabrics.model import Fabric, Router, check_sizes

Integers = NDArray[np.int64]

_TIES = 16
"""Equally short ways to a distance that are compared; more would change the balance little."""
_SWEEPS = 20
ROUTE_SETS = 4
"""Sets of routes; a flow's choice says which it takes."""
_STARTS = 8
_SMALL = 64
"""Larger rings have so many ties that the first start is even within a few parts in a thousand."""


def circulant(nodes: int, strides: Sequence[int], rate_gbps: float) -> Fabric:
    """Return the fabric in which node i has a link to i + p mod n for each stride p; equal ones are parallel.

    A pair at distance m takes a shortest sequence of strides. There are four sets of such routes to choose from,
    which together load the strides as evenly as found, so that all-to-all fills the links alike. `ValueError` when
    the strides do not reach every node.
    """
    check_sizes(nodes, rate_gbps)
    reduced = sorted(stride % nodes for stride in strides)
    if reduced and reduced[0] == 0:
        raise ValueError(
            f"a stride of {strides} leads from a node to itself: none may be a multiple of {nodes}"
        )
    coins = sorted(set(reduced))
    copies = np.array([reduced.count(coin) for coin in coins], dtype=np.float64)
    moves = _moves(even_uses(nodes, coins, copies))
    host = np.tile(np.arange(nodes), len(coins))
    hop = np.repeat(np.array(coins, dtype=np.int64), nodes)
    return Fabric(
        name="circulant" + "".join(f"+{coin}" for coin in coins),
        nodes=nodes,
        sources=host,
        targets=(host + hop) % nodes,
        capacity_bps=np.repeat(copies, nodes) * rate_gbps * 1e9,
        lane_bps=np.full(host.size, rate_gbps * 1e9),
        never_full=np.zeros(host.size, dtype=bool),
        router=_router(nodes, np.array([*coins, 0]), moves),
        hosts_forward=True,
        cost=patch_panel_cost(nodes, len(reduced), rate_gbps),
    )


def even_uses(nodes: int, coins: Sequence[int], copies: NDArray[np.float64]) -> Integers:
    """Return the uses of each stride by each distance 0..n-1, (layers, nodes, strides): shortest, and even in sum.

    The ways of each distance are listed by dynamic programming over the hops; then each distance of each layer in
    turn takes the way that makes the sum of squared loads least, until nothing changes. A single layer cannot
    always be even, a few together can. The best of some starts is kept; starts are drawn from a fixed seed.

    >>> even_uses(12, (1, 5, 7, 11), np.ones(4)).sum(axis=(0, 1)).tolist()
    [20, 20, 20, 20]
    """
    ways = _shortest_ways(nodes, coins) * ROUTE_SETS
    random = np.random.default_rng(0)
    best, least = np.zeros((len(ways), len(coins)), np.int64), np.inf
    for _ in range(_STARTS if nodes <= _SMALL else 1):
        chosen = np.stack([options[int(random.integers(len(options)))] for options in ways])
        _even_out(chosen, ways, random.permutation(len(ways)).tolist(), copies)
        unevenness = float((chosen.sum(axis=0) ** 2 / copies).sum())
        if unevenness < least:
            best, least = chosen, unevenness
    return best.reshape(ROUTE_SETS, nodes, len(coins))


def _even_out(
    chosen: Integers, ways: list[Integers], order: Sequence[int], copies: NDArray[np.float64]
) -> None:
    """Change the chosen ways in place, one distance after another, while the loads become more even."""
    load = chosen.sum(axis=0)
    for _ in range(_SWEEPS):
        before = chosen.copy()
        for distance in order:
            others = load - chosen[distance]
            unevenness = ((others + ways[distance]) ** 2 / copies).sum(axis=1)
            chosen[distance] = ways[distance][int(np.argmin(unevenness))]
            load = others + chosen[distance]
        if (chosen == before).all():
            return


def _shortest_ways(nodes: int, coins: Sequence[int]) -> list[Integers]:
    """Return for each distance some shortest multisets of strides, each (ways, strides)."""
    ways: dict[int, set[tuple[int, ...]]] = {0: {(0,) * len(coins)}}
    layer = [0]
    while layer:
        reached: dict[int, set[tuple[int, ...]]] = {}
        for place in layer:
            for index, coin in enumerate(coins):
                following = (place + coin) % nodes
                if following in ways:
                    continue
                found = reached.setdefault(following, set())
                for way in sorted(ways[place])[: _TIES - len(found)]:
                    found.add((*way[:index], way[index] + 1, *way[index + 1 :]))
        ways |= reached
        layer = sorted(reached)
    if len(ways) < nodes:
        raise ValueError(
            f"strides {tuple(coins)} reach {len(ways)} of {nodes} nodes: their common factor is too large"
        )
    return [np.array(sorted(ways[distance]), dtype=np.int64) for distance in range(nodes)]


def _moves(uses: Integers) -> Integers:
    """Return places of the strides in order, filled up with the number of strides, (layers, nodes, diameter)."""
    layers, nodes, strides = uses.shape
    padded = np.full((layers, nodes, int(uses.sum(axis=2).max(initial=0))), strides, np.int64)
    for layer, distance in np.ndindex(layers, nodes):
        hops = np.repeat(np.arange(strides), uses[layer, distance])
        padded[layer, distance, : hops.size] = hops
    return padded


def _router(nodes: int, steps: Integers, moves: Integers) -> Router:
    def route(sources: Integers, targets: Integers, choices: Integers) -> Integers:
        taken = moves[choices % ROUTE_SETS, (targets - sources) % nodes]
        hops = steps[taken]
        at = (sources[:, None] + np.cumsum(hops, axis=1) - hops) % nodes
        return np.where(hops > 0, taken * nodes + at, -1)

    return route
