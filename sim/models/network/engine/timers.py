"""The next event: a binary heap of timers in arrays, and the ends of flows at their rates.

The earliest timer comes first; among timers at equal times, the older one comes first.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lightbed.compiled import compile_function
from sim.models.network.engine.program import ORDER, TIMERS, Floats, State

TOP: Any = np.int64(0)
"""Index of the first timer; a numpy integer, because numba would compile the functions again for a plain 0."""


@compile_function
def _swap(state: State, first: int, second: int) -> None:
    for array in (state.timer_order, state.timer_kind, state.timer_item):
        array[first], array[second] = array[second], array[first]
    seconds = state.timer_s[first]
    state.timer_s[first] = state.timer_s[second]
    state.timer_s[second] = seconds


@compile_function
def _precedes(state: State, first: int, second: int) -> bool:
    if state.timer_s[first] != state.timer_s[second]:
        return bool(state.timer_s[first] < state.timer_s[second])
    return bool(state.timer_order[first] < state.timer_order[second])


@compile_function
def set_timer(state: State, when_s: float, kind: int, item: int) -> None:
    """Set a timer for `item` at `when_s`."""
    position = state.counters[TIMERS]
    state.timer_s[position] = when_s
    state.timer_order[position] = state.counters[ORDER]
    state.timer_kind[position] = kind
    state.timer_item[position] = item
    state.counters[TIMERS] += 1
    state.counters[ORDER] += 1
    while position and _precedes(state, position, (position - 1) // 2):
        _swap(state, position, (position - 1) // 2)
        position = (position - 1) // 2


@compile_function
def pop_timer(state: State) -> tuple[int, int]:
    """Remove the first timer and return its kind and item."""
    kind, item = state.timer_kind[TOP], state.timer_item[TOP]
    state.counters[TIMERS] -= 1
    size = state.counters[TIMERS]
    _swap(state, TOP, size)
    position = TOP
    while True:
        child = 2 * position + 1
        if child >= size:
            return kind, item
        if child + 1 < size and _precedes(state, child + 1, child):
            child += 1
        if not _precedes(state, child, position):
            return kind, item
        _swap(state, position, child)
        position = child


@compile_function
def compute_end_s(
    now_s: float, remaining_bytes: float, rate: float, begin_s: float, rounding: float
) -> float:
    """Return when a flow with `remaining_bytes` ends at this rate; infinity if it has bytes left and a rate of 0."""
    if rate > 0:
        end = now_s + remaining_bytes / rate
        return round_end_s(begin_s, end, rounding) if rounding > 0 else end
    # With no bytes left only a rounded end lies ahead: if the link dies before it, the flow ends now.
    return np.inf if remaining_bytes > 0 else now_s


@compile_function
def round_end_s(begin_s: float, end_s: float, rounding: float) -> float:
    """Return the end of a flow, rounded up to a multiple of the largest power of two within `rounding` x its duration.

    Flows of similar durations then end together, and rates are computed once for all of them.
    """
    if end_s <= begin_s:
        return end_s
    _, exponent = math.frexp((end_s - begin_s) * rounding)
    step_s = math.ldexp(1.0, exponent - 1)
    return math.ceil(end_s / step_s) * step_s


@compile_function
def find_next_end_s(flow_end_s: Floats) -> float:
    """Return the time when the first flow ends; infinity if none moves.

    Four independent minima keep the processor from waiting for the previous comparison.
    """
    minimum_0 = minimum_1 = minimum_2 = minimum_3 = np.inf
    remainder_count = flow_end_s.size % 4
    for position in range(remainder_count, flow_end_s.size, 4):
        minimum_0 = min(minimum_0, flow_end_s[position])
        minimum_1 = min(minimum_1, flow_end_s[position + 1])
        minimum_2 = min(minimum_2, flow_end_s[position + 2])
        minimum_3 = min(minimum_3, flow_end_s[position + 3])
    for position in range(remainder_count):
        minimum_0 = min(minimum_0, flow_end_s[position])
    return min(minimum_0, minimum_1, minimum_2, minimum_3)
