"""Pairs and triples of jobs on one link under four policies: fair, weights, MLTCP (HotNets 2024), Cassini (NSDI 2024).

| figure | module | contents |
|---|---|---|
| 1 | `iteration_times` | mean and p99 of iteration times, and lost packets: modelled, and on the hosts of a lab |

The papers' job mixes are not public. All jobs here have the same period, and the communication fractions of `setup`.
"""

from __future__ import annotations

from importlib import import_module

from testbed.design.reproductions.figure import Figure
from testbed.design.reproductions.sharing.setup import Scale

MODULES = {1: "iteration_times"}


def load_figure(number: int) -> Figure[Scale]:
    """Return a figure by its number. Raises `ValueError` if we do not reproduce it."""
    if number not in MODULES:
        raise ValueError(
            f"figure {number} of sharing is not reproduced: choose from {', '.join(map(str, MODULES))}"
        )
    reproduced: Figure[Scale] = import_module(f"{__name__}.{MODULES[number]}").FIGURE
    return reproduced
