"""SiP-ML (Khani et al., SIGCOMM 2021): iterations of hybrid strategies on optical and electrical fabrics.

| figure | module | contents |
|---|---|---|
| 1 | `iteration_times` | iteration times of three models, over wavelengths and over the rate of fat-trees |
| 2 | `strategies` | iteration times over the number of GPUs per copy of the model |
| 3 | `reconfiguration` | SiP-OCS with circuits for each kind of traffic, over the switching time |

The numbering is ours. Profiles of the paper's models are not public, so we compare trends instead of values.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from testbed.design.reproductions.figure import Figure, Table
from testbed.design.reproductions.sip_ml.setup import Scale

MODULES = {1: "iteration_times", 2: "strategies", 3: "reconfiguration"}


def load_figure(number: int) -> Figure[Scale]:
    """Return a figure by its number. Raises `ValueError` if we do not reproduce it."""
    if number not in MODULES:
        raise ValueError(
            f"figure {number} of sip-ml is not reproduced: choose from {', '.join(map(str, MODULES))}"
        )
    reproduced: Figure[Scale] = import_module(f"{__name__}.{MODULES[number]}").FIGURE
    return reproduced


def describe(tables: Mapping[int, Table]) -> dict[str, Any]:
    """Return the table of figure 1 as a section of a JSON document, or {} without it.

    `wavelengths` is null for electrical fabrics.
    """
    if 1 not in tables:
        return {}
    return {
        "iterations": [
            {**row, "wavelengths": int(row["wavelengths"]) or None, "pieces": int(row["pieces"])}
            for row in tables[1].records
        ]
    }
