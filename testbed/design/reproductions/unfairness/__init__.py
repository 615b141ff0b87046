"""Unfairness between training jobs (HotNets 2022): the table and the time line, computed with our contention model.

| figure | module | contents |
|---|---|---|
| 1 | `speed_ups` | speed-up of jobs on one link when bandwidth is shared unfairly |
| 2 | `time_line` | two jobs on a link shared 50/50 and 60/40 |

Periods, communication fractions and weights are calibrated, because the paper's measured values are not public.
"""

from __future__ import annotations

from importlib import import_module

from testbed.design.reproductions.figure import Figure
from testbed.design.reproductions.unfairness.setup import Scale

MODULES = {1: "speed_ups", 2: "time_line"}


def load_figure(number: int) -> Figure[Scale]:
    """Return a figure by its number. Raises `ValueError` if we do not reproduce it."""
    if number not in MODULES:
        raise ValueError(
            f"figure {number} of unfairness is not reproduced: choose from {', '.join(map(str, MODULES))}"
        )
    reproduced: Figure[Scale] = import_module(f"{__name__}.{MODULES[number]}").FIGURE
    return reproduced
