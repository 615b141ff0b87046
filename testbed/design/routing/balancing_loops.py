"""Inner loops of `balancing`: priced trees, and weights of sets; compiled where numba is installed.

`onward[c, t, v]` is the link on which node v sends towards t in set c, `weight[c, s, t]` the part of what s sends
to t that takes set c. A link's price is a high power of its load over the fullest link's, so that the fullest links
decide; `doublings` is the logarithm of the power.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lightbed.compiled import compiled
from testbed.design.routing.priced_trees import grow_tree, lay

_HALVINGS = 8
_HOP = 0.01
"""Price of a link besides its load, in mean prices: of ways that are equally full the shorter one is taken."""


@compiled
def set_prices(load: Any, doublings: int, price: Any) -> float:
    """Fill `price`; return the sum."""
    top, total = load.max(), 0.0
    for link in range(load.size):
        price[link] = _price(load[link] / top, doublings)
        total += price[link]
    return total


@compiled
def _price(fullness: float, doublings: int) -> float:
    power = fullness
    for _ in range(doublings):
        power *= power
    return power / max(fullness, 1e-9)


@compiled
def _way_price(
    node: int, target: int, onward: Any, head: Any, load: Any, top: float, doublings: int
) -> float:
    total = 0.0
    while node != target:
        total += _price(load[onward[node]] / top, doublings)
        node = head[onward[node]]
    return total


@compiled
def _overshoots(
    source: int,
    target: int,
    old: Any,
    new: Any,
    head: Any,
    load: Any,
    top: float,
    doublings: int,
    moved: float,
) -> bool:
    """Return whether the new way is the dearer one once so much has moved there."""
    lay(source, target, old, head, load, -moved)
    lay(source, target, new, head, load, moved)
    before = _way_price(source, target, old, head, load, top, doublings)
    after = _way_price(source, target, new, head, load, top, doublings)
    lay(source, target, new, head, load, -moved)
    lay(source, target, old, head, load, moved)
    return after > before


@compiled
def _even_out_pair(
    source: int,
    target: int,
    size: float,
    onward: Any,
    weight: Any,
    head: Any,
    load: Any,
    top: float,
    doublings: int,
) -> None:
    """Move bytes of one pair from its dearest used set to its cheapest, until both cost alike."""
    best, worst, least, most = 0, -1, np.inf, -1.0
    for number in range(len(weight)):
        price = _way_price(source, target, onward[number, target], head, load, top, doublings)
        if price < least:
            least, best = price, number
        if weight[number, source, target] > 0 and price > most:
            most, worst = price, number
    if worst in (best, -1) or most <= least * (1 + 1e-6):
        return
    old, new = onward[worst, target], onward[best, target]
    low, high = 0.0, weight[worst, source, target]
    if _overshoots(source, target, old, new, head, load, top, doublings, high * size):
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if _overshoots(source, target, old, new, head, load, top, doublings, middle * size):
                high = middle
            else:
                low = middle
        high = low
    lay(source, target, old, head, load, -high * size)
    lay(source, target, new, head, load, high * size)
    weight[worst, source, target] -= high
    weight[best, source, target] += high


@compiled
def even_out(
    target: int,
    size: Any,
    onward: Any,
    weight: Any,
    head: Any,
    load: Any,
    top: float,
    doublings: int,
    sweeps: int,
) -> None:
    """Even out all pairs that send to a target."""
    for _ in range(sweeps):
        for source in range(size.shape[0]):
            if size[source, target] > 0:
                _even_out_pair(
                    source, target, size[source, target], onward, weight, head, load, top, doublings
                )


@compiled
def _unevenness(load: Any, top: float, doublings: int) -> float:
    total = 0.0
    for link in range(load.size):
        total += _price(load[link] / top, doublings) * load[link]
    return total


@compiled
def _replaced_set(turn: int, target: int, size: Any, weight: Any) -> int:
    """Return the set whose tree goes: the one that carries least, in each third round another. Never the first."""
    sets = weight.shape[0]
    if turn % 3 == 2:
        return int(1 + (turn // 3 + target) % (sets - 1))
    place, least = 1, np.inf
    for number in range(1, sets):
        carried = 0.0
        for source in range(size.shape[0]):
            carried += weight[number, source, target] * size[source, target]
        if carried < least:
            place, least = number, carried
    return place


@compiled
def _replace_tree(
    target: int,
    place: int,
    size: Any,
    onward: Any,
    weight: Any,
    head: Any,
    load: Any,
    tree: Any,
    top: float,
    doublings: int,
) -> None:
    """Put a tree in place of that of a set, with what it carries, and even out; undo it where that is worse."""
    before = _unevenness(load, top, doublings)
    old_load, old_weight, old_tree = load.copy(), weight[:, :, target].copy(), onward[place, target].copy()
    for source in range(size.shape[0]):
        carried = weight[place, source, target] * size[source, target]
        if carried > 0:
            lay(source, target, onward[place, target], head, load, -carried)
            lay(source, target, tree, head, load, carried)
    onward[place, target] = tree
    even_out(target, size, onward, weight, head, load, top, doublings, 3)
    if _unevenness(load, top, doublings) > before:
        load[:] = old_load
        weight[:, :, target] = old_weight
        onward[place, target] = old_tree


@compiled
def _is_known(tree: Any, trees: Any, target: int) -> bool:
    found = False
    for number in range(len(trees)):
        found = found or bool((trees[number, target] == tree).all())
    return found


@compiled
def improve(
    turn: int,
    order: Any,
    links: Any,
    size: Any,
    onward: Any,
    weight: Any,
    load: Any,
    room: Any,
    doublings: int,
) -> None:
    """Offer every target the tree that is cheapest now, once; the first set takes shortest ways only."""
    for target in order:
        top = load.max()
        total = set_prices(load, doublings, room.price)
        shortest = len(weight) == 1 or (turn + target) % 4 == 0
        room.price[:] += total if shortest else _HOP * total / load.size
        grow_tree(target, links, room.price, room.distance, room.tree, room.keys, room.nodes)
        if not _is_known(room.tree, onward, target):
            place = 0 if shortest else _replaced_set(turn, target, size, weight)
            _replace_tree(target, place, size, onward, weight, links.head, load, room.tree, top, doublings)
        even_out(target, size, onward, weight, links.head, load, top, doublings, 1)


@compiled
def begin(links: Any, size: Any, onward: Any, weight: Any, load: Any, room: Any) -> None:
    """Lay equal parts set by set; the first on shortest ways, the others on ways that avoid what is laid."""
    sets, nodes = weight.shape[0], size.shape[0]
    for number in range(sets):
        for target in range(nodes):
            top = load.max() + 1e-300
            room.price[:] = 1 + load / top / (nodes if number == 0 else 1)
            grow_tree(target, links, room.price, room.distance, onward[number, target], room.keys, room.nodes)
            for source in range(nodes):
                weight[number, source, target] = 1 / sets
                if source != target and size[source, target] > 0:
                    lay(source, target, onward[number, target], links.head, load, size[source, target] / sets)


@compiled
def priced_demand(links: Any, size: Any, room: Any, load: Any) -> float:
    """Return what all pairs pay on cheapest ways at the prices in the room; fill `load` with what links carry then."""
    paid = 0.0
    load[:] = 0.0
    for target in range(size.shape[0]):
        grow_tree(target, links, room.price, room.distance, room.tree, room.keys, room.nodes)
        for source in range(size.shape[0]):
            if size[source, target] > 0:
                paid += size[source, target] * room.distance[source]
                lay(source, target, room.tree, links.head, load, size[source, target])
    return paid


@compiled
def join_equal_ways(onward: Any, weight: Any, head: Any) -> None:
    """Give what a pair sends on the same way in several sets to the first of these."""
    sets, nodes = weight.shape[0], weight.shape[1]
    for number in range(1, sets):
        for target in range(nodes):
            for source in range(nodes):
                for earlier in range(number if weight[number, source, target] > 0 else 0):
                    node = source
                    while node != target and onward[earlier, target, node] == onward[number, target, node]:
                        node = head[onward[number, target, node]]
                    if node == target:
                        weight[earlier, source, target] += weight[number, source, target]
                        weight[number, source, target] = 0.0
                        break
