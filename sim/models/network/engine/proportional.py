"""Proportionally fair rates: the rates of flows with equal windows over links with FIFO queues.

A sender with W bytes in flight has the rate W / round trip, and in a busy network the round trip is the sum of the
waits in the queues. So the rate of flow i is x_i = 1 / (sum of q_l over its links), where q_l is the wait at link l in
units of 1 / W, and a link with q_l > 0 is full. These rates maximise sum log x_i (Kelly, Maulloo and Tan, 1998; for
windows: Mo and Walrand, 2000). The max-min fair rates of `shares` belong to links with one queue per flow.

The waits are computed by coordinate ascent on the dual: each link in turn gets the wait at which it is just full while
the waits of the others stay. Each computation starts from the previous waits.
"""

from __future__ import annotations

import numpy as np

from lightbed.compiled import compile_function
from sim.models.network.engine.program import (
    DIRTY,
    FLOWS,
    JOINED,
    SHARES,
    Floats,
    Integers,
    Neighbours,
    State,
)
from sim.models.network.engine.timers import compute_end_s

RATE_TOLERANCE = 1e-9
"""The ascent ends when no wait changes by more than this part of the longest wait on its paths."""
_MAX_TURNS, _MAX_STEPS = 1000, 60
_RATE_GRID = 2.0**-24
"""Rates are rounded to multiples of this part of the next power of two, so that equal flows end together."""


@compile_function
def share_in_proportion(state: State, sharing: Neighbours, capacity: Floats) -> None:
    """Set the rates and ends of all moving flows."""
    counters = state.counters
    counters[SHARES] += 1
    for position in range(counters[DIRTY]):
        state.dirty_mark[state.dirty_links[position]] = 0
    counters[DIRTY] = sharing.counters[JOINED] = 0
    moving_flows = state.flow_messages[: counters[FLOWS]]
    flow_count = _count_flows_on_links(sharing, moving_flows)
    wait, price = sharing.share, sharing.price
    for link in range(capacity.size):
        if flow_count[link] == 0:
            price[link] = 0.0
        elif capacity[link] > 0 and price[link] == np.inf:
            price[link] = 0.0  # the link was dead, and has capacity again
        elif capacity[link] <= 0:
            price[link] = np.inf
    for message in moving_flows:
        wait[message] = price[
            sharing.links[sharing.first_link[message] : sharing.first_link[message + 1]]
        ].sum()
    for _ in range(_MAX_TURNS):
        largest_change = 0.0
        for link in range(capacity.size):
            if flow_count[link] and capacity[link] > 0:
                largest_change = max(
                    largest_change, _fill_link(sharing, link, flow_count[link], capacity[link])
                )
        if largest_change <= RATE_TOLERANCE:
            break
    _set_rates(state, sharing, moving_flows)


@compile_function
def _count_flows_on_links(sharing: Neighbours, moving_flows: Integers) -> Integers:
    """Return the number of flows on each link, and list these flows in `limited_paths` from `list_start` on."""
    count = sharing.free_count
    count[:] = 0
    for message in moving_flows:
        for entry in range(sharing.first_link[message], sharing.first_link[message + 1]):
            link = sharing.links[entry]
            sharing.limited_paths[sharing.list_start[link] + count[link]] = message
            count[link] += 1
    return count


@compile_function
def _fill_link(sharing: Neighbours, link: int, flow_count: int, capacity: float) -> float:
    """Set the wait at a link so that the link is just full, or to 0; return the change relative to the longest wait.

    The load falls with the wait and is convex, so Newton steps from below the root never pass it.
    """
    wait, begin, old_wait = sharing.share, sharing.list_start[link], sharing.price[link]
    smallest_wait, load = np.inf, 0.0
    for position in range(begin, begin + flow_count):
        message = sharing.limited_paths[position]
        wait[message] -= old_wait
        if wait[message] < 1e-14 * old_wait:
            wait[message] = 0.0  # a rounding error: this is the only link where the flow waits
        smallest_wait = min(smallest_wait, wait[message])
        load += 1.0 / wait[message] if wait[message] > 0 else np.inf
    own_wait = 0.0
    if load > capacity:
        # This start is below the root: with this wait, the flow with the least other waits would fill the link alone.
        own_wait = max(1.0 / capacity - smallest_wait, 0.0)
        for _ in range(_MAX_STEPS):
            load = slope = 0.0
            for position in range(begin, begin + flow_count):
                rate = 1.0 / (wait[sharing.limited_paths[position]] + own_wait)
                load += rate
                slope += rate * rate
            step = (load - capacity) / slope
            own_wait += step
            if step <= 1e-13 * own_wait:
                break
    longest_wait = 0.0
    for position in range(begin, begin + flow_count):
        message = sharing.limited_paths[position]
        wait[message] += own_wait
        if wait[message] < np.inf:
            longest_wait = max(longest_wait, wait[message])
    sharing.price[link] = own_wait
    return abs(own_wait - old_wait) / longest_wait if longest_wait > 0 else 0.0


@compile_function
def _set_rates(state: State, sharing: Neighbours, moving_flows: Integers) -> None:
    """Set the new rates, and the ends of the flows whose rate changes."""
    rate, bytes_left, updated_s, now = (
        state.flow_rate,
        state.flow_bytes_left,
        state.flow_updated_s,
        state.clock[0],
    )
    for position in range(moving_flows.size):
        message = moving_flows[position]
        new_rate = np.inf
        if sharing.first_link[message] < sharing.first_link[message + 1]:
            new_rate = _round_rate(1.0 / sharing.share[message])
        if new_rate != rate[message]:
            bytes_left[message] = max(bytes_left[message] - rate[message] * (now - updated_s[message]), 0.0)
            updated_s[message] = now
            rate[message] = new_rate
            begin_s = state.flow_begin_s[message]
            state.flow_end_s[position] = compute_end_s(
                now, bytes_left[message], new_rate, begin_s, state.tolerances[0]
            )


@compile_function
def _round_rate(rate: float) -> float:
    """Round a rate to a multiple of `_RATE_GRID` times the power of two above it."""
    if rate <= 0:
        return 0.0
    step = 2.0 ** np.ceil(np.log2(rate)) * _RATE_GRID
    return float(np.round(rate / step) * step)
