"""Water filling of some flows while all others keep their rates: the level of all rises until a link is full.

The flows of a full link stop there, the others rise on (Bertsekas and Gallager, Data Networks, 6.5.2). Links that are
full within one part in 10^9 of the level count as full together.

Arrays are taken out of their tuples before loops: compiled code counts references at each access to a tuple.
"""

from __future__ import annotations

import numpy as np

from lightbed.compiled import compiled
from sim.models.network.engine.program import TOUCHED, Floats, Integers, Neighbours

TOGETHER = 1 + 1e-9


@compiled
def fill(near: Neighbours, capacity: Floats) -> None:
    """Work out the shares of the free flows, the link that limits each, and the level of each link they touch.

    The heap is of these links, by the level at which each would be full. A level that others have raised since is
    found out when it comes first: levels only rise.
    """
    _empty(near, capacity)
    first, links, room, rising, free_on = near.first, near.links, near.room, near.rising, near.free_on
    start, free_count, held, held_count = near.start, near.free_count, near.held, near.held_count
    heap, levels, share, limit, full_at = near.heap, near.heap_level, near.share, near.limit, near.full_at
    size, level = near.size[TOUCHED], -1.0
    for place in range(size // 2 - 1, -1, -1):
        _sink(heap, levels, place, size)
    while size:
        link = heap[0]
        if rising[link] and room[link] > level * TOGETHER * rising[link]:
            if room[link] > levels[0] * TOGETHER * rising[link]:
                levels[0] = room[link] / rising[link]
                _sink(heap, levels, 0, size)
                continue
            level = room[link] / rising[link]
        if rising[link]:
            full_at[link] = level
            held_count[link] = _stop(
                link,
                level,
                start[link],
                free_count[link],
                free_on,
                held,
                first,
                links,
                share,
                limit,
                rising,
                room,
            )
        size -= 1
        heap[0], levels[0] = heap[size], levels[size]
        _sink(heap, levels, 0, size)


@compiled
def _empty(near: Neighbours, capacity: Floats) -> None:
    """Set the links to what they are without the free flows, which are about to rise."""
    touched, room, rising, heap, levels = near.touched, near.room, near.rising, near.heap, near.heap_level
    count, free_count, carried = near.on_count, near.free_count, near.carried
    for place in range(near.size[TOUCHED]):
        link = touched[place]
        rising[link] = free_count[link]
        # a link whose flows are all free carries nothing: errors of sums end here
        room[link] = (
            capacity[link] if rising[link] == count[link] else max(capacity[link] - carried[link], 0.0)
        )
        near.held_count[link], near.full_at[link] = 0, np.inf
        heap[place] = link
        levels[place] = room[link] / rising[link] if rising[link] else np.inf


@compiled
def _sink(links: Integers, levels: Floats, place: int, size: int) -> None:
    """Move an entry of a heap down to where it belongs, the least level first."""
    link, level = links[place], levels[place]
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and levels[child + 1] < levels[child]:
            child += 1
        if levels[child] >= level:
            break
        links[place], levels[place] = links[child], levels[child]
        place = child
    links[place], levels[place] = link, level


@compiled
def _stop(
    link: int,
    level: float,
    begin: int,
    count: int,
    free_on: Integers,
    held: Integers,
    first: Integers,
    links: Integers,
    share: Floats,
    limit: Integers,
    rising: Integers,
    room: Floats,
) -> int:
    """Those free flows of a full link that still rise stop at a level; returns how many, they are noted as held."""
    number = begin
    for place in range(begin, begin + count):
        message = free_on[place]
        if share[message] >= 0:
            continue
        share[message] = level
        limit[message] = link
        held[number] = message
        number += 1
        for entry in range(first[message], first[message + 1]):
            rising[links[entry]] -= 1
            room[links[entry]] = max(room[links[entry]] - level, 0.0)
    return number - begin
