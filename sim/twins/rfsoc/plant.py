"""The plant between the outputs and the inputs of the board: cables, or the photonic kit.

A plant is asked for what arrives at one input over a stretch of samples, and asks in its turn what the outputs
gave. It answers with the noiseless level and how large the noise of each sample is, that of light and receiver
and that of the converter; the board draws the noise, again for each round, and converts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt


class Outputs(Protocol):
    """Output of the digital-to-analogue converters, on one time line that begins with the program."""

    def rate_hz(self, generator: int) -> float:
        """Return samples per second of this generator's converter."""
        ...

    def samples(self, generator: int, first: int, count: int) -> npt.NDArray[np.float64]:
        """Return `count` samples from number `first` on, as fractions of the converter's full scale, -1 to 1.

        `first` may be negative: before the program there is silence.
        """
        ...


@dataclass(frozen=True, slots=True)
class Received:
    """Signal at one analogue-to-digital converter, sample by sample, as fractions of its full scale."""

    level: npt.NDArray[np.float64]
    """(samples,) without noise."""
    noise: npt.NDArray[np.float64]
    """(samples,) standard deviation of what arrives; zeros for a plant without noise."""
    correlation: float
    """Of that noise at neighbouring samples (an autoregression of first order): what bandwidth leaves."""
    own: npt.NDArray[np.float64] | None = None
    """(samples,) standard deviation of the converter's own noise, its rounding included: it comes behind every
    bandwidth, so neighbouring samples know nothing of each other. None for a converter that only rounds.
    """


class Plant(Protocol):
    """Cables or light."""

    @property
    def version(self) -> int:
        """Number that changes with the plant (drift, a knob); until then a trace may be reused."""
        ...

    def elapse(self, seconds: float) -> None:
        """Advance device time: biases drift, polarisation wanders."""
        ...

    def receive(self, readout: int, rate_hz: float, first: int, count: int, outputs: Outputs) -> Received:
        """Return the input of this readout in `count` samples from number `first` on, at `rate_hz`."""
        ...
