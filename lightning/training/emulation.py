"""What training is told of the hardware: whose noise, and how networks become integers for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from lightning.compiler.options import Options
from lightning.execution.seam import Noise

QUIET = Noise(sigma=0.0)
"""No noise: integers alone."""


@dataclass(frozen=True, slots=True)
class Emulation:
    """The hardware that a module is trained for, as far as gradients can feel it.

    Activations and weights are rounded to the steps of `options.scheme`, and every sum gets the noise of its detector
    readouts. What `>> 8` cuts off a product, and a shift off an activation, is left out: the compiler gives the mean of
    the first back, and its variance of 1/12 is small beside any noise worth training for. Ranges of activations end at
    the percentile that `options` asks for, and at the largest magnitude where it asks for something else.
    """

    noise: Noise = QUIET
    options: Options = field(default_factory=Options)
    pixel: float = 1 / 255
    """What a level of raw data is worth after preprocessing; the `published` scheme sends levels as they are."""

    @property
    def percentile(self) -> float:
        """Of activations' magnitudes, where their range ends."""
        return self.options.percentile if self.options.ranges == "percentile" else 100.0
