"""Loss by misaligned polarisation: modulators transmit one polarisation, and fibres rotate it slowly.

Malus's law (E. Hecht, Optics, chapter on polarisation): a polariser transmits cos^2 of the angle between light and
axis, and a small fraction of the blocked light, because its extinction is finite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sim.models.photonics import checks
from sim.models.photonics.decibels import convert_loss_to_transmission

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Polariser:
    """The polarising waveguide of a modulator behind a length of fibre."""

    extinction_db: float = 30.0
    """Ratio of the transmitted to the leaked polarisation."""
    diffusion_rad2_s: float = 1e-8
    """Growth of the variance of the angle per second: 6 mrad after an hour if nothing touches the fibre."""

    def __post_init__(self) -> None:
        checks.check_not_negative(extinction_db=self.extinction_db, diffusion_rad2_s=self.diffusion_rad2_s)


def compute_transmission(polariser: Polariser, angle_rad: npt.ArrayLike) -> Array:
    """Return the transmission, cos^2(angle) + sin^2(angle) 10^(-extinction/10).

    By hand, 0.3 rad off: 0.91267 + 0.08733 / 1000 = 0.91276, a loss of 0.40 dB.

    >>> f"{compute_transmission(Polariser(), 0.3):.5f}"
    '0.91276'
    """
    angle = np.asarray(angle_rad, dtype=np.float64)
    leaked_fraction = convert_loss_to_transmission(polariser.extinction_db)
    result: Array = leaked_fraction + (1.0 - leaked_fraction) * np.square(np.cos(angle))
    return result


def rotate_polarisation(
    polariser: Polariser, angle_rad: float, elapsed_s: float, normal_sample: float
) -> float:
    """Return the angle after `elapsed_s` of a random walk with variance D t. `normal_sample` is standard normal.

    A. Einstein, Ann. Phys. 17 (1905) 549, but with D as the growth of the variance, hence without the factor 2.

    By hand: sqrt(1e-8 rad^2/s * 3600 s) = 6 mrad.

    >>> f"{rotate_polarisation(Polariser(), 0.1, 3600.0, 1.0):.4f}"
    '0.1060'
    """
    checks.check_not_negative(elapsed_s=elapsed_s)
    return angle_rad + math.sqrt(polariser.diffusion_rad2_s * elapsed_s) * normal_sample


def compute_mean_transmission(polariser: Polariser, angle_rad: float, elapsed_s: float) -> float:
    """Return the expected transmission after `elapsed_s` of the random walk from `angle_rad`.

    The mean of cos^2 over a normal angle of variance v is (1 + cos(2 angle) exp(-2 v)) / 2, by the characteristic
    function of the normal distribution.

    >>> perfect = Polariser(extinction_db=200.0, diffusion_rad2_s=1e-8)
    >>> f"{compute_mean_transmission(perfect, 0.0, 1e7):.4f}"
    '0.9094'
    """
    variance = polariser.diffusion_rad2_s * elapsed_s
    leaked_fraction = convert_loss_to_transmission(polariser.extinction_db)
    mean_square_cosine = (1.0 + math.cos(2.0 * angle_rad) * math.exp(-2.0 * variance)) / 2.0
    return leaked_fraction + (1.0 - leaked_fraction) * mean_square_cosine
