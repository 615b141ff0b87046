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
def fill_links(sharing: Neighbours, capacity: Floats) -> None:
    """Compute the shares of the free paths, the link that limits each, and the level of each touched link.

    A heap orders these links by the level at which each becomes full. An entry may be out of date, because flows
    that stop elsewhere raise the level; levels only rise, so it is enough to correct an entry when it comes first.
    """
    _prepare_heap(sharing, capacity)
    first, links, room, rising_flow_count, free_paths_on_link = (
        sharing.first_link,
        sharing.links,
        sharing.free_capacity,
        sharing.rising_flow_count,
        sharing.free_paths_on_link,
    )
    start, free_count, limited_paths, limited_count = (
        sharing.list_start,
        sharing.free_count,
        sharing.limited_paths,
        sharing.limited_count,
    )
    heap, levels, share, limiting_link, full_level = (
        sharing.heap,
        sharing.heap_level,
        sharing.share,
        sharing.limiting_link,
        sharing.full_level,
    )
    size, level, flow_count = sharing.counters[TOUCHED], -1.0, sharing.flow_count
    for position in range(size // 2 - 1, -1, -1):
        _sift_down(heap, levels, position, size)
    while size:
        link = heap[0]
        if rising_flow_count[link] and room[link] > level * LEVEL_FACTOR * rising_flow_count[link]:
            if room[link] > levels[0] * LEVEL_FACTOR * rising_flow_count[link]:
                levels[0] = room[link] / rising_flow_count[link]
                _sift_down(heap, levels, 0, size)
                continue
            level = room[link] / rising_flow_count[link]
        if rising_flow_count[link]:
            full_level[link] = level
            limited_count[link] = _stop_paths(
                link,
                level,
                start[link],
                free_count[link],
                free_paths_on_link,
                limited_paths,
                flow_count,
                first,
                links,
                share,
                limiting_link,
                rising_flow_count,
                room,
            )
        size -= 1
        heap[0], levels[0] = heap[size], levels[size]
        _sift_down(heap, levels, 0, size)


@compile_function
def _prepare_heap(sharing: Neighbours, capacity: Floats) -> None:
    """Set the room of the touched links without the free flows, and fill the heap."""
    touched, room, rising, heap, levels = (
        sharing.touched_links,
        sharing.free_capacity,
        sharing.rising_flow_count,
        sharing.heap,
        sharing.heap_level,
    )
    count, free_count, carried, free_flows = (
        sharing.path_count_on_link,
        sharing.free_count,
        sharing.carried_rate,
        sharing.free_flow_count,
    )
    for position in range(sharing.counters[TOUCHED]):
        link = touched[position]
        rising[link] = free_flows[link]
        # If all flows of a link are free, its room is its capacity: rounding errors of `carried` do not accumulate.
        room[link] = (
            capacity[link] if free_count[link] == count[link] else max(capacity[link] - carried[link], 0.0)
        )
        sharing.limited_count[link], sharing.full_level[link] = 0, np.inf
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
    free_paths_on_link: Indices,
    limited_paths: Indices,
    flow_count: Integers,
    first: Integers,
    links: Indices,
    share: Floats,
    limiting_link: Integers,
    rising_flow_count: Integers,
    room: Floats,
) -> int:
    """At `level`, stop the free paths of a full link that still rise; list them as limited, and return their number."""
    slot = begin
    for position in range(begin, begin + count):
        path = free_paths_on_link[position]
        if share[path] >= 0:
            continue
        share[path] = level
        limiting_link[path] = link
        limited_paths[slot] = path
        slot += 1
        flows = flow_count[path]
        for entry in range(first[path], first[path + 1]):
            rising_flow_count[links[entry]] -= flows
            room[links[entry]] = max(room[links[entry]] - flows * level, 0.0)
    return slot - begin


@compile_function
def add_flows(state: State, sharing: Neighbours, begin: int) -> None:
    """Add the new flows, from index `begin` on."""
    flows, first, links, path_counters = (
        state.flow_messages,
        sharing.first_link,
        sharing.links,
        sharing.counters,
    )
    start, path_count, paths_on_link, entries_on_link, position_of = (
        sharing.list_start,
        sharing.path_count_on_link,
        sharing.paths_on_link,
        sharing.entries_on_link,
        sharing.position_on_link,
    )
    path_of, flow_count, first_flow, next_flow, previous_flow = (
        sharing.path_of_message,
        sharing.flow_count,
        sharing.first_flow,
        sharing.next_flow,
        sharing.previous_flow,
    )
    counters, dirty, mark, flow_count_on_link = (
        state.counters,
        state.dirty_links,
        state.dirty_mark,
        sharing.flow_count_on_link,
    )
    for position in range(begin, counters[FLOWS]):
        message = flows[position]
        path = path_of[message]
        next_flow[message], previous_flow[message] = first_flow[path], -1
        if first_flow[path] >= 0:
            previous_flow[first_flow[path]] = message
        first_flow[path] = message
        flow_count[path] += 1
        is_first = flow_count[path] == 1
        for entry in range(first[path], first[path + 1]):
            link = links[entry]
            flow_count_on_link[link] += 1
            if is_first:
                slot = start[link] + path_count[link]
                paths_on_link[slot], entries_on_link[slot], position_of[entry] = path, entry, slot
                path_count[link] += 1
            _mark_dirty(counters, dirty, mark, link)
        if is_first:
            sharing.limiting_link[path] = -1
        if first[path] < first[path + 1] and sharing.joined_mark[path] == 0:
            sharing.joined_mark[path] = 1
            sharing.joined_paths[path_counters[JOINED]] = path
            path_counters[JOINED] += 1


