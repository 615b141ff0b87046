"""Max-min fair rates of the flows that move, worked out anew only where something changed.

Water filling (Bertsekas and Gallager, Data Networks, 6.5.2): the level of all rates rises until a link is full; its
flows stop there; the others rise on. Flows that are joined by no chain of shared links do not concern each other, so
each *part* of flows and links that hang together is filled by itself, and only parts with a changed link are. Links
that are full within one part in 10^9 of the level count as full together. A rate that stays leaves its flow alone, so
that equal flows end at equal times. This is to be compiled; `shares_numpy` does the same without.

Arrays are taken out of their tuples before loops: compiled code counts references at each access to a tuple.
"""

from __future__ import annotations

import math

import numpy as np

from sim.models.network.compiled import compiled
from sim.models.network.program import (
    DIRTY,
    FLOWS,
    SHARES,
    STAMP,
    Floats,
    Integers,
    Neighbours,
    State,
)

TOGETHER = 1 + 1e-9


@compiled
def join(state: State, near: Neighbours, begin: int) -> None:
    """The flows from place `begin` on are new."""
    flows, first, links = state.flows, near.first, near.links
    later, earlier, top, count = near.entry_next, near.entry_before, near.link_entry, near.link_count
    number, dirty, mark = state.number, state.dirty, state.dirty_mark
    for place in range(begin, number[FLOWS]):
        message = flows[place]
        for entry in range(first[message], first[message + 1]):
            link = links[entry]
            following = top[link]
            later[entry], earlier[entry] = following, -1
            if following >= 0:
                earlier[following] = entry
            top[link] = entry
            count[link] += 1
            touch(number, dirty, mark, link)


@compiled
def leave(state: State, near: Neighbours, end: int) -> None:
    """The flows behind those that move, up to place `end`, have ended."""
    flows, first, links = state.flows, near.first, near.links
    later, earlier, top, count = near.entry_next, near.entry_before, near.link_entry, near.link_count
    number, dirty, mark = state.number, state.dirty, state.dirty_mark
    for place in range(number[FLOWS], end):
        message = flows[place]
        for entry in range(first[message], first[message + 1]):
            link, before, following = links[entry], earlier[entry], later[entry]
            if before >= 0:
                later[before] = following
            else:
                top[link] = following
            if following >= 0:
                earlier[following] = before
            count[link] -= 1
            touch(number, dirty, mark, link)


@compiled
def touch(number: Integers, dirty: Integers, mark: Integers, link: int) -> None:
    """The flows of a link have changed."""
    if mark[link] == 0:
        mark[link] = 1
        dirty[number[DIRTY]] = link
        number[DIRTY] += 1


@compiled
def share(state: State, near: Neighbours, capacity: Floats) -> None:
    """Give the flows near changed links their fair rates, and work out when they end."""
    number, dirty, dirty_mark, now = state.number, state.dirty, state.dirty_mark, state.clock[0]
    first, route_links, top, later = near.first, near.links, near.link_entry, near.entry_next
    message_of, count, rising, room = near.entry_message, near.link_count, near.link_rising, near.link_room
    links, flows, link_mark, flow_mark = near.part_links, near.part_flows, near.link_mark, near.flow_mark
    shares, levels = near.flow_share, near.part_levels
    number[STAMP] += 1
    number[SHARES] += 1
    for place in range(number[DIRTY]):
        link = dirty[place]
        dirty_mark[link] = 0
        if link_mark[link] == number[STAMP] or count[link] == 0:
            continue
        links[0] = link
        number_links, number_flows = _part_of(
            first, route_links, top, later, message_of, links, flows, link_mark, flow_mark, number[STAMP]
        )
        part_links, part_flows = links[:number_links], flows[:number_flows]
        for index in range(number_links):
            room[links[index]] = capacity[links[index]]
            rising[links[index]] = count[links[index]]
        for index in range(number_flows):
            shares[flows[index]] = -1.0
        _fill(first, route_links, top, later, message_of, part_links, levels, rising, room, shares)
        _set_rates(part_flows, shares, state, now)
    number[DIRTY] = 0


