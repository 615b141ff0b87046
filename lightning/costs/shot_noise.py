"""Shot noise: the limit of accuracy by the number of photons.

A product of `level` 0 .. 255 transmits n * level / 255 of n photons, and the detector counts a share eta of these. The
variance of the count equals its mean (Poisson), so in LSB (255 is full scale) the variance of a readout is

    variance(level) = (255 / (eta n))^2 * eta n level / 255 = 255 level / (eta n)

which is `Noise(sigma=0, shot=255 / (eta n))`. Source: the standard quantum limit in Sludds et al., Delocalized photonic
deep learning on the internet's edge (Netcast), Science 378:270 (2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightning.compiler.model import FULL_VALUE, CompiledModel
from lightning.errors import OutOfRange
from lightning.execution.noise import Noise
from sim.models.photonics.laser import compute_photon_energy_j

WAVELENGTH_M = 1550e-9
DETECTOR_EFFICIENCY = 0.8
"""Quantum efficiency for a responsivity of 1 A/W at 1550 nm."""
MIN_NORMAL_PHOTONS = 10
"""With fewer photons, the normal distribution of the noise is a poor model of a single count. It remains good for sums
of many products."""
SEED_COUNT = 3
"""Number of noise seeds whose accuracies are averaged."""


def make_shot_noise(photon_count: float, efficiency: float = DETECTOR_EFFICIENCY) -> Noise:
    """Return the shot noise for `photon_count` photons in a product of 255 and 255. Raise `OutOfRange` without light.

    >>> make_shot_noise(255.0, 1.0).shot
    1.0
    """
    if not (photon_count > 0 and 0 < efficiency <= 1):
        raise OutOfRange(
            f"{photon_count} photons at an efficiency of {efficiency} give no light",
            hint="Give more than 0 photons, and an efficiency above 0 and up to 1",
        )
    return Noise(
        sigma=0.0,
        shot=FULL_VALUE / (efficiency * photon_count),
        identity=f"shot noise, {photon_count:g} photons",
    )


@dataclass(frozen=True, slots=True)
class ShotPoint:
    """Accuracy at one light level."""

    photons: float
    """Photons in a product of 255 and 255, before the detector."""
    joules: float
    """Energy of these photons."""
    accuracy: float
    """Mean over seeds, 0 .. 1."""
    spread: float
    """Sample standard deviation over seeds; 0 for a single seed."""


def measure_shot_noise(
    model: CompiledModel,
    inputs: npt.ArrayLike,
    labels: npt.ArrayLike,
    photon_counts: Sequence[float] = (0.1, 1, 3, 10, 30, 100, 300, 1000, 3000),
    *,
    efficiency: float = DETECTOR_EFFICIENCY,
    seed_count: int = SEED_COUNT,
) -> tuple[ShotPoint, ...]:
    """Measure accuracy over photons per product, with shot noise only: an upper limit for every receiver.

    `inputs` are raw (images, ...), `labels` (images,). Raise the errors of executors, and `OutOfRange` without light.
    """
    return tuple(
        _measure_point(model, inputs, labels, photon_count, efficiency, seed_count)
        for photon_count in photon_counts
    )


def _measure_point(
    model: CompiledModel,
    inputs: npt.ArrayLike,
    labels: npt.ArrayLike,
    photon_count: float,
    efficiency: float,
    seed_count: int,
) -> ShotPoint:
    from lightning.execution import open_executor

    truth = np.asarray(labels)
    accuracies = []
    for seed in range(seed_count):
        executor = open_executor(model, "noisy", noise=make_shot_noise(photon_count, efficiency), seed=seed)
        accuracies.append(float((executor.run(inputs).classes == truth).mean()))
    spread = float(np.std(accuracies, ddof=1)) if seed_count > 1 else 0.0
    return ShotPoint(
        photon_count, photon_count * compute_photon_energy_j(WAVELENGTH_M), float(np.mean(accuracies)), spread
    )