@compile_function
def remove_flows(state: State, sharing: Neighbours, end: int) -> None:
    """Remove the flows that have ended. In `flow_messages` they follow the moving flows, up to `end`."""
    flows, first, links, rate = state.flow_messages, sharing.first_link, sharing.links, state.flow_rate
    start, path_count, paths_on_link, entries_on_link, position_of = (
        sharing.list_start,
        sharing.path_count_on_link,
        sharing.paths_on_link,
        sharing.entries_on_link,
        sharing.position_on_link,
    )
    path_of, flow_count, first_flow, next_flow, previous_flow = (
        sharing.path_of_message,
        sharing.flow_count,
        sharing.first_flow,
        sharing.next_flow,
        sharing.previous_flow,
    )
    counters, dirty, mark, flow_count_on_link = (
        state.counters,
        state.dirty_links,
        state.dirty_mark,
        sharing.flow_count_on_link,
    )
    carried = sharing.carried_rate
    for position in range(counters[FLOWS], end):
        message = flows[position]
        path = path_of[message]
        if previous_flow[message] >= 0:
            next_flow[previous_flow[message]] = next_flow[message]
        else:
            first_flow[path] = next_flow[message]
        if next_flow[message] >= 0:
            previous_flow[next_flow[message]] = previous_flow[message]
        flow_count[path] -= 1
        sharing.load[path] -= rate[message]
        is_last, lost_rate = flow_count[path] == 0, rate[message]
        if is_last:
            sharing.limiting_link[path], sharing.rate[path], sharing.load[path] = -1, 0.0, 0.0
        for entry in range(first[path], first[path + 1]):
            link = links[entry]
            flow_count_on_link[link] -= 1
            if is_last:
                slot = position_of[entry]
                path_count[link] -= 1
                last_position = start[link] + path_count[link]
                paths_on_link[slot], entries_on_link[slot] = (
                    paths_on_link[last_position],
                    entries_on_link[last_position],
                )
                position_of[entries_on_link[slot]] = slot
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
def set_fair_rates(state: State, sharing: Neighbours, capacity: Floats) -> None:
    """Set the fair rates and the ends of the flows that the last changes affect."""
    state.counters[STAMP] += 1
    state.counters[SHARES] += 1
    stamp, path_counters = state.counters[STAMP], sharing.counters
    _free_changed_paths(state, sharing, stamp)
    while True:
        _free_affected_paths(sharing, stamp)
        fill_links(sharing, capacity)
        _free_faster_paths(sharing, stamp)
        if path_counters[FREE] == path_counters[FREE_VISITED]:
            break
    _store_levels(sharing, capacity)
    _set_rates(state, sharing)


@compile_function
def _free_changed_paths(state: State, sharing: Neighbours, stamp: int) -> None:
    """Touch the links that changed, and free the paths of new flows."""
    counters, path_counters = state.counters, sharing.counters
    for position in range(counters[DIRTY]):
        link = state.dirty_links[position]
        state.dirty_mark[link] = 0
        sharing.touch_mark[link] = stamp
        sharing.touched_links[position] = link
    for position in range(path_counters[JOINED]):
        path = sharing.joined_paths[position]
        sharing.joined_mark[path] = 0
        sharing.free_mark[path] = stamp
        sharing.free_paths[position] = path
    path_counters[TOUCHED], path_counters[FREE] = counters[DIRTY], path_counters[JOINED]
    counters[DIRTY] = path_counters[JOINED] = path_counters[FREE_VISITED] = path_counters[TOUCHED_VISITED] = 0


