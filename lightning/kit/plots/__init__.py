"""Plots of what the light did: matplotlib figures that nobody shows or saves by itself.

| plot | shows |
|---|---|
| `waveform` | what a readout recorded, and where the pulses were |
| `transfer_curves` | sweeps of modulators with their fits, and what the fits leave |
| `error_histogram` | how far results are from the true products |
| `constellation` | every result against its true product |

A notebook shows a figure that a cell returns; `save(figure, "x.png")` writes it. No state of pyplot is touched. All
raise `MissingLibrary` without matplotlib, and what comes from a simulated device says SIMULATED.
"""

from __future__ import annotations

from lightning.optional import needed

needed("matplotlib", "to draw plots")

from lightning.canvas import Plot, PlotError, save  # noqa: E402
from lightning.kit.plots.accuracy import constellation, error_histogram  # noqa: E402  after the look above
from lightning.kit.plots.curves import transfer_curves  # noqa: E402
from lightning.kit.plots.trace import waveform  # noqa: E402

__all__ = [
    "Plot",
    "PlotError",
    "constellation",
    "error_histogram",
    "save",
    "transfer_curves",
    "waveform",
]
