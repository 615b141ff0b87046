"""Data of the event loop: tasks, chains of rounds, messages and routes, all as arrays.

A task computes on a device, or moves messages, or neither (a barrier). Messages move in *chains*: a chain is a
sequence of *phases*, a phase repeats a *round* a number of times, and a round ends when all its messages have arrived.
Messages of a round with equal latency form a *group*, which starts and ends as one event. A ring AllReduce is thus
one chain of one phase: 2(g-1) rounds of g messages.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Indices = NDArray[np.int32]
"""Entries of the longest lists, one for each path and link. Their size limits the speed, so they have 32 bits instead
of 64."""
MAX_COUNT = 2**31
"""Largest number of paths, links and entries, so that `Indices` can hold their numbers."""

FLOWS, TIMERS, ORDER, READY_IN, READY_OUT, DONE, FLOW_ROWS = range(7)
RATE_ROWS, DIRTY, STAMP, SHARES, IDLE, WOKEN, ARMED = range(7, 14)
"""Indices into `State.counters`: moving flows; pending timers, and timers set so far; tasks that became ready, and how
many of these were started; tasks that ended; rows of the two traces; links whose flows changed; the last stamp of
`free_mark` and `touch_mark`; how often rates were computed; idle devices with queued tasks; whether a
watched task has begun or ended; whether to leave the loop the next time that no moving flow has a rate."""


BEGINS, ENDS = 1, 2
"""Events of a communication that `State.watch_flags` can ask for."""

JOINED, FREE, TOUCHED, FREE_VISITED, TOUCHED_VISITED = range(5)
"""Indices into `Neighbours.counters`: paths with new flows; paths and links whose rates are recomputed, and how many of
each the search has visited."""


class Program(NamedTuple):
    """Tasks, chains and messages of a run; the parts of item i are `x_first[i]:x_first[i + 1]`."""

    task_device: Integers
    """(tasks,) the device that a compute task occupies, -1 for all others"""
    task_s: Floats
    """(tasks,) computing time; for a communication, the time before its first message"""
    predecessor_count: Integers
    """(tasks,) number of predecessors"""
    successor_first: Integers
    successor_task: Integers
    chain_first: Integers
    """(tasks + 1,) the chains of a task"""
    chain_task: Integers
    phase_first: Integers
    """(chains + 1,) the phases of a chain"""
    phase_rounds: Integers
    """(phases,) number of rounds"""
    group_first: Integers
    """(phases + 1,) the groups of a phase's round"""
    group_chain: Integers
    head_s: Floats
    """(groups,) time before the data moves"""
    tail_s: Floats
    """(groups,) time from the end of the data until the group has arrived"""
    message_first: Integers
    """(groups + 1,) the messages of a group"""
    message_group: Integers
    message_bytes: Integers
    """(messages,) bytes on the wire in each round; a message is a flow while its data moves"""


class Routes(NamedTuple):
    """The links of each path p, `links[first_link[p]:first_link[p + 1]]`, all different, and the path of each message.

    Many messages may share a path. Reconfiguring a fabric replaces the routes.
    """

    first_link: Integers
    links: Integers
    path_of_message: Integers
    """(messages,)"""

    @property
    def hops(self) -> Integers:
        """Number of links of each message, (messages,)."""
        return np.diff(self.first_link)[self.path_of_message]


class State(NamedTuple):
    """State of a run; the loop can stop and continue at any time."""

    clock: Floats
    """(1,) seconds"""
    tolerances: Floats
    """(2,) tolerances as shares of the duration of a flow: how late it may end, and how late rates may follow its begin
    and end; 0 for exact times"""
    rate_deadline_s: Floats
    """(1,) when the rates must be computed at the latest, if links are dirty"""
    counters: Integers
    """(14,) counters; the module's constants name the indices"""
    watch_flags: Integers
    """(tasks,) `BEGINS` to leave the loop when a communication begins, `ENDS` when it ends, or their sum"""
    unmet_predecessor_count: Integers
    begin_s: Floats
    end_s: Floats
    ready_tasks: Integers
    ready_s: Floats
    """(tasks,) when a compute task became ready"""
    device_task: Integers
    device_first: Integers
    device_last: Integers
    queued_next: Integers
    idle_devices: Integers
    """idle devices with queued tasks; the first `counters[IDLE]` entries are valid"""
    remaining_chain_count: Integers
    chain_phase: Integers
    chain_round: Integers
    remaining_group_count: Integers
    remaining_flow_count: Integers
    """(groups,) moving flows of a group"""
    flow_messages: Integers
    """moving messages, in no order; the first `counters[FLOWS]` entries are valid"""
    flow_bytes_left: Floats
    """(messages,) remaining bytes at `flow_updated_s`"""
    flow_updated_s: Floats
    flow_rate: Floats
    flow_end_s: Floats
    """when the flow at the same index of `flow_messages` ends at its current rate"""
    flow_position: Integers
    """(messages,) index of a moving flow in `flow_messages`"""
    flow_begin_s: Floats
    link_bytes: Integers
    link_rate: Floats
    """(links,) as last traced"""
    dirty_links: Integers
    """links whose flows changed since rates were computed; the first `counters[DIRTY]` entries are valid"""
    dirty_mark: Integers
    timer_s: Floats
    timer_order: Integers
    timer_kind: Integers
    timer_item: Integers
    flow_rows: Floats
    """trace: message, round, begin and end of the data"""
    rate_rows: Floats
    """trace: time, link, rate from this time on"""