@compile_function
def _free_affected_paths(sharing: Neighbours, stamp: int) -> None:
    """Free the paths that a touched link limits, and touch the links of free paths, until nothing is added."""
    first, links, start, level = (
        sharing.first_link,
        sharing.links,
        sharing.list_start,
        sharing.level,
    )
    limited_paths, limited_count, limiting_link, free_paths, touched = (
        sharing.limited_paths,
        sharing.limited_count,
        sharing.limiting_link,
        sharing.free_paths,
        sharing.touched_links,
    )
    free_mark, touch_mark, path_counters, share = (
        sharing.free_mark,
        sharing.touch_mark,
        sharing.counters,
        sharing.share,
    )
    free_paths_on_link, free_count, carried, load = (
        sharing.free_paths_on_link,
        sharing.free_count,
        sharing.carried_rate,
        sharing.load,
    )
    flow_count, free_flows = sharing.flow_count, sharing.free_flow_count
    freed_count, touched_count, path_index, link_index = (
        path_counters[FREE],
        path_counters[TOUCHED],
        path_counters[FREE_VISITED],
        path_counters[TOUCHED_VISITED],
    )
    while link_index < touched_count or path_index < freed_count:
        for position in range(link_index, touched_count):
            link = touched[position]
            if level[link] == np.inf:
                continue
            for slot in range(start[link], start[link] + limited_count[link]):
                path = limited_paths[slot]
                if limiting_link[path] == link and free_mark[path] != stamp:
                    free_mark[path] = stamp
                    free_paths[freed_count] = path
                    freed_count += 1
        link_index = touched_count
        for position in range(path_index, freed_count):
            path = free_paths[position]
            share[path] = -1.0
            path_load, path_flow_count = load[path], flow_count[path]
            for entry in range(first[path], first[path + 1]):
                link = links[entry]
                carried[link] -= path_load
                free_flows[link] += path_flow_count
                free_paths_on_link[start[link] + free_count[link]] = path
                free_count[link] += 1
                if touch_mark[link] != stamp:
                    touch_mark[link] = stamp
                    touched[touched_count] = link
                    touched_count += 1
        path_index = freed_count
    path_counters[FREE] = path_counters[FREE_VISITED] = freed_count
    path_counters[TOUCHED] = path_counters[TOUCHED_VISITED] = touched_count


@compile_function
def _free_faster_paths(sharing: Neighbours, stamp: int) -> None:
    """Free the paths that kept a higher rate than the free paths on a link that is now full."""
    start, path_count, paths_on_link, free_mark, free_paths = (
        sharing.list_start,
        sharing.path_count_on_link,
        sharing.paths_on_link,
        sharing.free_mark,
        sharing.free_paths,
    )
    rate, freed_count = sharing.rate, sharing.counters[FREE]
    for position in range(sharing.counters[TOUCHED]):
        link = sharing.touched_links[position]
        full_level = sharing.full_level[link]
        if (
            full_level >= sharing.level[link] * (1 - RATE_TOLERANCE)
            or sharing.free_count[link] == path_count[link]
        ):
            continue
        for slot in range(start[link], start[link] + path_count[link]):
            path = paths_on_link[slot]
            if rate[path] > full_level * (1 + RATE_TOLERANCE) and free_mark[path] != stamp:
                free_mark[path] = stamp
                free_paths[freed_count] = path
                freed_count += 1
    if freed_count > sharing.counters[FREE]:
        sharing.share[free_paths[: sharing.counters[FREE]]] = -1.0
    sharing.counters[FREE] = freed_count


@compile_function
def _store_levels(sharing: Neighbours, capacity: Floats) -> None:
    """Store the levels and loads of the touched links for the next change."""
    level, carried, full_level, room = (
        sharing.level,
        sharing.carried_rate,
        sharing.full_level,
        sharing.free_capacity,
    )
    for link in sharing.touched_links[: sharing.counters[TOUCHED]]:
        level[link] = full_level[link]
        carried[link] = capacity[link] - room[link]
        sharing.free_count[link] = sharing.free_flow_count[link] = 0


@compile_function
def _set_rates(state: State, sharing: Neighbours) -> None:
    """Set the new rates of the free paths, and the ends of the flows whose rate changes."""
    rate, bytes_left, updated_s, end_s = (
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
    first_flow, next_flow = sharing.first_flow, sharing.next_flow
    for path in sharing.free_paths[: sharing.counters[FREE]]:
        new_rate, message = sharing.share[path], first_flow[path]
        sharing.rate[path], sharing.load[path] = new_rate, new_rate * sharing.flow_count[path]
        while message >= 0:
            if new_rate != rate[message]:
                bytes_left[message] = max(
                    bytes_left[message] - rate[message] * (now - updated_s[message]), 0.0
                )
                updated_s[message] = now
                rate[message] = new_rate
                new_end_s = compute_end_s(now, bytes_left[message], new_rate, begin_s[message], rounding)
                end_s[position_of[message]] = new_end_s
            message = next_flow[message]
