"""Circulant direct connect: every host has the same strides, so a route depends only on the distance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sim.models.network.fabrics.cost import compute_patch_panel_cost
from sim.models.network.fabrics.model import CyclicRouter, Fabric, Router, check_sizes

Integers = NDArray[np.int64]

_MAX_TIES = 16
"""Maximum number of equally short ways to a distance to compare; more would hardly improve the balance."""
_MAX_SWEEPS = 20
ROUTE_SET_COUNT = 4
"""Number of sets of routes; the choice of a flow, modulo this number, selects its set."""
_RANDOM_START_COUNT = 8
_MAX_SMALL_NODES = 64
"""Larger circulants need only one start: with their many ties, loads are even within a few per mille."""


def make_circulant(node_count: int, strides: Sequence[int], rate_gbps: float) -> Fabric:
    """Return the fabric in which node i has a link to i + p mod n for each stride p; equal strides are parallel links.

    A pair uses a shortest sequence of strides. A flow chooses among four sets of such routes, which together load the
    strides as evenly as the search achieves, so that an all-to-all fills all links alike. Raise `ValueError` if a
    stride is a multiple of `node_count`, or if the strides do not reach every node.
    """
    check_sizes(node_count, rate_gbps)
    reduced_strides = sorted(stride % node_count for stride in strides)
    if reduced_strides and reduced_strides[0] == 0:
        raise ValueError(
            f"a stride of {strides} leads from a node to itself: none may be a multiple of {node_count}"
        )
    distinct_strides = sorted(set(reduced_strides))
    copy_counts = np.array([reduced_strides.count(stride) for stride in distinct_strides], dtype=np.float64)
    stride_indices = _list_strides(balance_strides(node_count, distinct_strides, copy_counts))
    host = np.tile(np.arange(node_count), len(distinct_strides))
    link_strides = np.repeat(np.array(distinct_strides, dtype=np.int64), node_count)
    return Fabric(
        name="circulant" + "".join(f"+{stride}" for stride in distinct_strides),
        node_count=node_count,
        sources=host,
        targets=(host + link_strides) % node_count,
        capacity_bps=np.repeat(copy_counts, node_count) * rate_gbps * 1e9,
        lane_bps=np.full(host.size, rate_gbps * 1e9),
        never_full=np.zeros(host.size, dtype=bool),
        router=CyclicRouter(
            _make_router(node_count, np.array([*distinct_strides, 0]), stride_indices), ROUTE_SET_COUNT
        ),
        hosts_forward=True,
        cost=compute_patch_panel_cost(node_count, len(reduced_strides), rate_gbps),
    )


def balance_strides(node_count: int, strides: Sequence[int], copy_counts: NDArray[np.float64]) -> Integers:
    """Return how often each distance 0..n-1 uses each stride, (layers, nodes, strides), with evenly loaded strides.

    Each layer is a set of shortest routes. Dynamic programming over the hops lists the shortest ways to each distance.
    Then each distance of each layer in turn takes the way that minimises the sum of squared loads, until nothing
    changes. A single layer cannot always load the strides evenly, but several layers together can. The result is the
    best of several random starts with a fixed seed.

    >>> balance_strides(12, (1, 5, 7, 11), np.ones(4)).sum(axis=(0, 1)).tolist()
    [20, 20, 20, 20]
    """
    paths_by_distance = _find_shortest_paths(node_count, strides) * ROUTE_SET_COUNT
    random = np.random.default_rng(0)
    best_uses, lowest_unevenness = np.zeros((len(paths_by_distance), len(strides)), np.int64), np.inf
    for _ in range(_RANDOM_START_COUNT if node_count <= _MAX_SMALL_NODES else 1):
        uses = np.stack([options[int(random.integers(len(options)))] for options in paths_by_distance])
        _balance_loads(
            uses, paths_by_distance, random.permutation(len(paths_by_distance)).tolist(), copy_counts
        )
        unevenness = float((uses.sum(axis=0) ** 2 / copy_counts).sum())
        if unevenness < lowest_unevenness:
            best_uses, lowest_unevenness = uses, unevenness
    return best_uses.reshape(ROUTE_SET_COUNT, node_count, len(strides))


def _balance_loads(
    uses: Integers, paths_by_distance: list[Integers], order: Sequence[int], copy_counts: NDArray[np.float64]
) -> None:
    """Change the chosen ways in place, one distance after another, until the loads do not become more even."""
    load = uses.sum(axis=0)
    for _ in range(_MAX_SWEEPS):
        previous_uses = uses.copy()
        for distance in order:
            other_load = load - uses[distance]
            unevenness = ((other_load + paths_by_distance[distance]) ** 2 / copy_counts).sum(axis=1)
            uses[distance] = paths_by_distance[distance][int(np.argmin(unevenness))]
            load = other_load + uses[distance]
        if (uses == previous_uses).all():
            return


def _find_shortest_paths(node_count: int, strides: Sequence[int]) -> list[Integers]:
    """Return up to `_MAX_TIES` shortest multisets of strides for each distance, an array (ways, strides) each.

    Raise `ValueError` if the strides do not reach every distance.
    """
    paths_by_distance: dict[int, set[tuple[int, ...]]] = {0: {(0,) * len(strides)}}
    frontier = [0]
    while frontier:
        reached_nodes: dict[int, set[tuple[int, ...]]] = {}
        for node in frontier:
            for index, stride in enumerate(strides):
                next_node = (node + stride) % node_count
                if next_node in paths_by_distance:
                    continue
                new_ways = reached_nodes.setdefault(next_node, set())
                for path in sorted(paths_by_distance[node])[: _MAX_TIES - len(new_ways)]:
                    new_ways.add((*path[:index], path[index] + 1, *path[index + 1 :]))
        paths_by_distance |= reached_nodes
        frontier = sorted(reached_nodes)
    if len(paths_by_distance) < node_count:
        raise ValueError(
            f"strides {tuple(strides)} reach {len(paths_by_distance)} of {node_count} nodes:"
            " their common factor is too large"
        )
    return [np.array(sorted(paths_by_distance[distance]), dtype=np.int64) for distance in range(node_count)]


def _list_strides(uses: Integers) -> Integers:
    """Return the indices of the strides of each route, (layers, nodes, diameter), padded with the number of strides."""
    set_count, node_count, stride_count = uses.shape
    padded_hops = np.full(
        (set_count, node_count, int(uses.sum(axis=2).max(initial=0))), stride_count, np.int64
    )
    for layer, distance in np.ndindex(set_count, node_count):
        hops = np.repeat(np.arange(stride_count), uses[layer, distance])
        padded_hops[layer, distance, : hops.size] = hops
    return padded_hops


def _make_router(node_count: int, padded_strides: Integers, stride_indices: Integers) -> Router:
    def route(sources: Integers, targets: Integers, choices: Integers) -> Integers:
        stride_index = stride_indices[choices % ROUTE_SET_COUNT, (targets - sources) % node_count]
        hops = padded_strides[stride_index]
        current_nodes = (sources[:, None] + np.cumsum(hops, axis=1) - hops) % node_count
        return np.where(hops > 0, stride_index * node_count + current_nodes, -1)

    return route