class Neighbours(NamedTuple):
    """Paths in use by link, with the rates and limits of their flows.

    Flows on the same path always have the same rate, so rates belong to paths. `first_link` and `links` are the routes
    without the links that are never full, because those limit no flow. Entry k is the pair of the link `links[k]` and
    its path. In a field described as "list", (entries,), the part of link l begins at `list_start[l]`.
    """

    first_link: Integers
    links: Indices
    path_of_message: Integers
    """(messages,)"""
    flow_count: Integers
    """(paths,) number of moving flows; a path is in use while there are any"""
    first_flow: Integers
    """(paths,) one of these flows, -1 for none"""
    next_flow: Integers
    """(messages,) the next flow on the same path, -1 after the last"""
    previous_flow: Integers
    rate: Floats
    """(paths,) rate of each flow as last computed; flows that begin later have none yet"""
    load: Floats
    """(paths,) sum of the rates of the flows on a path, as `carried_rate` counts it"""
    list_start: Integers
    flow_count_on_link: Integers
    """(links,) number of moving flows"""
    path_count_on_link: Integers
    """(links,) number of paths in use"""
    paths_on_link: Indices
    """list: paths in use on a link, in no order"""
    entries_on_link: Indices
    """list: entries of these paths"""
    position_on_link: Indices
    """(entries,) index of an entry in `paths_on_link` while its path is in use"""
    level: Floats
    """(links,) rate of the flows that the link limits, the highest on the link; infinity if it limits none"""
    carried_rate: Floats
    """(links,) sum of the rates, without free flows while their rates are recomputed"""
    limiting_link: Integers
    """(paths,) link that limits the flows of a path, -1 for none yet"""
    limited_paths: Indices
    """list: paths that a link limits, or had limited: a path counts only if its `limiting_link` is this link
    (`proportional`: all paths in use on a link)"""
    limited_count: Integers
    counters: Integers
    """(5,) counters; the module's constants name the indices"""
    joined_paths: Integers
    """paths with new flows; the first `counters[JOINED]` entries are valid"""
    joined_mark: Integers
    free_paths: Integers
    """paths whose rates are recomputed; the first `counters[FREE]` entries are valid"""
    free_mark: Integers
    touched_links: Integers
    """links of these paths; the first `counters[TOUCHED]` entries are valid"""
    touch_mark: Integers
    free_paths_on_link: Indices
    """list: free paths on a link"""
    free_count: Integers
    free_flow_count: Integers
    """(links,) number of flows on the free paths"""
    share: Floats
    """(paths,) new rates, -1 while the rate still rises"""
    rising_flow_count: Integers
    """(links,) number of flows whose rate still rises"""
    free_capacity: Floats
    full_level: Floats
    """(links,) new level"""
    heap: Integers
    heap_level: Floats
    price: Floats
    """(links,) waits of `proportional`; empty if rates are max-min fair"""


def make_state(
    program: Program, link_count: int, *, trace_rows: int = 0, rounding: float = 0.0, lag: float = 0.0
) -> State:
    """Return the state at time 0: tasks without predecessors are ready; each trace has room for `trace_rows` rows."""
    (counters, ready), (tasks, devices, chains, groups, messages) = (
        _find_ready_tasks(program),
        _count_items(program),
    )
    return State(
        clock=np.zeros(1),
        tolerances=np.array([rounding, lag], dtype=np.float64),
        rate_deadline_s=np.full(1, np.inf),
        counters=counters,
        watch_flags=make_integers(tasks),
        unmet_predecessor_count=program.predecessor_count.copy(),
        begin_s=np.full(tasks, np.nan),
        end_s=np.full(tasks, np.nan),
        ready_tasks=ready,
        ready_s=np.zeros(tasks),
        device_task=make_integers(devices, -1),
        device_first=make_integers(devices, -1),
        device_last=make_integers(devices, -1),
        queued_next=make_integers(tasks, -1),
        idle_devices=make_integers(devices),
        remaining_chain_count=make_integers(tasks),
        chain_phase=program.phase_first[:-1].copy(),
        chain_round=make_integers(chains),
        remaining_group_count=make_integers(chains),
        remaining_flow_count=make_integers(groups),
        flow_messages=make_integers(messages),
        flow_bytes_left=np.zeros(messages),
        flow_updated_s=np.zeros(messages),
        flow_rate=np.zeros(messages),
        flow_end_s=np.zeros(messages),
        flow_position=make_integers(messages),
        flow_begin_s=np.zeros(messages),
        link_bytes=make_integers(link_count),
        link_rate=np.zeros(link_count),
        dirty_links=make_integers(link_count),
        dirty_mark=make_integers(link_count),
        timer_s=np.zeros(tasks + groups + 1),
        timer_order=make_integers(tasks + groups + 1),
        timer_kind=make_integers(tasks + groups + 1),
        timer_item=make_integers(tasks + groups + 1),
        flow_rows=np.zeros((trace_rows, 4)),
        rate_rows=np.zeros((trace_rows, 3)),
    )


