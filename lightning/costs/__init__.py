"""Costs of an inference on photonic hardware: time and energy, line by line, each figure with its source.

    from lightning.costs import costs_of
    costs = costs_of(model, "chip")
    costs.latency_s, costs.joules_per_image, costs.joules_without_converters
    for line in costs.lines: ...            # how many, of how much each, from where

| module | what it is for |
|---|---|
| `presets` | figures with their sources: the prototype, a published library of parts, digital hardware |
| `cost` | what an image makes the parts do; `costs_of` |
| `file_report` | what could be computed of an ONNX file, without samples |
| `shot_noise` | the limit that photons set, and accuracy against photons |
| `energy_plot` | plots of both |

An optical figure alone is no system figure: converters and memory are most of it, and every total includes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightbed.lazy import lazy_names

if TYPE_CHECKING:
    from lightning.costs.cost import Costs, Line, costs_of
    from lightning.costs.presets import BASELINES, PRESETS, Baseline, Figure, Preset

__all__ = ["BASELINES", "PRESETS", "Baseline", "Costs", "Figure", "Line", "Preset", "costs_of"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "cost": "Costs Line costs_of",
            "presets": "BASELINES PRESETS Baseline Figure Preset",
        },
    )
