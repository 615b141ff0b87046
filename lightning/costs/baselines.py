"""Digital hardware to compare with. The assumptions decide more than the physics: both are always shown.

>>> [f"{each.joules_per_mac * 1e12:.2f} pJ" for each in BASELINES]
['25.65 pJ', '0.80 pJ', '5.21 pJ', '0.92 pJ']
"""

from __future__ import annotations

from dataclasses import dataclass

from lightning.costs.figures import LIGHTNING_ENERGY


@dataclass(frozen=True, slots=True)
class Baseline:
    """Energy of a multiply-accumulate on other hardware, and on what assumption."""

    name: str
    power_w: float
    macs_per_s: float
    assumption: str
    source: str

    @property
    def joules_per_mac(self) -> float:
        """Power over rate."""
        return self.power_w / self.macs_per_s


BASELINES = (
    Baseline(
        "A100, CUDA cores",
        250.0,
        6912 * 1.41e9,
        "one multiply-accumulate a CUDA core and cycle, all cores busy, tensor cores idle",
        LIGHTNING_ENERGY,
    ),
    Baseline(
        "A100, tensor cores, int8",
        250.0,
        624e12 / 2,
        "624 TOPS of int8, all of them busy; from memory, not verified",
        "data sheet of the A100",
    ),
    Baseline(
        "Brainwave",
        125.0,
        96_000 * 0.25e9,
        "96,000 multipliers at 250 MHz, all of them busy",
        LIGHTNING_ENERGY,
    ),
    Baseline(
        "Lightning's chip, as claimed",
        91.875,
        1024 * 97e9,
        "1,024 cores at 97 GHz, all of them busy; synthesis and extrapolation, never built",
        LIGHTNING_ENERGY,
    ),
)
"""The first two are the two ways to count the same device: 32 times apart."""
