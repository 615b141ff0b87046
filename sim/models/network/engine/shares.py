"""Max-min fair rates of the flows that move, worked out again only where a change reaches.

Each flow is limited by a full link on which nobody has more than it; rates are max-min fair exactly when that is so
(Bertsekas and Gallager, Data Networks, 6.5.2). A flow that comes or goes changes its links, hence the flows that these
limit, hence all links of those flows, and so on: these flows are free, all others keep their rates while the free ones
are filled in (`filling`). Should a link get so full that a flow which kept its rate has more there than the free ones,
that flow is freed too, and it is filled again. What is not touched stays as fair as it was. A rate that stays
leaves its flow alone, so that equal flows end at equal times.

This is to be compiled; `shares_numpy` does the same without, all flows at every change.
"""

from __future__ import annotations

import numpy as np

from lightbed.compiled import compiled
from sim.models.network.engine.ends import end_s
from sim.models.network.engine.filling import fill
from sim.models.network.engine.program import (
    DIRTY,
    FLOWS,
    FREE,
    FREE_SEEN,
    JOINED,
    SHARES,
    STAMP,
    TOUCHED,
    TOUCHED_SEEN,
    Floats,
    Integers,
    Neighbours,
    State,
)

SAME = 1e-12
"""Rates that differ by less count as equal: what sums of floats may err."""


@compiled
def join(state: State, near: Neighbours, begin: int) -> None:
    """Note that the flows from place `begin` on are new."""
    flows, first, links, size = state.flows, near.first, near.links, near.size
    start, count, on_link, on_entry, place_of = (
        near.start,
        near.on_count,
        near.on_link,
        near.on_entry,
        near.place,
    )
    number, dirty, mark = state.number, state.dirty, state.dirty_mark
    for place in range(begin, number[FLOWS]):
        message = flows[place]
        for entry in range(first[message], first[message + 1]):
            link = links[entry]
            at = start[link] + count[link]
            on_link[at], on_entry[at], place_of[entry] = message, entry, at
            count[link] += 1
            _touch(number, dirty, mark, link)
        near.limit[message] = -1
        if first[message] < first[message + 1]:
            near.joined[size[JOINED]] = message
            size[JOINED] += 1


@compiled
def leave(state: State, near: Neighbours, end: int) -> None:
    """Note that the flows behind those that move, up to place `end`, have ended."""
    flows, first, links, rate = state.flows, near.first, near.links, state.flow_rate
    start, count, on_link, on_entry, place_of = (
        near.start,
        near.on_count,
        near.on_link,
        near.on_entry,
        near.place,
    )
    number, dirty, mark = state.number, state.dirty, state.dirty_mark
    for place in range(number[FLOWS], end):
        message = flows[place]
        near.limit[message] = -1
        for entry in range(first[message], first[message + 1]):
            link, at = links[entry], place_of[entry]
            count[link] -= 1
            last = start[link] + count[link]
            on_link[at], on_entry[at] = on_link[last], on_entry[last]
            place_of[on_entry[at]] = at
            near.carried[link] -= rate[message]
            _touch(number, dirty, mark, link)


@compiled
def _touch(number: Integers, dirty: Integers, mark: Integers, link: int) -> None:
    """Note that the flows of a link have changed."""
    if mark[link] == 0:
        mark[link] = 1
        dirty[number[DIRTY]] = link
        number[DIRTY] += 1


@compiled
def share(state: State, near: Neighbours, capacity: Floats) -> None:
    """Give the flows that a change reaches their fair rates, and work out when they end."""
    state.number[STAMP] += 1
    state.number[SHARES] += 1
    stamp, size = state.number[STAMP], near.size
    _begin_with_changes(state, near, stamp)
    while True:
        _reach(near, state.flow_rate, stamp)
        fill(near, capacity)
        _free_those_with_more(near, state.flow_rate, stamp)
        if size[FREE] == size[FREE_SEEN]:
            break
    _keep_levels(near, capacity)
    _set_rates(state, near)


