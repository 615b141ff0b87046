"""Max-min fair rates of the moving flows, recomputed only for the flows that a change can affect.

Rates are max-min fair if and only if each flow crosses a full link on which no flow has a higher rate: its bottleneck
(Bertsekas and Gallager, Data Networks, 6.5.2). Flows on the same path have the same bottleneck and rate, so rates
belong to paths, and a path counts as many times as it has flows. A flow that begins or ends changes its links, hence
the paths that these limit, hence all links of those paths, and so on. These paths are free; all others keep their
rates while `fill_links` computes new rates for the free ones. If a path that kept its rate then has a higher rate than
the free paths on a full link, that path becomes free too, and `fill_links` runs again. Untouched paths stay fair. A
flow whose rate does not change is not updated, so that equal flows end at equal times.

Filling raises the level of all free flows until a link is full; the flows on this link stop at the level, and the
others continue to rise. Links that become full within one part in 10^9 of the level count as simultaneous.

This module is written for numba; `shares_numpy` replaces it without numba and recomputes all flows at every change.
Arrays are taken out of their tuples before loops, because compiled code counts references at each access to a tuple.
"""

from __future__ import annotations

import numpy as np

from lightbed.compiled import compile_function
from sim.models.network.engine.program import (
    DIRTY,
    FLOWS,
    FREE,
    FREE_VISITED,
    JOINED,
    SHARES,
    STAMP,
    TOUCHED,
    TOUCHED_VISITED,
    Floats,
    Indices,
    Integers,
    Neighbours,
    State,
)
from sim.models.network.engine.timers import compute_end_s

LEVEL_FACTOR = 1 + 1e-9
"""Links whose levels differ by less than this factor become full together."""
RATE_TOLERANCE = 1e-12
"""Rates that differ by less than this part count as equal, because sums of floats have rounding errors."""


