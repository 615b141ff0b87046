"""Data of the event loop: tasks, chains of rounds, messages and routes, all as arrays.

A task computes on a device, or moves messages, or neither (a barrier). Messages move in *chains*: a chain goes
through *phases*, a phase repeats a *round* some times, and a round is over when all its messages have arrived.
Messages of a round with equal latency form a *group*, which starts and ends as one event. So a ring AllReduce is
one chain of one phase: 2(g-1) rounds of g messages.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FLOWS, TIMERS, ORDER, READY_IN, READY_OUT, DONE, FLOW_ROWS, RATE_ROWS, DIRTY, STAMP, SHARES, IDLE = range(12)
"""Places in `State.number`: flows that move; timers that wait, and that were ever set; tasks that became ready, and of
these taken up; tasks that ended; rows of the trace; links whose flows changed; marks given; times that rates were
worked out; devices that are free and have tasks."""


JOINED, FREE, TOUCHED, FREE_SEEN, TOUCHED_SEEN = range(5)
"""Places in `Neighbours.size`: flows that joined; flows and links that are worked out, and how many were looked at."""


class Program(NamedTuple):
    """Tasks, messages and routes of a run; the parts of item i are `x_first[i]:x_first[i + 1]`."""

    task_device: Integers
    """(tasks,) the device a compute task occupies, -1 for all others"""
    task_s: Floats
    """(tasks,) computing time; of a communication, what passes before the first message"""
    task_after: Integers
    """(tasks,) how many predecessors a task has"""
    next_first: Integers
    next_task: Integers
    chain_first: Integers
    """(tasks + 1,) the chains of a task"""
    chain_task: Integers
    phase_first: Integers
    """(chains + 1,) the phases of a chain"""
    phase_rounds: Integers
    """(phases,) how often a phase's round is repeated"""
    group_first: Integers
    """(phases + 1,) the groups of a phase's round"""
    group_chain: Integers
    head_s: Floats
    """(groups,) before the data"""
    tail_s: Floats
    """(groups,) after the data"""
    message_first: Integers
    """(groups + 1,) the messages of a group"""
    message_group: Integers
    message_bytes: Integers
    """(messages,) on the wire, in each round; a message is a flow while its data move"""


class Routes(NamedTuple):
    """The links of each message, `links[first[m]:first[m + 1]]`, none twice; replaced when a fabric is reconfigured."""

    first: Integers
    links: Integers


class State(NamedTuple):
    """State of a run; the loop can be left and entered again at any time."""

    clock: Floats
    """(1,) seconds"""
    rounding: Floats
    """(1,) by how much of its duration a flow may end later, 0 for exact ends"""
    number: Integers
    """(12,) counters, by the names above"""
    waits_for: Integers
    begin_s: Floats
    end_s: Floats
    ready: Integers
    ready_s: Floats
    """(tasks,) when a compute task became ready"""
    device_task: Integers
    device_first: Integers
    device_last: Integers
    queued_next: Integers
    idle: Integers
    """devices that are free and have tasks; the first `number[IDLE]`"""
    chains_left: Integers
    chain_phase: Integers
    chain_round: Integers
    groups_left: Integers
    flows_left: Integers
    """(groups,) flows of a group that still move"""
    flows: Integers
    """the messages that move, in no order; the first `number[FLOWS]`"""
    flow_left: Floats
    """(messages,) bytes that were left at `flow_since_s`"""
    flow_since_s: Floats
    flow_rate: Floats
    flow_until_s: Floats
    """when the flow at each place of `flows` ends at that rate"""
    flow_place: Integers
    """(messages,) where a flow that moves stands in `flows`"""
    flow_begin_s: Floats
    link_bytes: Integers
    link_rate: Floats
    """(links,) as last traced"""
    dirty: Integers
    """links whose flows changed since rates were worked out; the first `number[DIRTY]`"""
    dirty_mark: Integers
    timer_s: Floats
    timer_order: Integers
    timer_kind: Integers
    timer_item: Integers
    flow_rows: Floats
    """trace: message, round, begin, end of the data"""
    rate_rows: Floats
    """trace: time, link, rate from then on"""


