"""Costs of an inference on photonic hardware: time and energy of each part, with sources.

    from lightning.costs import estimate_costs
    costs = estimate_costs(model, "chip")
    costs.latency_s, costs.joules_per_image, costs.joules_without_converters
    for line in costs.lines: ...            # count, energy per item, source

| module | contents |
|---|---|
| `presets` | figures with their sources: the prototype, a published library of parts, digital hardware |
| `cost` | `estimate_costs`: work of the parts for one image, and its energy |
| `file_report` | where each node of an ONNX file would run, and at which cost, without samples |
| `shot_noise` | the limit by shot noise: accuracy over photons |
| `energy_plot` | plots of energy, and of accuracy over photons |

Every total includes converters and memory, because they take most of a system's energy. The energy of the optics alone
says little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightbed.lazy import make_lazy_attributes

if TYPE_CHECKING:
    from lightning.costs.cost import Costs, Line, estimate_costs
    from lightning.costs.presets import BASELINES, PRESETS, Baseline, Figure, Preset

__all__ = ["BASELINES", "PRESETS", "Baseline", "Costs", "Figure", "Line", "Preset", "estimate_costs"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = make_lazy_attributes(
        __name__,
        {
            "cost": "Costs Line estimate_costs",
            "presets": "BASELINES PRESETS Baseline Figure Preset",
        },
    )
