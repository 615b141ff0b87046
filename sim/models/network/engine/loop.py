"""The event loop of the flow simulation: tasks become ready, rounds begin and end, flows share links in between.

Events less than 0.1 ps apart count as simultaneous. Only the computation of fair shares allocates memory per event.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lightbed.compiled import IS_AVAILABLE, compile_function
from sim.models.network.engine.program import (
    ARMED,
    BEGINS,
    DIRTY,
    DONE,
    ENDS,
    FLOW_ROWS,
    FLOWS,
    IDLE,
    RATE_ROWS,
    READY_IN,
    READY_OUT,
    TIMERS,
    WOKEN,
    Floats,
    Neighbours,
    Program,
    Routes,
    State,
)
from sim.models.network.engine.proportional import share_in_proportion
from sim.models.network.engine.timers import pop_timer, set_timer

__all__ = [
    "FINISHED",
    "FULL",
    "PAUSED",
    "STALLED",
    "WOKE",
    "add_flows",
    "find_next_end_s",
    "remove_flows",
    "run",
    "set_fair_rates",
]

if IS_AVAILABLE:
    from sim.models.network.engine.shares import add_flows, remove_flows, set_fair_rates
    from sim.models.network.engine.timers import find_next_end_s
else:
    from sim.models.network.engine.shares_numpy import (
        add_flows,
        find_next_end_s,
        remove_flows,
        set_fair_rates,
    )

FINISHED, PAUSED, STALLED, FULL, WOKE = range(5)
"""Reasons to leave the loop: all tasks ended; `until_s` reached; nothing can move; the trace must be emptied; a watched
task began or ended, or every moving flow waits."""

_KINDS: Any = np.arange(4)
COMPUTED, BEGIN, DATA, ARRIVED = _KINDS
"""Kinds of timers: a device is free; a communication begins; a group's data begin; a group has arrived.

