"""Noise of detector readouts: where it is drawn, how it grows with the light, and the limits of both.

The formula of the variance stands here, in the loops of `kernels` and in `lightning.training.layers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Literal

from lightning.compiler.measured import MEASURED_SIGMA
from lightning.compiler.model import FULL
from lightning.errors import OutOfRange
from lightning.execution.kernels.law_numbers import NoiseLaw

Place = Literal["per-output", "per-product", "per-product-dense"]

LARGEST_NOISE = 1e4
"""Forty times full light: beyond it sums of long rows would not be 32-bit numbers any more."""


@dataclass(frozen=True, slots=True)
class NoisePlace:
    """A place where noise is drawn."""

    per_readout: bool = True
    """Whether every readout of the detector has noise of its own; else every sum has."""
    dense: bool = False
    """Whether products whose weight is 0 are read, too."""


PLACES: Mapping[Place, NoisePlace] = {
    "per-output": NoisePlace(per_readout=False),
    "per-product": NoisePlace(),
    "per-product-dense": NoisePlace(dense=True),
}


@dataclass(frozen=True, slots=True)
class Noise:
    """Gaussian noise of detector readouts, in LSB (a product of 255 and 255 is 254 of them).

    The variance of a readout at `level` is sigma^2 + shot * level + intensity * level^2. `per-product` leaves out
    products whose weight is 0, `per-product-dense` does not; `per-output` draws once for a sum, on a scale on which
    the largest sum of the layer is 255, as the published emulation does.
    """

    place: Place = "per-product"
    sigma: float = MEASURED_SIGMA
    mean: float = 0.0
    shot: float = 0.0
    """Variance per step of level."""
    intensity: float = 0.0
    """Relative variance: of the laser."""
    average: int = 1
    """Readouts of which the mean is taken: variances are divided by it, the mean is not."""
    identity: str = ""
    """Whose noise this is: the calibration it was fitted in; empty where the numbers were given."""
    full_scale: float = 510.0
    """Where the converter clips a readout, both ways, in steps for each wavelength: twice a full product by default."""

    @property
    def drawn(self) -> NoisePlace:
        """The place where it is drawn."""
        return PLACES[self.place]

    @property
    def law(self) -> NoiseLaw:
        """The dependence of its variance on the light."""
        if not self.drawn.per_readout:
            return NoiseLaw.PER_OUTPUT
        return NoiseLaw.VARYING if self.shot or self.intensity else NoiseLaw.CONSTANT


def check_noise(noise: Noise) -> Noise:
    """Return the noise, if it can be. Raises `OutOfRange`."""
    if noise.place not in PLACES:
        raise OutOfRange(
            f"noise.place {noise.place!r} is not known", hint=f"Choose one of: {', '.join(PLACES)}"
        )
    square = LARGEST_NOISE**2
    most = {"sigma": LARGEST_NOISE, "shot": square / FULL, "intensity": square / FULL**2}
    for name, limit in most.items():
        value = getattr(noise, name)
        if not 0 <= value <= limit:
            raise OutOfRange(f"noise.{name} is {value}, and must be of 0 .. {limit:g}")
    if not abs(noise.mean) <= LARGEST_NOISE:
        raise OutOfRange(
            f"noise.mean is {noise.mean}, and must be of -{LARGEST_NOISE:g} .. {LARGEST_NOISE:g}"
        )
    check_average(noise.average)
    if not noise.full_scale > 0:
        raise OutOfRange(f"noise.full_scale is {noise.full_scale}, and must be above 0")
    return noise


def check_average(average: object) -> int:
    """Return a number of readouts. Raises `OutOfRange`."""
    if not isinstance(average, Integral) or int(average) < 1:
        raise OutOfRange(f"{average!r} readouts cannot be averaged", hint="Average 1 or more, a whole number")
    return int(average)
