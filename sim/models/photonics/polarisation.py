"""Modulators pass one polarisation; a fibre turns it at will, and a little further every minute.

Malus's law (E. Hecht, Optics, chapter on polarisation): cos^2 of the angle between light and axis passes, and of the
other part what the polariser's own extinction lets through.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sim.models.photonics import checks
from sim.models.photonics.decibels import attenuate

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Polariser:
    """The polarising waveguide of a modulator behind a length of fibre."""

    extinction_db: float = 30.0
    """Passed over blocked polarisation."""
    diffusion_rad2_s: float = 1e-8
    """Variance gained by the angle per second: after an hour 6 mrad, unless the fibre is touched."""

    def __post_init__(self) -> None:
        checks.not_negative(extinction_db=self.extinction_db, diffusion_rad2_s=self.diffusion_rad2_s)


def transmission(polariser: Polariser, angle_rad: npt.ArrayLike) -> Array:
    """Return cos^2(angle) + sin^2(angle) 10^(-extinction/10).

    By hand, 0.3 rad off: 0.91267 + 0.08733 / 1000 = 0.91276, a loss of 0.40 dB.

    >>> f"{transmission(Polariser(), 0.3):.5f}"
    '0.91276'
    """
    angle = np.asarray(angle_rad, dtype=np.float64)
    blocked = attenuate(polariser.extinction_db)
    result: Array = blocked + (1.0 - blocked) * np.square(np.cos(angle))
    return result


def step_rad(polariser: Polariser, angle_rad: float, elapsed_s: float, normal: float) -> float:
    """Return the angle after `elapsed_s` of a random walk of variance D t, for one standard normal number.

    A. Einstein, Ann. Phys. 17 (1905) 549, with D counted per angle: no factor 2.

    By hand: sqrt(1e-8 rad^2/s * 3600 s) = 6 mrad.

    >>> f"{step_rad(Polariser(), 0.1, 3600.0, 1.0):.4f}"
    '0.1060'
    """
    checks.not_negative(elapsed_s=elapsed_s)
    return angle_rad + math.sqrt(polariser.diffusion_rad2_s * elapsed_s) * normal


def mean_transmission(polariser: Polariser, angle_rad: float, elapsed_s: float) -> float:
    """Return expected transmission after a random walk of variance v: (1 + cos(2 angle) exp(-2 v)) / 2.

    cos^2 averaged over a normal angle (characteristic function of the normal distribution).

    >>> perfect = Polariser(extinction_db=200.0, diffusion_rad2_s=1e-8)
    >>> f"{mean_transmission(perfect, 0.0, 1e7):.4f}"
    '0.9094'
    """
    variance = polariser.diffusion_rad2_s * elapsed_s
    blocked = attenuate(polariser.extinction_db)
    squared = (1.0 + math.cos(2.0 * angle_rad) * math.exp(-2.0 * variance)) / 2.0
    return blocked + (1.0 - blocked) * squared
