"""The next event: a binary heap of timers in arrays, and the ends of flows at their rates.

The earliest timer comes first, the older of two equal ones first.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lightbed.compiled import compile_function
from sim.models.network.engine.program import ORDER, TIMERS, Floats, State

TOP: Any = np.int64(0)
"""The place of the first timer; of numpy, as for a plain 0 numba would translate functions again."""


@compile_function
def _swap(state: State, one: int, other: int) -> None:
    for array in (state.timer_order, state.timer_kind, state.timer_item):
        array[one], array[other] = array[other], array[one]
    seconds = state.timer_s[one]
    state.timer_s[one] = state.timer_s[other]
    state.timer_s[other] = seconds


@compile_function
def _before(state: State, one: int, other: int) -> bool:
    if state.timer_s[one] != state.timer_s[other]:
        return bool(state.timer_s[one] < state.timer_s[other])
    return bool(state.timer_order[one] < state.timer_order[other])


@compile_function
def set_timer(state: State, when_s: float, kind: int, item: int) -> None:
    """Set a timer for `item` at `when_s`."""
    place = state.number[TIMERS]
    state.timer_s[place] = when_s
    state.timer_order[place] = state.number[ORDER]
    state.timer_kind[place] = kind
    state.timer_item[place] = item
    state.number[TIMERS] += 1
    state.number[ORDER] += 1
    while place and _before(state, place, (place - 1) // 2):
        _swap(state, place, (place - 1) // 2)
        place = (place - 1) // 2


@compile_function
def take_timer(state: State) -> tuple[int, int]:
    """Remove the first timer: its kind and item."""
    kind, item = state.timer_kind[TOP], state.timer_item[TOP]
    state.number[TIMERS] -= 1
    size = state.number[TIMERS]
    _swap(state, TOP, size)
    place = TOP
    while True:
        child = 2 * place + 1
        if child >= size:
            return kind, item
        if child + 1 < size and _before(state, child + 1, child):
            child += 1
        if not _before(state, child, place):
            return kind, item
        _swap(state, place, child)
        place = child


@compile_function
def end_s(now_s: float, left: float, rate: float, begin_s: float, rounding: float) -> float:
    """Return the time when a flow that has `left` bytes ends; infinity for one that does not move."""
    if rate > 0:
        end = now_s + left / rate
        return round_end_s(begin_s, end, rounding) if rounding > 0 else end
    # an end that was put off comes now, even if the last bytes have taken the link along
    return np.inf if left > 0 else now_s


@compile_function
def round_end_s(begin_s: float, end_s: float, rounding: float) -> float:
    """Return the end of a flow, put off to a multiple of the largest power of two within `rounding` of its duration.

    Flows of like durations so end together, and rates are worked out once for all of them.
    """
    if end_s <= begin_s:
        return end_s
    _, exponent = math.frexp((end_s - begin_s) * rounding)
    step_s = math.ldexp(1.0, exponent - 1)
    return math.ceil(end_s / step_s) * step_s


@compile_function
def next_end_s(until_s: Floats) -> float:
    """Return the time when the first flow ends; infinity when none moves.

    Four at a time, so that none waits for the one before.
    """
    one = two = three = four = np.inf
    rest = until_s.size % 4
    for place in range(rest, until_s.size, 4):
        one = min(one, until_s[place])
        two = min(two, until_s[place + 1])
        three = min(three, until_s[place + 2])
        four = min(four, until_s[place + 3])
    for place in range(rest):
        one = min(one, until_s[place])
    return min(one, two, three, four)
