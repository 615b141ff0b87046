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
    program: Program, routes: Routes, state: State, sharing: Neighbours, capacity: Floats, until_s: float
) -> int:
    """Continue from `state` until all tasks have ended or the clock reaches `until_s`; return the reason to stop."""
    counters, clock, timer_s, ready = state.counters, state.clock, state.timer_s, state.ready_tasks
    is_tracing = state.flow_rows.shape[0] > 0
    next_flow_end_s = find_next_end_s(state.flow_end_s[: counters[FLOWS]])
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
            _handle_timer(program, routes, state, sharing, capacity, kind, item)
            continue
        if counters[DONE] == program.task_s.size:
            return FINISHED
        if counters[DIRTY] and state.rate_deadline_s[0] <= clock[0] + TICK_S:
            _recompute_rates(state, sharing, capacity)
            state.rate_deadline_s[0] = np.inf
            if is_tracing:
                trace_rates(routes, state)
            next_flow_end_s = find_next_end_s(state.flow_end_s[: counters[FLOWS]])
        next_event_s = min(next_flow_end_s, timer_s[0]) if counters[TIMERS] else next_flow_end_s
        if counters[DIRTY]:
            next_event_s = min(next_event_s, state.rate_deadline_s[0])
        if counters[IDLE] and next_event_s > clock[0] + TICK_S:
            occupy_devices(program, state)
            continue
        if (
            counters[ARMED]
            and counters[FLOWS]
            and next_flow_end_s == np.inf
            and next_event_s > clock[0] + TICK_S
        ):
            counters[ARMED] = 0
            return WOKE
        if next_event_s == np.inf:
            return STALLED
        if next_event_s > until_s:
            clock[0] = until_s
            return PAUSED
        clock[0] = max(next_event_s, clock[0])
        if next_flow_end_s > clock[0] + TICK_S:
            continue
        _end_flows(program, routes, state, sharing)
        next_flow_end_s = find_next_end_s(state.flow_end_s[: counters[FLOWS]])


@compile_function
def _recompute_rates(state: State, sharing: Neighbours, capacity: Floats) -> None:
    """Recompute the rates: proportionally fair if `sharing` has prices, else max-min fair."""
    if sharing.price.size:
        share_in_proportion(state, sharing, capacity)
    else:
        set_fair_rates(state, sharing, capacity)


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
    sharing: Neighbours,
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
        _start_flows(program, routes, state, sharing, capacity, item)
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
    program: Program, routes: Routes, state: State, sharing: Neighbours, capacity: Floats, group: int
) -> None:
    """Start a flow for each message of a group; a message without links or bytes needs none."""
    counters, flows, size_bytes, first_link = (
        state.counters,
        state.flow_messages,
        program.message_bytes,
        routes.first_link,
    )
    bytes_left, updated_s, begin_s = state.flow_bytes_left, state.flow_updated_s, state.flow_begin_s
    rate, end_s, position_of, now = state.flow_rate, state.flow_end_s, state.flow_position, state.clock[0]
    old_flow_count = counters[FLOWS]
    for message in range(program.message_first[group], program.message_first[group + 1]):
        path = routes.path_of_message[message]
        if size_bytes[message] == 0 or first_link[path] == first_link[path + 1]:
            continue
        position = counters[FLOWS]
        flows[position], position_of[message], end_s[position] = message, position, np.inf
        counters[FLOWS] += 1
        bytes_left[message] = size_bytes[message]
        updated_s[message] = begin_s[message] = now
        rate[message] = 0.0
    added_count = counters[FLOWS] - old_flow_count
    add_flows(state, sharing, old_flow_count)
    _set_rate_deadline(state, sharing, capacity, old_flow_count)
    state.remaining_flow_count[group] = added_count
    if added_count == 0:
        set_timer(state, now + program.tail_s[group], ARRIVED, group)


@compile_function
def _set_rate_deadline(state: State, sharing: Neighbours, capacity: Floats, begin: int) -> None:
    """Make the flows from index `begin` on wait for their rates.

    They wait for the share `tolerances[1]` of their durations.

    Max-min fair rates give a flow at least an equal part of each of its links, which bounds its duration.
    """
    deadline_s, lag, now = state.rate_deadline_s, state.tolerances[1], state.clock[0]
    if lag <= 0:
        deadline_s[0] = now
        return
    first, links, flow_count, bytes_left = (
        sharing.first_link,
        sharing.links,
        sharing.flow_count_on_link,
        state.flow_bytes_left,
    )
    for position in range(begin, state.counters[FLOWS]):
        message, max_s_per_byte = state.flow_messages[position], 0.0
        path = sharing.path_of_message[message]
        for entry in range(first[path], first[path + 1]):
            link = links[entry]
            if capacity[link] > 0:
                max_s_per_byte = max(max_s_per_byte, flow_count[link] / capacity[link])
        deadline_s[0] = min(deadline_s[0], now + lag * max_s_per_byte * bytes_left[message])


@compile_function
def _end_flows(program: Program, routes: Routes, state: State, sharing: Neighbours) -> None:
    """Remove the flows that have ended; the last flow of a group sets the timer of the group's arrival."""
    counters, flows, end_s, size_bytes = (
        state.counters,
        state.flow_messages,
        state.flow_end_s,
        program.message_bytes,
    )
    first_link, links, link_bytes, group_of = (
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
    position, old_flow_count, shortest_s = 0, counters[FLOWS], np.inf
    while position < counters[FLOWS]:
        if end_s[position] > now + TICK_S:
            position += 1
            continue
        counters[FLOWS] -= 1
        message, last_position = flows[position], counters[FLOWS]
        flows[position], flows[last_position], end_s[position] = (
            flows[last_position],
            message,
            end_s[last_position],
        )
        position_of[flows[position]] = position
        shortest_s = min(shortest_s, now - state.flow_begin_s[message])
        path = path_of[message]
        for entry in range(first_link[path], first_link[path + 1]):
            link_bytes[links[entry]] += size_bytes[message]
        flow_count_left[group_of[message]] -= 1
        if flow_count_left[group_of[message]] == 0:
            set_timer(state, now + program.tail_s[group_of[message]], ARRIVED, group_of[message])
    if counters[FLOWS] < old_flow_count:
        remove_flows(state, sharing, old_flow_count)
        state.rate_deadline_s[0] = min(state.rate_deadline_s[0], now + state.tolerances[1] * shortest_s)
        trace_flows(program, state, old_flow_count)


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
def trace_flows(program: Program, state: State, old_flow_count: int) -> None:
    """Append the flows that have just ended to the trace.

    They follow the moving ones in `flow_messages`, up to `old_flow_count`.
    """
    if state.flow_rows.shape[0] == 0:
        return
    for position in range(state.counters[FLOWS], old_flow_count):
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