def _count_items(program: Program) -> tuple[int, int, int, int, int]:
    """Return the numbers of tasks, devices, chains, groups and messages."""
    devices = 1 + int(program.task_device.max(initial=-1))
    network_sizes = program.chain_task.size, program.group_chain.size, program.message_bytes.size
    return program.task_s.size, devices, *network_sizes


def _find_ready_tasks(program: Program) -> tuple[Integers, Integers]:
    """Return the counters, and an array (tasks,) that begins with the tasks without predecessors."""
    first_tasks = np.flatnonzero(program.predecessor_count == 0)
    counters, ready = make_integers(14), make_integers(program.task_s.size)
    counters[READY_IN] = first_tasks.size
    ready[: first_tasks.size] = first_tasks
    return counters, ready


def make_neighbours(
    routes: Routes, never_full: NDArray[np.bool_], *, in_proportion: bool = False
) -> Neighbours:
    """Return neighbours without any flow; `never_full` (links,) marks links to leave out of the sharing.

    Set `in_proportion` for proportionally fair rates; each message then has its own path. Raises
    `ValueError` for more than `MAX_COUNT` paths, links or entries.
    """
    if in_proportion:
        routes = _separate_paths(routes)
    can_fill = ~never_full[routes.links]
    first, route_links = np.concatenate([[0], np.cumsum(can_fill)])[routes.first_link], routes.links[can_fill]
    messages, paths = routes.path_of_message.size, first.size - 1
    links, entries = never_full.size, route_links.size
    _check_counts(paths=paths, links=links, entries=entries)
    ends = np.cumsum(np.bincount(route_links, minlength=links))
    return Neighbours(
        first_link=first,
        links=route_links.astype(np.int32),
        path_of_message=routes.path_of_message,
        flow_count=make_integers(paths),
        first_flow=make_integers(paths, -1),
        next_flow=make_integers(messages, -1),
        previous_flow=make_integers(messages, -1),
        rate=np.zeros(paths),
        load=np.zeros(paths),
        list_start=np.concatenate([[0], ends])[:-1],
        flow_count_on_link=make_integers(links),
        path_count_on_link=make_integers(links),
        paths_on_link=np.zeros(entries, np.int32),
        entries_on_link=np.zeros(entries, np.int32),
        position_on_link=np.zeros(entries, np.int32),
        level=np.full(links, np.inf),
        carried_rate=np.zeros(links),
        limiting_link=make_integers(paths, -1),
        limited_paths=np.zeros(entries, np.int32),
        limited_count=make_integers(links),
        counters=make_integers(5),
        joined_paths=make_integers(paths),
        joined_mark=make_integers(paths),
        free_paths=make_integers(paths),
        free_mark=make_integers(paths),
        touched_links=make_integers(links),
        touch_mark=make_integers(links),
        free_paths_on_link=np.zeros(entries, np.int32),
        free_count=make_integers(links),
        free_flow_count=make_integers(links),
        share=np.zeros(paths),
        rising_flow_count=make_integers(links),
        free_capacity=np.zeros(links),
        full_level=np.zeros(links),
        heap=make_integers(links),
        heap_level=np.zeros(links),
        price=np.zeros(links if in_proportion else 0),
    )


def _check_counts(**counts: int) -> None:
    """Raise `ValueError` if the numbers of paths, links or entries do not fit into `Indices`."""
    for name, count in counts.items():
        if count > MAX_COUNT:
            raise ValueError(
                f"{count} {name} in the routes, but the simulation numbers at most {MAX_COUNT}: simulate fewer "
                "messages at once, or a fabric on which messages share paths"
            )


def make_routes(first: Integers, links: Integers) -> Routes:
    """Return routes in which each message has its own path, `links[first[m]:first[m + 1]]`."""
    return Routes(first, links, np.arange(first.size - 1))


def _separate_paths(routes: Routes) -> Routes:
    """Return the same routes with a separate path for each message."""
    hops = routes.hops
    first = np.concatenate([[0], np.cumsum(hops)])
    entry = np.arange(first[-1]) + np.repeat(routes.first_link[routes.path_of_message] - first[:-1], hops)
    return make_routes(first, routes.links[entry])


def make_integers(size: int, value: int = 0) -> Integers:
    """Return an int64 array (size,) filled with `value`."""
    return np.full(size, value, np.int64)
