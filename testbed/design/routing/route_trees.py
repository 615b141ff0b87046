"""The inner loop of `routes.find_routes`, over flat lists (interpreted) or arrays (compiled, for many nodes)."""

from __future__ import annotations

from typing import Any


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