These are numpy integers, because numba would compile `set_timer` again for each plain integer.
"""

TICK_S = 1e-13
"""Events less than this apart count as simultaneous."""


@compile_function
def run(
    program: Program, routes: Routes, state: State, neighbours: Neighbours, capacity: Floats, until_s: float
) -> int:
    """Continue from `state` until all tasks have ended or the clock reaches `until_s`; return the reason to stop."""
    counters, clock, timer_s, ready = state.counters, state.clock, state.timer_s, state.ready_tasks
    is_tracing = state.flow_rows.shape[0] > 0
    flow_s = find_next_end_s(state.flow_end_s[: counters[FLOWS]])
    while True:
        if is_tracing and is_trace_full(state):
            return FULL
        if counters[WOKEN]:
            counters[WOKEN] = 0
            return WOKE
        while counters[READY_OUT] < counters[READY_IN]:
            counters[READY_OUT] += 1
            start_task(program, state, ready[counters[READY_OUT] - 1])
        # All timers of this time come first, so that the rates are computed once for all of them.
        if counters[TIMERS] and timer_s[0] <= clock[0] + TICK_S:
            kind, item = pop_timer(state)
            _handle_timer(program, routes, state, neighbours, capacity, kind, item)
            continue
        if counters[DONE] == program.task_s.size:
            return FINISHED
        if counters[DIRTY] and state.rate_deadline_s[0] <= clock[0] + TICK_S:
            _recompute_rates(state, neighbours, capacity)
            state.rate_deadline_s[0] = np.inf
            if is_tracing:
                trace_rates(routes, state)
            flow_s = find_next_end_s(state.flow_end_s[: counters[FLOWS]])
        when_s = min(flow_s, timer_s[0]) if counters[TIMERS] else flow_s
        if counters[DIRTY]:
            when_s = min(when_s, state.rate_deadline_s[0])
        if counters[IDLE] and when_s > clock[0] + TICK_S:
            occupy_devices(program, state)
            continue
        if counters[ARMED] and counters[FLOWS] and flow_s == np.inf and when_s > clock[0] + TICK_S:
            counters[ARMED] = 0
            return WOKE
        if when_s == np.inf:
            return STALLED
        if when_s > until_s:
            clock[0] = until_s
            return PAUSED
        clock[0] = max(when_s, clock[0])
        if flow_s > clock[0] + TICK_S:
            continue
        _end_flows(program, routes, state, neighbours)
        flow_s = find_next_end_s(state.flow_end_s[: counters[FLOWS]])


@compile_function
def _recompute_rates(state: State, neighbours: Neighbours, capacity: Floats) -> None:
    """Recompute the rates: proportionally fair if `neighbours` has prices, else max-min fair."""
    if neighbours.price.size:
        share_in_proportion(state, neighbours, capacity)
    else:
        set_fair_rates(state, neighbours, capacity)


@compile_function
def start_task(program: Program, state: State, task: int) -> None:
    """Start a task whose predecessors have ended: queue it for its device, or set the timer of a communication."""
    device = program.task_device[task]
    if device < 0:
        state.begin_s[task] = state.clock[0]
        set_timer(state, state.clock[0] + program.task_s[task], BEGIN, task)
        return
    state.ready_s[task] = state.clock[0]
    if state.device_first[device] < 0:
        state.device_first[device] = state.device_last[device] = task
        if state.device_task[device] < 0:
            state.idle_devices[state.counters[IDLE]] = device
            state.counters[IDLE] += 1
        return
    _enqueue(state, device, task)


@compile_function
def _enqueue(state: State, device: int, task: int) -> None:
    """Insert a task into the queue of its device, ordered by the time it became ready, then by number."""
    previous, following = -1, state.device_first[device]
    end = state.device_last[device]
    if _precedes(state, end, task):
        previous, following = end, -1
    while following >= 0 and _precedes(state, following, task):
        previous, following = following, state.queued_next[following]
    state.queued_next[task] = following
    if following < 0:
        state.device_last[device] = task
    if previous < 0:
        state.device_first[device] = task
    else:
        state.queued_next[previous] = task


@compile_function
def _precedes(state: State, queued_task: int, task: int) -> bool:
    return state.ready_s[queued_task] < state.ready_s[task] - TICK_S or queued_task < task


@compile_function
def occupy_devices(program: Program, state: State) -> None:
    """Start the first queued task of each idle device.

    The caller does so after all other events of the same time, so that ties go to the lowest task number.
    """
    while state.counters[IDLE]:
        state.counters[IDLE] -= 1
        device = state.idle_devices[state.counters[IDLE]]
        task = state.device_first[device]
        state.device_first[device] = state.queued_next[task]
        state.queued_next[task] = -1
        _start_computing(program, state, task)


@compile_function
def _start_computing(program: Program, state: State, task: int) -> None:
    state.device_task[program.task_device[task]] = task
    state.begin_s[task] = state.clock[0]
    set_timer(state, state.clock[0] + program.task_s[task], COMPUTED, task)


@compile_function
def _handle_timer(
    program: Program,
    routes: Routes,
    state: State,
    neighbours: Neighbours,
    capacity: Floats,
    kind: int,
    item: int,
) -> None:
    """Handle an expired timer of this kind."""
    if kind == COMPUTED:
        free_device(program, state, item)
        finish_task(program, state, item)
    elif kind == BEGIN:
        begin_communication(program, state, item)
    elif kind == DATA:
        _start_flows(program, routes, state, neighbours, capacity, item)
    else:
        record_arrival(program, state, item)


@compile_function
def free_device(program: Program, state: State, task: int) -> None:
    device = program.task_device[task]
    state.device_task[device] = -1
    if state.device_first[device] >= 0:
        state.idle_devices[state.counters[IDLE]] = device
        state.counters[IDLE] += 1


@compile_function
def finish_task(program: Program, state: State, task: int) -> None:
    state.end_s[task] = state.clock[0]
    state.counters[DONE] += 1
    if state.watch_flags[task] & ENDS:
        state.counters[WOKEN] = 1
    for position in range(program.successor_first[task], program.successor_first[task + 1]):
        successor = program.successor_task[position]
        state.unmet_predecessor_count[successor] -= 1
        if state.unmet_predecessor_count[successor] == 0:
            state.ready_tasks[state.counters[READY_IN]] = successor
            state.counters[READY_IN] += 1


@compile_function
def begin_communication(program: Program, state: State, task: int) -> None:
    first, end = program.chain_first[task], program.chain_first[task + 1]
    state.remaining_chain_count[task] = end - first
    if state.watch_flags[task] & BEGINS:
        state.counters[WOKEN] = 1
    if first == end:
        finish_task(program, state, task)
    for chain in range(first, end):
        _begin_round(program, state, chain)


@compile_function
def _begin_round(program: Program, state: State, chain: int) -> None:
    phase = state.chain_phase[chain]
    begin, end = program.group_first[phase], program.group_first[phase + 1]
    state.remaining_group_count[chain] = end - begin
    for group in range(begin, end):
        set_timer(state, state.clock[0] + program.head_s[group], DATA, group)


@compile_function
def _start_flows(
    program: Program, routes: Routes, state: State, neighbours: Neighbours, capacity: Floats, group: int
) -> None:
    """Start a flow for each message of a group; a message without links or bytes needs none."""
    counters, flows, size_bytes, begin = (
        state.counters,
        state.flow_messages,
        program.message_bytes,
        routes.first_link,
    )
    remaining, since_s, begin_s = state.flow_bytes_left, state.flow_updated_s, state.flow_begin_s
    rate, until_s, position_of, now = state.flow_rate, state.flow_end_s, state.flow_position, state.clock[0]
    previous = counters[FLOWS]
    for message in range(program.message_first[group], program.message_first[group + 1]):
        path = routes.path_of_message[message]
        if size_bytes[message] == 0 or begin[path] == begin[path + 1]:
            continue
        position = counters[FLOWS]
        flows[position], position_of[message], until_s[position] = message, position, np.inf
        counters[FLOWS] += 1
        remaining[message] = size_bytes[message]
        since_s[message] = begin_s[message] = now
        rate[message] = 0.0
    added_flows = counters[FLOWS] - previous
    add_flows(state, neighbours, previous)
    _set_rate_deadline(state, neighbours, capacity, previous)
    state.remaining_flow_count[group] = added_flows
    if added_flows == 0:
        set_timer(state, now + program.tail_s[group], ARRIVED, group)


@compile_function
def _set_rate_deadline(state: State, neighbours: Neighbours, capacity: Floats, begin: int) -> None:
    """Make the flows from index `begin` on wait for their rates.

    They wait for the share `tolerances[1]` of their durations.

    Max-min fair rates give a flow at least an equal part of each of its links, which bounds its duration.
    """
    due_s, part, now = state.rate_deadline_s, state.tolerances[1], state.clock[0]
    if part <= 0:
        due_s[0] = now
        return
    first, links, count, remaining = (
        neighbours.first_link,
        neighbours.links,
        neighbours.flow_count_on_link,
        state.flow_bytes_left,
    )
    for position in range(begin, state.counters[FLOWS]):
        message, longest = state.flow_messages[position], 0.0
        path = neighbours.path_of_message[message]
        for entry in range(first[path], first[path + 1]):
            link = links[entry]
            if capacity[link] > 0:
                longest = max(longest, count[link] / capacity[link])
        due_s[0] = min(due_s[0], now + part * longest * remaining[message])


@compile_function
def _end_flows(program: Program, routes: Routes, state: State, neighbours: Neighbours) -> None:
    """Remove the flows that have ended; the last flow of a group sets the timer of the group's arrival."""
    counters, flows, until_s, size_bytes = (
        state.counters,
        state.flow_messages,
        state.flow_end_s,
        program.message_bytes,
    )
    begin, links, link_bytes, group_of = (
        routes.first_link,
        routes.links,
        state.link_bytes,
        program.message_group,
    )
    flow_count_left, position_of, now, path_of = (
        state.remaining_flow_count,
        state.flow_position,
        state.clock[0],
        routes.path_of_message,
    )
    position, previous, shortest_s = 0, counters[FLOWS], np.inf
    while position < counters[FLOWS]:
        if until_s[position] > now + TICK_S:
            position += 1
            continue
        counters[FLOWS] -= 1
        message, end = flows[position], counters[FLOWS]
        flows[position], flows[end], until_s[position] = flows[end], message, until_s[end]
        position_of[flows[position]] = position
        shortest_s = min(shortest_s, now - state.flow_begin_s[message])
        path = path_of[message]
        for entry in range(begin[path], begin[path + 1]):
            link_bytes[links[entry]] += size_bytes[message]
        flow_count_left[group_of[message]] -= 1
        if flow_count_left[group_of[message]] == 0:
            set_timer(state, now + program.tail_s[group_of[message]], ARRIVED, group_of[message])
    if counters[FLOWS] < previous:
        remove_flows(state, neighbours, previous)
        state.rate_deadline_s[0] = min(state.rate_deadline_s[0], now + state.tolerances[1] * shortest_s)
        trace_flows(program, state, previous)