class Neighbours(NamedTuple):
    """Flows by link, and the rates and limits they have.

    A link's part of a list (entries,) begins at `start`. `first` and `links` are the routes without links that are
    never full: those limit nobody. Entry k is `links[k]` of a flow.
    """

    first: Integers
    links: Integers
    start: Integers
    on_count: Integers
    on_link: Integers
    """list: the flows on a link, in no order"""
    on_entry: Integers
    """list: their entries"""
    place: Integers
    """(entries,) where an entry stands in `on_link`, while its flow moves"""
    level: Floats
    """(links,) the rate of the flows that the link limits, no other on it has more; infinity for those it does not"""
    carried: Floats
    """(links,) the sum of the rates, of free flows left out while they are worked out"""
    limit: Integers
    """(messages,) the link that limits a flow, -1 for none as yet"""
    held: Integers
    """list: the flows that a link limits; those that have left since have another `limit`"""
    held_count: Integers
    size: Integers
    """(5,) counters, by the names above"""
    joined: Integers
    free: Integers
    """the flows whose rates are worked out; the first `size[FREE]`"""
    free_mark: Integers
    touched: Integers
    """the links of these flows; the first `size[TOUCHED]`"""
    touch_mark: Integers
    free_on: Integers
    """list: the free flows on a link"""
    free_count: Integers
    share: Floats
    """(messages,) the rates worked out, -1 while a flow's rate still rises"""
    rising: Integers
    """(links,) how many flows on it still rise"""
    room: Floats
    full_at: Floats
    """(links,) the level worked out"""
    heap: Integers
    heap_level: Floats
    price: Floats
    """(links,) waits of `proportional`; empty where rates are max-min fair"""


def fresh_state(program: Program, links: int, *, trace_rows: int = 0, rounding: float = 0.0) -> State:
    """Return the state with nothing done yet, tasks without predecessors ready, and room for `trace_rows`."""
    (number, ready), (tasks, devices, chains, groups, messages) = _ready_tasks(program), _sizes(program)
    return State(
        clock=np.zeros(1),
        rounding=np.array([rounding], dtype=np.float64),
        number=number,
        waits_for=program.task_after.copy(),
        begin_s=np.full(tasks, np.nan),
        end_s=np.full(tasks, np.nan),
        ready=ready,
        ready_s=np.zeros(tasks),
        device_task=integers(devices, -1),
        device_first=integers(devices, -1),
        device_last=integers(devices, -1),
        queued_next=integers(tasks, -1),
        idle=integers(devices),
        chains_left=integers(tasks),
        chain_phase=program.phase_first[:-1].copy(),
        chain_round=integers(chains),
        groups_left=integers(chains),
        flows_left=integers(groups),
        flows=integers(messages),
        flow_left=np.zeros(messages),
        flow_since_s=np.zeros(messages),
        flow_rate=np.zeros(messages),
        flow_until_s=np.zeros(messages),
        flow_place=integers(messages),
        flow_begin_s=np.zeros(messages),
        link_bytes=integers(links),
        link_rate=np.zeros(links),
        dirty=integers(links),
        dirty_mark=integers(links),
        timer_s=np.zeros(tasks + groups + 1),
        timer_order=integers(tasks + groups + 1),
        timer_kind=integers(tasks + groups + 1),
        timer_item=integers(tasks + groups + 1),
        flow_rows=np.zeros((trace_rows, 4)),
        rate_rows=np.zeros((trace_rows, 3)),
    )


def _sizes(program: Program) -> tuple[int, int, int, int, int]:
    """Return how many tasks, devices, chains, groups and messages there are."""
    devices = 1 + int(program.task_device.max(initial=-1))
    of_network = program.chain_task.size, program.group_chain.size, program.message_bytes.size
    return program.task_s.size, devices, *of_network


def _ready_tasks(program: Program) -> tuple[Integers, Integers]:
    """Return the counters, and the tasks without predecessors at the front of the room for all."""
    free = np.flatnonzero(program.task_after == 0)
    number, ready = integers(12), integers(program.task_s.size)
    number[READY_IN] = free.size
    ready[: free.size] = free
    return number, ready


def fresh_neighbours(
    routes: Routes, never_full: NDArray[np.bool_], *, in_proportion: bool = False
) -> Neighbours:
    """Return neighbours with no flow on any link yet; `never_full` is (links,)."""
    kept = ~never_full[routes.links]
    first, on_routes = np.concatenate([[0], np.cumsum(kept)])[routes.first], routes.links[kept]
    messages, links, entries = first.size - 1, never_full.size, on_routes.size
    ends = np.cumsum(np.bincount(on_routes, minlength=links))
    return Neighbours(
        first=first,
        links=on_routes,
        start=np.concatenate([[0], ends])[:-1],
        on_count=integers(links),
        on_link=integers(entries),
        on_entry=integers(entries),
        place=integers(entries),
        level=np.full(links, np.inf),
        carried=np.zeros(links),
        limit=integers(messages, -1),
        held=integers(entries),
        held_count=integers(links),
        size=integers(5),
        joined=integers(messages),
        free=integers(messages),
        free_mark=integers(messages),
        touched=integers(links),
        touch_mark=integers(links),
        free_on=integers(entries),
        free_count=integers(links),
        share=np.zeros(messages),
        rising=integers(links),
        room=np.zeros(links),
        full_at=np.zeros(links),
        heap=integers(links),
        heap_level=np.zeros(links),
        price=np.zeros(links if in_proportion else 0),
    )


def integers(size: int, value: int = 0) -> Integers:
    """Return an array of one value."""
    return np.full(size, value, np.int64)
