"""The limit that photons set: they are counted, and counts scatter by their square root.

A product of `level` 0 .. 255 lets n * level / 255 of n photons through; of these eta are detected. The count's variance
is its mean (Poisson), so in LSB (255 are full scale) a readout has

    variance(level) = (255 / (eta n))^2 * eta n level / 255 = 255 level / (eta n)

which is `Noise(sigma=0, shot=255 / (eta n))`. Source: the standard quantum limit as used by Sludds et al.,
Delocalized photonic deep learning on the internet's edge (Netcast), Science 378:270 (2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightning.compiler.model import FULL, CompiledModel
from lightning.errors import OutOfRange
from lightning.execution.noise import Noise
from sim.models.photonics.laser import photon_energy_j

WAVELENGTH_M = 1550e-9
EFFICIENCY = 0.8
"""Quantum efficiency of a responsivity of 1 A/W at 1550 nm."""
FEW_PHOTONS = 10
"""With fewer a count is plainly not normal, as it is drawn here; only sums of many products still are."""
SEEDS = 3
"""Runs of which an accuracy is the mean."""


def shot_noise(photons: float, efficiency: float = EFFICIENCY) -> Noise:
    """Return the shot noise of light, if a product of 255 and 255 has `photons` photons. Raise `OutOfRange` for none.

    >>> shot_noise(255.0, 1.0).shot
    1.0
    """
    if not (photons > 0 and 0 < efficiency <= 1):
        raise OutOfRange(
            f"{photons} photons at an efficiency of {efficiency} give no light",
            hint="Give more than 0 photons, and an efficiency above 0 and up to 1",
        )
    return Noise(sigma=0.0, shot=FULL / (efficiency * photons), identity=f"shot noise, {photons:g} photons")


@dataclass(frozen=True, slots=True)
class ShotPoint:
    """Accuracy with so much light."""

    photons: float
    """In a product of 255 and 255, before the detector."""
    joules: float
    """Of that light."""
    accuracy: float
    """Mean over seeds, 0 .. 1."""
    spread: float
    """Sample deviation over seeds; 0 of a single one."""


def shot_noise_curve(
    model: CompiledModel,
    inputs: npt.ArrayLike,
    labels: npt.ArrayLike,
    photons: Sequence[float] = (0.1, 1, 3, 10, 30, 100, 300, 1000, 3000),
    *,
    efficiency: float = EFFICIENCY,
    seeds: int = SEEDS,
) -> tuple[ShotPoint, ...]:
    """Accuracy against photons a multiply, no other noise: what no receiver can beat with this scheme.

    `inputs` are raw (images, ...), `labels` (images,). Raises as executors do.
    """
    return tuple(_point(model, inputs, labels, each, efficiency, seeds) for each in photons)


def _point(
    model: CompiledModel,
    inputs: npt.ArrayLike,
    labels: npt.ArrayLike,
    photons: float,
    efficiency: float,
    seeds: int,
) -> ShotPoint:
    from lightning.execution import open_executor

    truth = np.asarray(labels)
    found = []
    for seed in range(seeds):
        executor = open_executor(model, "noisy", noise=shot_noise(photons, efficiency), seed=seed)
        found.append(float((executor.run(inputs).classes == truth).mean()))
    spread = float(np.std(found, ddof=1)) if seeds > 1 else 0.0
    return ShotPoint(photons, photons * photon_energy_j(WAVELENGTH_M), float(np.mean(found)), spread)