@compiled
def _part_of(
    first: Integers,
    route_links: Integers,
    top: Integers,
    later: Integers,
    message_of: Integers,
    links: Integers,
    flows: Integers,
    link_mark: Integers,
    flow_mark: Integers,
    stamp: int,
) -> tuple[int, int]:
    """Links and flows that hang together with `links[0]`: how many were written to `links` and `flows`."""
    link_mark[links[0]] = stamp
    number_links, number_flows, place = 1, 0, 0
    while place < number_links:
        entry = top[links[place]]
        place += 1
        while entry >= 0:
            message = message_of[entry]
            entry = later[entry]
            if flow_mark[message] == stamp:
                continue
            flow_mark[message] = stamp
            flows[number_flows] = message
            number_flows += 1
            for other in range(first[message], first[message + 1]):
                link = route_links[other]
                if link_mark[link] != stamp:
                    link_mark[link] = stamp
                    links[number_links] = link
                    number_links += 1
    return number_links, number_flows


@compiled
def _fill(
    first: Integers,
    route_links: Integers,
    top: Integers,
    later: Integers,
    message_of: Integers,
    links: Integers,
    levels: Floats,
    rising: Integers,
    room: Floats,
    shares: Floats,
) -> None:
    """Water filling of one part; flows that still rise have a share of -1, `rising` of them are on a link.

    `links` is made a heap by `levels`, at which each would be full. A level that others have raised since is found
    out when it comes first: levels only rise.
    """
    for place in range(links.size):
        levels[place] = room[links[place]] / rising[links[place]]
    for place in range(links.size // 2 - 1, -1, -1):
        _sink(links, levels, place, links.size)
    size, level = links.size, -1.0
    while size:
        link = links[0]
        if rising[link] and room[link] > level * TOGETHER * rising[link]:
            if room[link] > levels[0] * TOGETHER * rising[link]:
                levels[0] = room[link] / rising[link]
                _sink(links, levels, 0, size)
                continue
            level = room[link] / rising[link]
        if rising[link]:
            _stop_on(link, first, route_links, top, later, message_of, rising, room, shares, level)
        size -= 1
        links[0], levels[0] = links[size], levels[size]
        _sink(links, levels, 0, size)


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
def _stop_on(
    link: int,
    first: Integers,
    route_links: Integers,
    top: Integers,
    later: Integers,
    message_of: Integers,
    rising: Integers,
    room: Floats,
    shares: Floats,
    level: float,
) -> None:
    """The flows of a full link that still rise stop at a level."""
    entry = top[link]
    while entry >= 0:
        message = message_of[entry]
        entry = later[entry]
        if shares[message] >= 0:
            continue
        shares[message] = level
        for other in range(first[message], first[message + 1]):
            rising[route_links[other]] -= 1
            room[route_links[other]] = max(room[route_links[other]] - level, 0.0)


@compiled
def _set_rates(messages: Integers, shares: Floats, state: State, now: float) -> None:
    """Flows go on at other rates from now."""
    rate, left, since_s, until_s = state.flow_rate, state.flow_left, state.flow_since_s, state.flow_until_s
    begin_s, rounding = state.flow_begin_s, state.rounding[0]
    for message in messages:
        new = shares[message]
        if new != rate[message]:
            left[message] = max(left[message] - rate[message] * (now - since_s[message]), 0.0)
            since_s[message] = now
            rate[message] = new
            until_s[message] = now + left[message] / new if new > 0 else np.inf
            if rounding > 0 and new > 0:
                until_s[message] = rounded_end_s(begin_s[message], until_s[message], rounding)


@compiled
def rounded_end_s(begin_s: float, end_s: float, rounding: float) -> float:
    """The end of a flow, put off to a multiple of the largest power of two within `rounding` of its duration.

    Flows of like durations so end together, and rates are worked out once for all of them.
    """
    if end_s <= begin_s:
        return end_s
    _, exponent = math.frexp((end_s - begin_s) * rounding)
    step_s = math.ldexp(1.0, exponent - 1)
    return math.ceil(end_s / step_s) * step_s


@compiled
def next_end_s(flows: Integers, until_s: Floats) -> float:
    """When the first flow ends; infinity when none moves."""
    soonest = np.inf
    for message in flows:
        soonest = min(soonest, until_s[message])
    return soonest
