"""Hardware as training emulates it: whose noise, and how networks become integers for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from lightning.compiler.options import Options
from lightning.execution.noise import Noise

QUIET = Noise(sigma=0.0)
"""No noise: integers alone."""
OF_NOISY_RANGES = 97.0
"""Percentile near which the compiler ends ranges where noise weighs: on LeNet-300-100 at sigma 5 it keeps as much."""


@dataclass(frozen=True, slots=True)
class Emulation:
    """The hardware that a module is trained for, as far as gradients can feel it.

    Activations and weights are rounded to the steps of `options.scheme`, and every sum gets the noise of its detector
    readouts. What `>> 8` cuts off a product, and a shift off an activation, is left out: the compiler gives the mean of
    the first back, and its variance of 1/12 is small compared with any noise worth training for. Ranges of activations
    end at the percentile that `options` asks for; at the 97th where noise is emulated and ranges are chosen by `error`
    for noise; else at the largest magnitude.
    """

    noise: Noise = QUIET
    options: Options = field(default_factory=Options)
    pixel: float = 1 / 255
    """What a level of raw data is worth after preprocessing; the `published` scheme sends levels as they are."""

    @property
    def percentile(self) -> float:
        """Percentile of the activations' magnitudes at which their range ends."""
        if self.options.ranges == "percentile":
            return self.options.percentile
        for_noise = self.options.ranges == "error" and self.options.sigma > 0
        return OF_NOISY_RANGES if for_noise and self.noise.sigma > 0 else 100.0
