"""Growth of a cost with its input: a ratio within one run, which no load of the machine changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Input = TypeVar("Input")


def ratio_of_costs(work: Callable[[Input], object], small: Input, large: Input) -> float:
    """Return how many times as much processor time `work` takes on the large input: the least of three runs each."""
    return min(_cost_s(work, large) for _ in range(3)) / min(_cost_s(work, small) for _ in range(3))


def _cost_s(work: Callable[[Input], object], given: Input) -> float:
    began_s = time.thread_time()
    work(given)
    return time.thread_time() - began_s