@compiled
def _begin_with_changes(state: State, near: Neighbours, stamp: int) -> None:
    """Touch the links that changed, and free the flows that joined."""
    number, size = state.number, near.size
    for place in range(number[DIRTY]):
        link = state.dirty[place]
        state.dirty_mark[link] = 0
        near.touch_mark[link] = stamp
        near.touched[place] = link
    for place in range(size[JOINED]):
        message = near.joined[place]
        near.free_mark[message] = stamp
        near.free[place] = message
    size[TOUCHED], size[FREE] = number[DIRTY], size[JOINED]
    number[DIRTY] = size[JOINED] = size[FREE_SEEN] = size[TOUCHED_SEEN] = 0


@compiled
def _reach(near: Neighbours, rate: Floats, stamp: int) -> None:
    """Free the flows that a touched link limits, and touch the links of free flows, until there are no more."""
    first, links, start, level = near.first, near.links, near.start, near.level
    held, held_count, limit, free, touched = near.held, near.held_count, near.limit, near.free, near.touched
    free_mark, touch_mark, size, share = near.free_mark, near.touch_mark, near.size, near.share
    free_on, free_count, carried = near.free_on, near.free_count, near.carried
    flows, reached, flow_place, link_place = size[FREE], size[TOUCHED], size[FREE_SEEN], size[TOUCHED_SEEN]
    while link_place < reached or flow_place < flows:
        for place in range(link_place, reached):
            link = touched[place]
            if level[link] == np.inf:
                continue
            for at in range(start[link], start[link] + held_count[link]):
                message = held[at]
                if limit[message] == link and free_mark[message] != stamp:
                    free_mark[message] = stamp
                    free[flows] = message
                    flows += 1
        link_place = reached
        for place in range(flow_place, flows):
            message = free[place]
            share[message] = -1.0
            for entry in range(first[message], first[message + 1]):
                link = links[entry]
                carried[link] -= rate[message]
                free_on[start[link] + free_count[link]] = message
                free_count[link] += 1
                if touch_mark[link] != stamp:
                    touch_mark[link] = stamp
                    touched[reached] = link
                    reached += 1
        flow_place = flows
    size[FREE] = size[FREE_SEEN] = flows
    size[TOUCHED] = size[TOUCHED_SEEN] = reached


@compiled
def _free_those_with_more(near: Neighbours, rate: Floats, stamp: int) -> None:
    """Free the flows that kept their rate, but have more than the free ones on a link that is full now, become free."""
    start, count, on_link, free_mark, free = (
        near.start,
        near.on_count,
        near.on_link,
        near.free_mark,
        near.free,
    )
    flows = near.size[FREE]
    for place in range(near.size[TOUCHED]):
        link = near.touched[place]
        full_at = near.full_at[link]
        if full_at >= near.level[link] * (1 - SAME) or near.free_count[link] == count[link]:
            continue
        for at in range(start[link], start[link] + count[link]):
            message = on_link[at]
            if rate[message] > full_at * (1 + SAME) and free_mark[message] != stamp:
                free_mark[message] = stamp
                free[flows] = message
                flows += 1
    if flows > near.size[FREE]:
        near.share[free[: near.size[FREE]]] = -1.0
    near.size[FREE] = flows


@compiled
def _keep_levels(near: Neighbours, capacity: Floats) -> None:
    """Keep the levels of links, with which the next change begins."""
    level, carried, full_at, room = near.level, near.carried, near.full_at, near.room
    for link in near.touched[: near.size[TOUCHED]]:
        level[link] = full_at[link]
        carried[link] = capacity[link] - room[link]
        near.free_count[link] = 0


@compiled
def _set_rates(state: State, near: Neighbours) -> None:
    """Set the new rates of the free flows from now on."""
    rate, left, since_s, until_s = state.flow_rate, state.flow_left, state.flow_since_s, state.flow_until_s
    place_of, begin_s, rounding, now = state.flow_place, state.flow_begin_s, state.rounding[0], state.clock[0]
    shares = near.share
    for message in near.free[: near.size[FREE]]:
        new = shares[message]
        if new != rate[message]:
            left[message] = max(left[message] - rate[message] * (now - since_s[message]), 0.0)
            since_s[message] = now
            rate[message] = new
            end = end_s(now, left[message], new, begin_s[message], rounding)
            until_s[place_of[message]] = end
