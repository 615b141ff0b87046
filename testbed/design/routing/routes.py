"""Shortest routes over any wiring: destination-based, balanced over links, deterministic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from testbed.design.model import Link, RingOrder, Routes, Wiring
from testbed.design.topology.hops import make_hop_table
from testbed.errors import TopologyError

#: Number of rounds. Each round removes every destination's tree, and builds it again on the load of all others. After
#: four rounds, the fullest link of a circulant of up to 40 nodes carries at most 20 % more than the mean.
_BALANCING_ROUNDS = 4
#: With fewer nodes, compilation takes longer than it saves.
_MIN_NODES_TO_COMPILE = 150

Path = tuple[Link, ...]


def find_routes(wiring: Wiring) -> Routes:
    """Return shortest routes between all nodes, forwarded by destination.

    The first links towards each destination form a tree, so there are no loops. A direct link is always used. Among
    equally short paths (and parallel links), the one whose links carry fewest pairs is used.
    Raises `TopologyError` for a pair without a path.
    """
    links = sorted(wiring.links)
    order, next_edge = _choose_links(wiring.nodes, links)
    return Routes(
        {
            (node, target): links[next_edge[target * wiring.nodes + node]]
            for target, nodes in enumerate(order)
            for node in nodes[1:]
        }
    )


def list_ring_links(
    wiring: Wiring, order: RingOrder, routes: Routes | None = None, *, copy_index: int = 0
) -> tuple[tuple[Link, ...], ...]:
    """Return the links from each position of a ring to the next, including the last to the first.

    Neighbours with a direct link use it. Of parallel links they use number `copy_index`, so that rings with the same
    stride can use different links. Other neighbours use `routes` (default: `find_routes`). Raises `TopologyError` if
    two neighbours of the ring have no path.
    """
    links_by_hop: dict[tuple[int, int], list[Link]] = defaultdict(list)
    for link in sorted(wiring.links):
        links_by_hop[link.source.node, link.target.node].append(link)
    paths: list[Path] = []
    for source, target in zip(order.order, order.order[1:] + order.order[:1], strict=True):
        parallel_links = links_by_hop.get((source, target))
        if parallel_links:
            paths.append((parallel_links[copy_index % len(parallel_links)],))
        else:
            routes = routes or find_routes(wiring)
            paths.append(routes.path(source, target))
    return tuple(paths)


def _choose_links(nodes: int, links: Sequence[Link]) -> tuple[list[list[int]], Sequence[int]]:
    """Return, for each target, the nodes in the order in which they choose a link, and the links, see `route_trees`.

    The nearest nodes choose first; ties go to the next number after the target. Raises `TopologyError` for a pair
    without a path.
    """
    edges = [(link.source.node, link.target.node) for link in links]
    hops = make_hop_table(nodes, edges).T.astype(np.int64)
    if hops.size and hops.min() < 0:
        target, node = np.argwhere(hops < 0)[0]
        raise TopologyError(
            f"node {node} has no path to node {target}: the wiring is not connected; "
            f"add links between its parts"
        )
    offsets_from_target = (np.arange(nodes) - np.arange(nodes)[:, np.newaxis]) % nodes
    choosing_order = np.argsort(hops * nodes + offsets_from_target, axis=1)
    edge_table = np.array(edges, dtype=np.int64).reshape(-1, 2)
    first_links = np.searchsorted(edge_table[:, 0], np.arange(nodes + 1))
    workspace = np.zeros(len(links), dtype=np.int64), np.full(nodes**2, -1, dtype=np.int64)
    columns = [first_links, edge_table[:, 1].copy(), choosing_order.reshape(-1), hops.reshape(-1), *workspace]
    if nodes >= _MIN_NODES_TO_COMPILE:
        _compile_trees()(nodes, _BALANCING_ROUNDS, *columns)
        return choosing_order.tolist(), columns[-1].tolist()
    lists = [column.tolist() for column in columns]
    route_trees(nodes, _BALANCING_ROUNDS, *lists)
    return choosing_order.tolist(), lists[-1]


@cache
def _compile_trees() -> Callable[..., None]:
    from lightbed.compiled import compile_function

    return compile_function(route_trees)


def route_trees(
    nodes: int, round_count: int, first_link: Any, head: Any, order: Any, hops: Any, load: Any, next_edge: Any
) -> None:
    """Fill `next_edge[t * n + v]` with the link on which node v sends towards t, and `load` with the pairs per link.

    The links of node v are `first_link[v]` to `first_link[v + 1]`, and link l leads to `head[l]`. Row t of `order`
    holds the nodes in the order in which they choose, t itself first. Row t of `hops` holds their distances. For each
    target, the load of all pairs to it is removed first. Each node then takes the path with the least sum of squared
    loads.
    """
    for round_number in range(round_count):
        for target in range(nodes):
            row = target * nodes
            # The first round has no load to remove.
            for index in range(1, nodes if round_number else 0):
                current_node = order[row + index]
                while current_node != target:
                    load[next_edge[row + current_node]] -= 1
                    current_node = head[next_edge[row + current_node]]
            for index in range(1, nodes):
                node = order[row + index]
                best_link, lowest_cost = -1, 0
                for link in range(first_link[node], first_link[node + 1]):
                    current_node, cost = head[link], load[link] * load[link]
                    if hops[row + current_node] != hops[row + node] - 1:
                        continue
                    while current_node != target:
                        cost += load[next_edge[row + current_node]] * load[next_edge[row + current_node]]
                        current_node = head[next_edge[row + current_node]]
                    if best_link < 0 or cost < lowest_cost:
                        best_link, lowest_cost = link, cost
                next_edge[row + node] = best_link
                current_node = node
                while current_node != target:
                    load[next_edge[row + current_node]] += 1
                    current_node = head[next_edge[row + current_node]]
