"""Ends of flows: each at its rate, put off where ends are rounded, and the first of all."""

from __future__ import annotations

import math

import numpy as np

from lightbed.compiled import compiled
from sim.models.network.engine.program import Floats


@compiled
def end_s(now_s: float, left: float, rate: float, begin_s: float, rounding: float) -> float:
    """Return the time when a flow that has `left` bytes ends; infinity for one that does not move."""
    if rate > 0:
        end = now_s + left / rate
        return rounded_end_s(begin_s, end, rounding) if rounding > 0 else end
    # an end that was put off comes now, even if the last bytes have taken the link along
    return np.inf if left > 0 else now_s


@compiled
def rounded_end_s(begin_s: float, end_s: float, rounding: float) -> float:
    """Return the end of a flow, put off to a multiple of the largest power of two within `rounding` of its duration.

    Flows of like durations so end together, and rates are worked out once for all of them.
    """
    if end_s <= begin_s:
        return end_s
    _, exponent = math.frexp((end_s - begin_s) * rounding)
    step_s = math.ldexp(1.0, exponent - 1)
    return math.ceil(end_s / step_s) * step_s


@compiled
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
