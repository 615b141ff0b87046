"""Inner loops of routing: plain functions over arrays, compiled where numba is installed.

A link is numbered v * width + k: the k-th link of node v.
"""

from __future__ import annotations

from typing import Any

from lightbed.compiled import compiled


@compiled
def choose_links(slots: Any, hops: Any, choice: Any, ways: Any, nearer: Any) -> None:
    """Fill `choice[v, t]` with a link of v on a shortest way to t; among several, v + t says which.

    `ways` (a count for each t) and `nearer[t]` (a bit for each link of v that leads nearer to t) are room to work in.
    """
    nodes, width = slots.shape
    for node in range(nodes):
        for target in range(nodes):
            ways[target] = 0
            nearer[target] = 0
        for slot in range(width):
            onward = slots[node, slot]
            if onward >= 0:
                for target in range(nodes):
                    leads = hops[onward, target] < hops[node, target]
                    ways[target] += leads
                    nearer[target] |= leads << slot
        for target in range(nodes):
            if target != node:
                choice[node, target] = _bit(nearer[target], (node + target) % ways[target])


@compiled
def _bit(bits: int, number: int) -> int:
    """Return the place of the `number`-th one among bits, from the lowest."""
    place = 0
    while True:
        if bits & 1:
            if number == 0:
                return place
            number -= 1
        bits >>= 1
        place += 1


@compiled
def shortest_paths(
    slots: Any, hops: Any, source: Any, target: Any, most: int, longer: int, paths: Any, found: Any
) -> None:
    """Fill `paths[pair, i]` with the links of the i-th path of each pair, -1 after the last, shortest first.

    All paths of the least length are tried, then all one longer, and so on: a walk that still reaches
    its target in the length allowed goes on, so no step is wasted but those that would visit a node twice.
    """
    width = slots.shape[1]
    nodes_at = [0] * (paths.shape[2] + 1)
    next_slot = [0] * (paths.shape[2] + 1)
    for pair in range(len(source)):
        least = hops[source[pair], target[pair]]
        turn = source[pair] + target[pair]
        for length in range(least, least + longer + 1):
            depth = 0
            nodes_at[0] = source[pair]
            next_slot[0] = 0
            while depth >= 0 and found[pair] < most:
                if depth == length or next_slot[depth] == width:
                    depth -= 1
                    continue
                slot = (next_slot[depth] + turn) % width
                next_slot[depth] += 1
                onward = slots[nodes_at[depth], slot]
                if onward < 0 or hops[onward, target[pair]] > length - depth - 1:
                    continue
                if onward in nodes_at[: depth + 1]:
                    continue
                if onward == target[pair] and depth + 1 < length:
                    continue
                paths[pair, found[pair], depth] = nodes_at[depth] * width + slot
                nodes_at[depth + 1] = onward
                next_slot[depth + 1] = 0
                depth += 1
                if depth == length:
                    found[pair] += 1
                    if found[pair] < most:
                        for before in range(depth - 1):
                            paths[pair, found[pair], before] = paths[pair, found[pair] - 1, before]


@compiled
def spread(
    paths: Any, found: Any, order: Any, size: Any, load: Any, parts: int, rounds: int, count: Any
) -> None:
    """Lay each pair's bytes on its paths in equal parts; `count[pair, i]` parts take path i.

    Each part takes the path whose links it makes least unequal (the sum of eighth powers of loads), and
    in later rounds every pair is taken up and laid again on the load of all others.
    """
    for turn in range(rounds):
        for pair in order:
            part = size[pair] / parts
            if turn > 0:
                for way in range(found[pair]):
                    _lay(paths[pair, way], load, -part * count[pair, way])
                    count[pair, way] = 0
            for _ in range(parts):
                best = 0
                least = -1.0
                for way in range(found[pair]):
                    cost = 0.0
                    for link in paths[pair, way]:
                        if link < 0:
                            break
                        cost += (load[link] + part) ** 8 - load[link] ** 8
                    if least < 0 or cost < least:
                        best, least = way, cost
                count[pair, best] += 1
                _lay(paths[pair, best], load, part)


@compiled
def _lay(path: Any, load: Any, amount: float) -> None:
    for link in path:
        if link < 0:
            break
        load[link] += amount
