"""Interface of the plant between the outputs and the inputs of the board: cables, or the photonic kit.

The board requests the signal at one input for a range of samples. The plant reads the outputs that this signal depends
on, and returns the noiseless level. It also returns two standard deviations for each sample: of the noise of light and
receiver, and of the noise of the converter. The board draws the noise for each round, and converts the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt


class Outputs(Protocol):
    """Signals of the digital-to-analogue converters, on one time line that starts with the program."""

    def get_rate_hz(self, generator: int) -> float:
        """Return the sample rate of a generator's converter in Hz."""
        ...

    def read_samples(self, generator: int, first: int, count: int) -> npt.NDArray[np.float64]:
        """Return `count` samples from number `first`, as fractions of full scale from -1 to 1.

        `first` may be negative. Samples before the program come from the state after the previous run.
        """
        ...


@dataclass(frozen=True, slots=True)
class ReceivedSignal:
    """Signal at one analogue-to-digital converter, as fractions of its full scale."""

    level: npt.NDArray[np.float64]
    """(samples,) level without noise."""
    noise: npt.NDArray[np.float64]
    """(samples,) standard deviation of the noise before the converter; zeros for a plant without noise."""
    correlation: float
    """Correlation of `noise` at neighbouring samples (first-order autoregression), due to the limited bandwidth."""
    converter_noise: npt.NDArray[np.float64] | None = None
    """(samples,) standard deviation of the converter's own noise, including its rounding. It arises after all
    bandwidth limits, so neighbouring samples are independent. None for a converter that only rounds.
    """


class Plant(Protocol):
    """Interface of a plant: cables or the photonic kit."""

    @property
    def version(self) -> int:
        """Number that changes with the plant (drift, knobs). While it is the same, traces may be reused."""
        ...

    def elapse(self, duration_s: float) -> None:
        """Advance device time by `duration_s`. Null voltages and polarisation may drift."""
        ...

    def receive(
        self, readout: int, rate_hz: float, first: int, count: int, outputs: Outputs
    ) -> ReceivedSignal:
        """Return the signal at a readout for `count` samples from number `first`, at `rate_hz`."""
        ...
