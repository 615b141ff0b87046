"""A binary heap of timers in arrays: the earliest first, the older of two equal ones first."""

from __future__ import annotations

from typing import Any

import numpy as np

from lightbed.compiled import compiled
from sim.models.network.engine.program import ORDER, TIMERS, State

TOP: Any = np.int64(0)
"""The place of the first timer; of numpy, as for a plain 0 numba would translate functions again."""


@compiled
def _swap(state: State, one: int, other: int) -> None:
    for array in (state.timer_order, state.timer_kind, state.timer_item):
        array[one], array[other] = array[other], array[one]
    seconds = state.timer_s[one]
    state.timer_s[one] = state.timer_s[other]
    state.timer_s[other] = seconds


@compiled
def _before(state: State, one: int, other: int) -> bool:
    if state.timer_s[one] != state.timer_s[other]:
        return bool(state.timer_s[one] < state.timer_s[other])
    return bool(state.timer_order[one] < state.timer_order[other])


@compiled
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


@compiled
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