@compile_function
def fill_links(neighbours: Neighbours, capacity: Floats) -> None:
    """Compute the shares of the free paths, the link that limits each, and the level of each touched link.

    A heap orders these links by the level at which each becomes full. An entry may be out of date, because flows
    that stop elsewhere raise the level; levels only rise, so it is enough to correct an entry when it comes first.
    """
    _prepare_heap(neighbours, capacity)
    first, links, room, rising, free_on = (
        neighbours.first_link,
        neighbours.links,
        neighbours.free_capacity,
        neighbours.rising_flow_count,
        neighbours.free_paths_on_link,
    )
    start, free_count, limited, limited_count = (
        neighbours.list_start,
        neighbours.free_count,
        neighbours.limited_paths,
        neighbours.limited_count,
    )
    heap, levels, share, limit, full_at = (
        neighbours.heap,
        neighbours.heap_level,
        neighbours.share,
        neighbours.limiting_link,
        neighbours.full_level,
    )
    size, level, flow_count = neighbours.counters[TOUCHED], -1.0, neighbours.flow_count
    for position in range(size // 2 - 1, -1, -1):
        _sift_down(heap, levels, position, size)
    while size:
        link = heap[0]
        if rising[link] and room[link] > level * LEVEL_FACTOR * rising[link]:
            if room[link] > levels[0] * LEVEL_FACTOR * rising[link]:
                levels[0] = room[link] / rising[link]
                _sift_down(heap, levels, 0, size)
                continue
            level = room[link] / rising[link]
        if rising[link]:
            full_at[link] = level
            limited_count[link] = _stop_paths(
                link,
                level,
                start[link],
                free_count[link],
                free_on,
                limited,
                flow_count,
                first,
                links,
                share,
                limit,
                rising,
                room,
            )
        size -= 1
        heap[0], levels[0] = heap[size], levels[size]
        _sift_down(heap, levels, 0, size)


@compile_function
def _prepare_heap(neighbours: Neighbours, capacity: Floats) -> None:
    """Set the room of the touched links without the free flows, and fill the heap."""
    touched, room, rising, heap, levels = (
        neighbours.touched_links,
        neighbours.free_capacity,
        neighbours.rising_flow_count,
        neighbours.heap,
        neighbours.heap_level,
    )
    count, free_count, carried, free_flows = (
        neighbours.path_count_on_link,
        neighbours.free_count,
        neighbours.carried_rate,
        neighbours.free_flow_count,
    )
    for position in range(neighbours.counters[TOUCHED]):
        link = touched[position]
        rising[link] = free_flows[link]
        # If all flows of a link are free, its room is its capacity: rounding errors of `carried` do not accumulate.
        room[link] = (
            capacity[link] if free_count[link] == count[link] else max(capacity[link] - carried[link], 0.0)
        )
        neighbours.limited_count[link], neighbours.full_level[link] = 0, np.inf
        heap[position] = link
        levels[position] = room[link] / rising[link] if rising[link] else np.inf


@compile_function
def _sift_down(links: Integers, levels: Floats, position: int, size: int) -> None:
    """Move an entry of the heap down to its position; the least level comes first."""
    link, level = links[position], levels[position]
    while 2 * position + 1 < size:
        child = 2 * position + 1
        if child + 1 < size and levels[child + 1] < levels[child]:
            child += 1
        if levels[child] >= level:
            break
        links[position], levels[position] = links[child], levels[child]
        position = child
    links[position], levels[position] = link, level


@compile_function
def _stop_paths(
    link: int,
    level: float,
    begin: int,
    count: int,
    free_on: Indices,
    limited: Indices,
    flow_count: Integers,
    first: Integers,
    links: Indices,
    share: Floats,
    limit: Integers,
    rising: Integers,
    room: Floats,
) -> int:
    """At `level`, stop the free paths of a full link that still rise; list them as limited, and return their number."""
    number = begin
    for position in range(begin, begin + count):
        path = free_on[position]
        if share[path] >= 0:
            continue
        share[path] = level
        limit[path] = link
        limited[number] = path
        number += 1
        flows = flow_count[path]
        for entry in range(first[path], first[path + 1]):
            rising[links[entry]] -= flows
            room[links[entry]] = max(room[links[entry]] - flows * level, 0.0)
    return number - begin


@compile_function
def add_flows(state: State, neighbours: Neighbours, begin: int) -> None:
    """Add the new flows, from index `begin` on."""
    flows, first, links, size = (
        state.flow_messages,
        neighbours.first_link,
        neighbours.links,
        neighbours.counters,
    )
    start, count, on_link, on_entry, position_of = (
        neighbours.list_start,
        neighbours.path_count_on_link,
        neighbours.paths_on_link,
        neighbours.entries_on_link,
        neighbours.position_on_link,
    )
    path_of, flow_count, head, following, preceding = (
        neighbours.path_of_message,
        neighbours.flow_count,
        neighbours.first_flow,
        neighbours.next_flow,
        neighbours.previous_flow,
    )
    counters, dirty, mark, on_flows = (
        state.counters,
        state.dirty_links,
        state.dirty_mark,
        neighbours.flow_count_on_link,
    )
    for position in range(begin, counters[FLOWS]):
        message = flows[position]
        path = path_of[message]
        following[message], preceding[message] = head[path], -1
        if head[path] >= 0:
            preceding[head[path]] = message
        head[path] = message
        flow_count[path] += 1
        is_first = flow_count[path] == 1
        for entry in range(first[path], first[path + 1]):
            link = links[entry]
            on_flows[link] += 1
            if is_first:
                slot = start[link] + count[link]
                on_link[slot], on_entry[slot], position_of[entry] = path, entry, slot
                count[link] += 1
            _mark_dirty(counters, dirty, mark, link)
        if is_first:
            neighbours.limiting_link[path] = -1
        if first[path] < first[path + 1] and neighbours.joined_mark[path] == 0:
            neighbours.joined_mark[path] = 1
            neighbours.joined_paths[size[JOINED]] = path
            size[JOINED] += 1


@compile_function
def remove_flows(state: State, neighbours: Neighbours, end: int) -> None:
    """Remove the flows that have ended. In `flow_messages` they follow the moving flows, up to `end`."""
    flows, first, links, rate = state.flow_messages, neighbours.first_link, neighbours.links, state.flow_rate
    start, count, on_link, on_entry, position_of = (
        neighbours.list_start,
        neighbours.path_count_on_link,
        neighbours.paths_on_link,
        neighbours.entries_on_link,
        neighbours.position_on_link,
    )
    path_of, flow_count, head, following, preceding = (
        neighbours.path_of_message,
        neighbours.flow_count,
        neighbours.first_flow,
        neighbours.next_flow,
        neighbours.previous_flow,
    )
    counters, dirty, mark, on_flows = (
        state.counters,
        state.dirty_links,
        state.dirty_mark,
        neighbours.flow_count_on_link,
    )
    carried = neighbours.carried_rate
    for position in range(counters[FLOWS], end):
        message = flows[position]
        path = path_of[message]
        if preceding[message] >= 0:
            following[preceding[message]] = following[message]
        else:
            head[path] = following[message]
        if following[message] >= 0:
            preceding[following[message]] = preceding[message]
        flow_count[path] -= 1
        neighbours.load[path] -= rate[message]
        is_last, lost_rate = flow_count[path] == 0, rate[message]
        if is_last:
            neighbours.limiting_link[path], neighbours.rate[path], neighbours.load[path] = -1, 0.0, 0.0
        for entry in range(first[path], first[path + 1]):
            link = links[entry]
            on_flows[link] -= 1
            if is_last:
                slot = position_of[entry]
                count[link] -= 1
                last_position = start[link] + count[link]
                on_link[slot], on_entry[slot] = on_link[last_position], on_entry[last_position]
                position_of[on_entry[slot]] = slot
            carried[link] -= lost_rate
            _mark_dirty(counters, dirty, mark, link)


@compile_function
def _mark_dirty(counters: Integers, dirty: Integers, mark: Integers, link: int) -> None:
    """Record that the flows of a link have changed."""
    if mark[link] == 0:
        mark[link] = 1
        dirty[counters[DIRTY]] = link
        counters[DIRTY] += 1


@compile_function
def set_fair_rates(state: State, neighbours: Neighbours, capacity: Floats) -> None:
    """Set the fair rates and the ends of the flows that the last changes affect."""
    state.counters[STAMP] += 1
    state.counters[SHARES] += 1
    stamp, size = state.counters[STAMP], neighbours.counters
    _free_changed_paths(state, neighbours, stamp)
    while True:
        _free_affected_paths(neighbours, stamp)
        fill_links(neighbours, capacity)
        _free_faster_paths(neighbours, stamp)
        if size[FREE] == size[FREE_VISITED]:
            break
    _store_levels(neighbours, capacity)
    _set_rates(state, neighbours)


@compile_function
def _free_changed_paths(state: State, neighbours: Neighbours, stamp: int) -> None:
    """Touch the links that changed, and free the paths of new flows."""
    counters, size = state.counters, neighbours.counters
    for position in range(counters[DIRTY]):
        link = state.dirty_links[position]
        state.dirty_mark[link] = 0
        neighbours.touch_mark[link] = stamp
        neighbours.touched_links[position] = link
    for position in range(size[JOINED]):
        path = neighbours.joined_paths[position]
        neighbours.joined_mark[path] = 0
        neighbours.free_mark[path] = stamp
        neighbours.free_paths[position] = path
    size[TOUCHED], size[FREE] = counters[DIRTY], size[JOINED]
    counters[DIRTY] = size[JOINED] = size[FREE_VISITED] = size[TOUCHED_VISITED] = 0


@compile_function
def _free_affected_paths(neighbours: Neighbours, stamp: int) -> None:
    """Free the paths that a touched link limits, and touch the links of free paths, until nothing is added."""
    first, links, start, level = (
        neighbours.first_link,
        neighbours.links,
        neighbours.list_start,
        neighbours.level,
    )
    limited, limited_count, limit, free, touched = (
        neighbours.limited_paths,
        neighbours.limited_count,
        neighbours.limiting_link,
        neighbours.free_paths,
        neighbours.touched_links,
    )
    free_mark, touch_mark, size, share = (
        neighbours.free_mark,
        neighbours.touch_mark,
        neighbours.counters,
        neighbours.share,
    )
    free_on, free_count, carried, load = (
        neighbours.free_paths_on_link,
        neighbours.free_count,
        neighbours.carried_rate,
        neighbours.load,
    )
    flow_count, free_flows = neighbours.flow_count, neighbours.free_flow_count
    paths, reached, path_index, link_index = (
        size[FREE],
        size[TOUCHED],
        size[FREE_VISITED],
        size[TOUCHED_VISITED],
    )
    while link_index < reached or path_index < paths:
        for position in range(link_index, reached):
            link = touched[position]
            if level[link] == np.inf:
                continue
            for slot in range(start[link], start[link] + limited_count[link]):
                path = limited[slot]
                if limit[path] == link and free_mark[path] != stamp:
                    free_mark[path] = stamp
                    free[paths] = path
                    paths += 1
        link_index = reached
        for position in range(path_index, paths):
            path = free[position]
            share[path] = -1.0
            rates, among = load[path], flow_count[path]
            for entry in range(first[path], first[path + 1]):
                link = links[entry]
                carried[link] -= rates
                free_flows[link] += among
                free_on[start[link] + free_count[link]] = path
                free_count[link] += 1
                if touch_mark[link] != stamp:
                    touch_mark[link] = stamp
                    touched[reached] = link
                    reached += 1
        path_index = paths
    size[FREE] = size[FREE_VISITED] = paths
    size[TOUCHED] = size[TOUCHED_VISITED] = reached


@compile_function
def _free_faster_paths(neighbours: Neighbours, stamp: int) -> None:
    """Free the paths that kept a higher rate than the free paths on a link that is now full."""
    start, count, on_link, free_mark, free = (
        neighbours.list_start,
        neighbours.path_count_on_link,
        neighbours.paths_on_link,
        neighbours.free_mark,
        neighbours.free_paths,
    )
    rate, paths = neighbours.rate, neighbours.counters[FREE]
    for position in range(neighbours.counters[TOUCHED]):
        link = neighbours.touched_links[position]
        full_at = neighbours.full_level[link]
        if (
            full_at >= neighbours.level[link] * (1 - RATE_TOLERANCE)
            or neighbours.free_count[link] == count[link]
        ):
            continue
        for slot in range(start[link], start[link] + count[link]):
            path = on_link[slot]
            if rate[path] > full_at * (1 + RATE_TOLERANCE) and free_mark[path] != stamp:
                free_mark[path] = stamp
                free[paths] = path
                paths += 1
    if paths > neighbours.counters[FREE]:
        neighbours.share[free[: neighbours.counters[FREE]]] = -1.0
    neighbours.counters[FREE] = paths


@compile_function
def _store_levels(neighbours: Neighbours, capacity: Floats) -> None:
    """Store the levels and loads of the touched links for the next change."""
    level, carried, full_at, room = (
        neighbours.level,
        neighbours.carried_rate,
        neighbours.full_level,
        neighbours.free_capacity,
    )
    for link in neighbours.touched_links[: neighbours.counters[TOUCHED]]:
        level[link] = full_at[link]
        carried[link] = capacity[link] - room[link]
        neighbours.free_count[link] = neighbours.free_flow_count[link] = 0


@compile_function
def _set_rates(state: State, neighbours: Neighbours) -> None:
    """Set the new rates of the free paths, and the ends of the flows whose rate changes."""
    rate, remaining, since_s, until_s = (
        state.flow_rate,
        state.flow_bytes_left,
        state.flow_updated_s,
        state.flow_end_s,
    )
    position_of, begin_s, rounding, now = (
        state.flow_position,
        state.flow_begin_s,
        state.tolerances[0],
        state.clock[0],
    )
    head, following = neighbours.first_flow, neighbours.next_flow
    for path in neighbours.free_paths[: neighbours.counters[FREE]]:
        new_rate, message = neighbours.share[path], head[path]
        neighbours.rate[path], neighbours.load[path] = new_rate, new_rate * neighbours.flow_count[path]
        while message >= 0:
            if new_rate != rate[message]:
                remaining[message] = max(remaining[message] - rate[message] * (now - since_s[message]), 0.0)
                since_s[message] = now
                rate[message] = new_rate
                end = compute_end_s(now, remaining[message], new_rate, begin_s[message], rounding)
                until_s[position_of[message]] = end
            message = following[message]
