"""MixNet (Liao et al., SIGCOMM 2025): iteration times of mixtures of experts on four networks, and network costs.

| figure | module | contents |
|---|---|---|
| 1 | `iteration_times` | four models at four rates on four designs, normalised as published |
| 2 | `interconnect_cost` | performance per dollar relative to a fat-tree, from the published times and from ours |
| 3 | `sensitivity` | how each assumed parameter changes the differences of figure 1 |

`models` holds all parameters with their sources, `model` the formulas, `published` the table of the project's page.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from testbed.design.reproductions.figure import Figure, Record, Table
from testbed.design.reproductions.mixnet.setup import Scale

MODULES = {1: "iteration_times", 2: "interconnect_cost", 3: "sensitivity"}


def load_figure(number: int) -> Figure[Scale]:
    """Return a figure by its number. Raises `ValueError` if we do not reproduce it."""
    if number not in MODULES:
        raise ValueError(
            f"figure {number} of mixnet is not reproduced: choose from {', '.join(map(str, MODULES))}"
        )
    reproduced: Figure[Scale] = import_module(f"{__name__}.{MODULES[number]}").FIGURE
    return reproduced


def describe(tables: Mapping[int, Table]) -> dict[str, Any]:
    """Return the given tables, which are keyed by figure number, as sections of a JSON document."""
    names = {1: "table", 2: "cost", 3: "sensitivity"}
    return {names[number]: [_describe_row(row) for row in table.records] for number, table in tables.items()}


def _describe_row(row: Record) -> dict[str, Any]:
    count_columns = ("gbps", "topoopt_last", "of")
    return {name: int(cell) if name in count_columns else cell for name, cell in row.items()}
