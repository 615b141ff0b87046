"""Costs of an inference on photonic hardware: time and energy, line by line, each figure with its source.

    from lightning.costs import costs_of
    costs = costs_of(model, "chip")
    costs.latency_s, costs.joules_per_image, costs.joules_without_converters
    for line in costs.lines: ...            # how many, of how much each, from where

| module | what it is for |
|---|---|
| `figures` | a number with its unit and its source |
| `presets` | `prototype`: the talk's table of powers; `chip`: parts of a published library |
| `work` | what an image makes the parts do |
| `cost` | `costs_of` |
| `baselines` | digital hardware for comparison, and what is assumed of it |
| `shot_noise` | the limit that photons set, and accuracy against photons |

An optical figure alone is no system figure: converters and memory are most of it, and every total includes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightbed.lazy import lazy_names

if TYPE_CHECKING:
    from lightning.costs.baselines import BASELINES, Baseline
    from lightning.costs.cost import Costs, Line, costs_of
    from lightning.costs.figures import Figure
    from lightning.costs.presets import PRESETS, Preset

__all__ = ["BASELINES", "PRESETS", "Baseline", "Costs", "Figure", "Line", "Preset", "costs_of"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "baselines": "BASELINES Baseline",
            "cost": "Costs Line costs_of",
            "figures": "Figure",
            "presets": "PRESETS Preset",
        },
    )
