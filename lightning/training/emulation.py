"""The hardware that training emulates: its noise, and the quantisation of the network."""

from __future__ import annotations

from dataclasses import dataclass, field

from lightning.compiler.options import Options
from lightning.execution.noise import Noise

NO_NOISE = Noise(sigma=0.0)
"""No noise: training emulates only the rounding to integers."""
NOISY_RANGE_PERCENTILE = 97.0
"""Percentile that approximates the compiler's ranges for noise, measured on LeNet-300-100 at sigma 5."""


@dataclass(frozen=True, slots=True)
class Emulation:
    """The hardware that training emulates.

    Activations and weights are rounded to the steps of `options.scheme`, and every sum gets the noise of its detector
    readouts. The truncation of products (`>> 8`) and of shifted activations is not emulated. The compiler corrects the
    mean error of truncated products, and their variance, 1/12, is small compared with any noise worth training for.
    Activation ranges end at the percentile that `options` requests. If noise is emulated and the compiler chooses
    ranges by `error` for noise, they end at the 97th percentile. Otherwise they end at the largest magnitude.
    """

    noise: Noise = NO_NOISE
    options: Options = field(default_factory=Options)
    raw_level: float = 1 / 255
    """Value of one raw level after preprocessing. Only the `published` scheme uses it, because it sends raw levels."""

    @property
    def percentile(self) -> float:
        """Percentile of the activations' magnitudes at which their range ends."""
        if self.options.ranges == "percentile":
            return self.options.percentile
        is_range_for_noise = self.options.ranges == "error" and self.options.sigma > 0
        return NOISY_RANGE_PERCENTILE if is_range_for_noise and self.noise.sigma > 0 else 100.0