@compile_function
def record_arrival(program: Program, state: State, group: int) -> None:
    """Record the arrival of a group, and end the round, phase, chain and task if it was their last."""
    chain = program.group_chain[group]
    state.remaining_group_count[chain] -= 1
    if state.remaining_group_count[chain]:
        return
    state.chain_round[chain] += 1
    if state.chain_round[chain] == program.phase_rounds[state.chain_phase[chain]]:
        state.chain_round[chain] = 0
        state.chain_phase[chain] += 1
    if state.chain_phase[chain] < program.phase_first[chain + 1]:
        _begin_round(program, state, chain)
        return
    task = program.chain_task[chain]
    state.remaining_chain_count[task] -= 1
    if state.remaining_chain_count[task] == 0:
        finish_task(program, state, task)


@compile_function
def is_trace_full(state: State) -> bool:
    """Return whether the next events might not fit into the trace."""
    flows_fit = state.counters[FLOW_ROWS] + state.counters[FLOWS] <= state.flow_rows.shape[0]
    rates_fit = state.counters[RATE_ROWS] + state.link_rate.size <= state.rate_rows.shape[0]
    return not (flows_fit and rates_fit)


@compile_function
def trace_flows(program: Program, state: State, previous: int) -> None:
    """Append the flows that have just ended to the trace.

    They follow the moving ones in `flow_messages`, up to `previous`.
    """
    if state.flow_rows.shape[0] == 0:
        return
    for position in range(state.counters[FLOWS], previous):
        message = state.flow_messages[position]
        row = state.flow_rows[state.counters[FLOW_ROWS]]
        row[0] = message
        row[1] = state.chain_round[program.group_chain[program.message_group[message]]]
        row[2] = state.flow_begin_s[message]
        row[3] = state.clock[0]
        state.counters[FLOW_ROWS] += 1


@compile_function
def trace_rates(routes: Routes, state: State) -> None:
    """Append the links whose rate has changed to the trace."""
    rate = np.zeros(state.link_rate.size)
    for position in range(state.counters[FLOWS]):
        message = state.flow_messages[position]
        path = routes.path_of_message[message]
        for entry in range(routes.first_link[path], routes.first_link[path + 1]):
            rate[routes.links[entry]] += state.flow_rate[message]
    for link in range(rate.size):
        if rate[link] != state.link_rate[link]:
            state.link_rate[link] = rate[link]
            row = state.rate_rows[state.counters[RATE_ROWS]]
            row[0], row[1], row[2] = state.clock[0], link, rate[link]
            state.counters[RATE_ROWS] += 1
