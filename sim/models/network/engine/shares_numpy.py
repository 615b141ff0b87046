"""Max-min fair rates in numpy, for machines without numba: as `shares`, but recomputing all flows at every change."""

from __future__ import annotations

import numpy as np

from sim.models.network.engine.program import (
    DIRTY,
    FLOWS,
    SHARES,
    Floats,
    Indices,
    Integers,
    Neighbours,
    State,
)
from sim.models.network.engine.shares import LEVEL_FACTOR


def add_flows(state: State, sharing: Neighbours, begin: int) -> None:
    """Count the flows from index `begin` on at their links, and mark these links as changed."""
    _change_counts(state, sharing, state.flow_messages[begin : state.counters[FLOWS]], 1)


def remove_flows(state: State, sharing: Neighbours, end: int) -> None:
    """Remove the flows that have ended from their links. They follow the moving flows, up to `end`."""
    _change_counts(state, sharing, state.flow_messages[state.counters[FLOWS] : end], -1)


def _change_counts(state: State, sharing: Neighbours, messages: Integers, change: int) -> None:
    for message in messages:
        path = sharing.path_of_message[message]
        links = sharing.links[sharing.first_link[path] : sharing.first_link[path + 1]]
        sharing.flow_count_on_link[links] += change
        touched_links = links[state.dirty_mark[links] == 0]
        begin = state.counters[DIRTY]
        state.dirty_links[begin : begin + touched_links.size], state.dirty_mark[touched_links] = (
            touched_links,
            1,
        )
        state.counters[DIRTY] += touched_links.size


def set_fair_rates(state: State, sharing: Neighbours, capacity: Floats) -> None:
    """Set the fair rates of all moving flows, and the ends of flows whose rate changes."""
    state.counters[SHARES] += 1
    state.counters[DIRTY] = 0
    state.dirty_mark[:] = 0
    moving_flows = state.flow_messages[: state.counters[FLOWS]]
    rates = compute_fair_rates(
        sharing.path_of_message[moving_flows], sharing.first_link, sharing.links, capacity
    )
    changed_positions = np.flatnonzero(rates != state.flow_rate[moving_flows])
    moving_flows, rates, now = moving_flows[changed_positions], rates[changed_positions], state.clock[0]
    remaining = state.flow_bytes_left[moving_flows] - state.flow_rate[moving_flows] * (
        now - state.flow_updated_s[moving_flows]
    )
    state.flow_bytes_left[moving_flows] = remaining = np.maximum(remaining, 0.0)
    state.flow_updated_s[moving_flows] = now
    state.flow_rate[moving_flows] = rates
    wait_s = np.divide(remaining, rates, out=np.where(remaining > 0, np.inf, 0.0), where=rates > 0)
    state.flow_end_s[changed_positions] = now + wait_s
    if state.tolerances[0] > 0:
        _round_ends(state, changed_positions[rates > 0])


def _round_ends(state: State, changed_positions: Integers) -> None:
    """Round the ends of the flows at these indices, as `timers.round_end_s`."""
    begin_s, end_s = (
        state.flow_begin_s[state.flow_messages[changed_positions]],
        state.flow_end_s[changed_positions],
    )
    is_lasting = end_s > begin_s
    _, exponent = np.frexp((end_s - begin_s)[is_lasting] * state.tolerances[0])
    step_s = np.ldexp(1.0, exponent - 1)
    state.flow_end_s[changed_positions[is_lasting]] = np.ceil(end_s[is_lasting] / step_s) * step_s


def compute_fair_rates(paths: Integers, first: Integers, links: Indices, capacity: Floats) -> Floats:
    """Return max-min fair rates (flows,) in bytes/s of flows on `paths` (flows,), by water filling.

    A flow without links gets infinity.
    """
    length = first[paths + 1] - first[paths]
    flow_of = np.repeat(np.arange(paths.size), length)
    offset = np.arange(flow_of.size) - np.repeat(np.cumsum(length) - length, length)
    link_of = links[first[paths][flow_of] + offset]
    rates = np.where(length == 0, np.inf, -1.0)
    room = capacity.copy()
    while flow_of.size:
        count = np.bincount(link_of, minlength=capacity.size)
        equal_share = np.divide(room, count, out=np.full(room.shape, np.inf), where=count > 0)
        level = equal_share.min()
        rates[flow_of[equal_share[link_of] <= level * LEVEL_FACTOR]] = level
        is_stopped = rates[flow_of] >= 0
        room -= level * np.bincount(link_of[is_stopped], minlength=capacity.size)
        np.maximum(room, 0.0, out=room)
        flow_of, link_of = flow_of[~is_stopped], link_of[~is_stopped]
    return rates


def find_next_end_s(flow_end_s: Floats) -> float:
    """Return the time when the first flow ends; infinity when none moves."""
    return float(flow_end_s.min(initial=np.inf))
