"""Routes over any wiring: shortest, destination-based, balanced over links, the same each time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from testbed.design.model import Link, RingOrder, Routes, Wiring
from testbed.design.topology.hops import hop_table
from testbed.errors import TopologyError

#: Times every destination's tree is taken out and laid again on the load of all others. After four
#: rounds the fullest link of a circulant of up to 40 nodes carries at most a fifth more than the mean.
_ROUNDS = 4
#: From so many nodes on compiling pays; below it the compiler would take longer than the routes.
_COMPILED_NODES = 150

Path = tuple[Link, ...]


def find_routes(wiring: Wiring) -> Routes:
    """Return shortest routes between all nodes, forwarded by destination.

    The first links towards each destination form a tree into it, so there are no loops, and a direct
    link is always taken. Among equally short ways (and parallel links) the one is taken whose links
    carry fewest pairs already. Raises `TopologyError` naming a pair that has no path.
    """
    links = sorted(wiring.links)
    order, onward = _onward(wiring.nodes, links)
    return Routes(
        {
            (node, target): links[onward[target * wiring.nodes + node]]
            for target, nodes in enumerate(order)
            for node in nodes[1:]
        }
    )


def ring_links(
    wiring: Wiring, order: RingOrder, routes: Routes | None = None, *, copy: int = 0
) -> tuple[tuple[Link, ...], ...]:
    """Return the links data takes from each position of a ring to the next, the last to the first included.

    A direct link is taken where there is one; of parallel links the `copy`-th (rings that repeat
    a stride take different copies). Otherwise data takes the routes (`find_routes` when not given).
    Raises `TopologyError` when two neighbours of the ring have no path.
    """
    direct: dict[tuple[int, int], list[Link]] = defaultdict(list)
    for link in sorted(wiring.links):
        direct[link.source.node, link.target.node].append(link)
    paths: list[Path] = []
    for source, target in zip(order.order, order.order[1:] + order.order[:1], strict=True):
        parallel = direct.get((source, target))
        if parallel:
            paths.append((parallel[copy % len(parallel)],))
        else:
            routes = routes or find_routes(wiring)
            paths.append(routes.path(source, target))
    return tuple(paths)


def _onward(nodes: int, links: Sequence[Link]) -> tuple[list[list[int]], Sequence[int]]:
    """Return for each target the nodes, nearest first, then upwards from it; and the links taken, see `lay_trees`."""
    edges = [(link.source.node, link.target.node) for link in links]
    hops = hop_table(nodes, edges).T.astype(np.int64)
    if hops.size and hops.min() < 0:
        target, node = np.argwhere(hops < 0)[0]
        raise TopologyError(
            f"node {node} has no path to node {target}: the wiring is not connected; "
            f"add links between its parts"
        )
    around = (np.arange(nodes) - np.arange(nodes)[:, np.newaxis]) % nodes
    order = np.argsort(hops * nodes + around, axis=1)
    table = np.array(edges, dtype=np.int64).reshape(-1, 2)
    first = np.searchsorted(table[:, 0], np.arange(nodes + 1))
    room = np.zeros(len(links), dtype=np.int64), np.full(nodes**2, -1, dtype=np.int64)
    columns = [first, table[:, 1].copy(), order.reshape(-1), hops.reshape(-1), *room]
    if nodes >= _COMPILED_NODES:
        _compile_trees()(nodes, _ROUNDS, *columns)
        return order.tolist(), columns[-1].tolist()
    lists = [column.tolist() for column in columns]
    lay_trees(nodes, _ROUNDS, *lists)
    return order.tolist(), lists[-1]


@cache
def _compile_trees() -> Callable[..., None]:
    from lightbed.compiled import compile_function

    return compile_function(lay_trees)


def lay_trees(
    nodes: int, rounds: int, first: Any, head: Any, order: Any, hops: Any, load: Any, onward: Any
) -> None:
    """Fill `onward[t * n + v]` with the link on which node v sends towards t, and `load` with the pairs on each link.

    The links of node v are `first[v]` to `first[v + 1]`, link l leads to `head[l]`. Row t of `order` holds the nodes
    as they choose, t itself first; row t of `hops` their distances. A node takes the link from which the squares of
    the loads sum to least as far as t, the first of equals; all pairs to t are taken out before they are laid again.
    """
    for turn in range(rounds):
        for target in range(nodes):
            row = target * nodes
            for place in range(1, nodes if turn else 0):
                at = order[row + place]
                while at != target:
                    load[onward[row + at]] -= 1
                    at = head[onward[row + at]]
            for place in range(1, nodes):
                node = order[row + place]
                best, least = -1, 0
                for link in range(first[node], first[node + 1]):
                    at, cost = head[link], load[link] * load[link]
                    if hops[row + at] != hops[row + node] - 1:
                        continue
                    while at != target:
                        cost += load[onward[row + at]] * load[onward[row + at]]
                        at = head[onward[row + at]]
                    if best < 0 or cost < least:
                        best, least = link, cost
                onward[row + node] = best
                at = node
                while at != target:
                    load[onward[row + at]] += 1
                    at = head[onward[row + at]]
