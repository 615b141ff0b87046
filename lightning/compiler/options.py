"""Options of compilation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from lightning.compiler.measured import MEASURED_SIGMA
from lightning.compiler.model import Hardware
from lightning.errors import OutOfRange

Scheme = Literal["published", "scaled"]
Ranges = Literal["error", "min-max", "percentile", "entropy"]
Rounding = Literal["fitted", "nearest"]


@dataclass(frozen=True, slots=True)
class Options:
    """Options of compilation. Raise `OutOfRange` for an invalid choice."""

    scheme: Scheme = "scaled"
    """`published` has one scale for all weights, no biases, and activations normalised by shifts. `scaled` has scales
    and biases for every network."""
    per_channel: bool = True
    """True for a weight scale per row, False for one per layer."""
    ranges: Ranges = "error"
    """Method that chooses the largest activation without clipping (`lightning.compiler.schemes.ranges`)."""
    percentile: float = 99.9
    """Percentile of the nonzero magnitudes, for the method `percentile`."""
    sigma: float = MEASURED_SIGMA
    """Noise of a readout in units of 1/255, for the method `error`. More noise leads to smaller ranges. Averaging over
    K readouts divides the noise by the root of K; for exact integers use 0."""
    rounding: Rounding = "fitted"
    """Rounding of weights: `fitted` to the loss of `>> 8` (`compiler.schemes.scaled`), or to the `nearest` step."""
    correct_floor: bool = True
    """True to correct the mean error of a row (mostly the mean loss of `>> 8`) in its bias."""
    wrap: bool = False
    """True if sums wrap to 16 bits, as in the published datapath."""
    perfect_scaling: bool = False
    """True to scale activations of `published` to exactly 0 .. 255, as the published emulator can. Its datapath shifts
    them instead. With scaling, noise matters less."""
    hardware: Hardware = field(default_factory=Hardware)
    seed: int = 0
    """Seed of the choice of samples, if there are more than needed."""

    def __post_init__(self) -> None:
        _check_choice("scheme", self.scheme, get_args(Scheme))
        _check_choice("ranges", self.ranges, get_args(Ranges))
        _check_choice("rounding", self.rounding, get_args(Rounding))
        if self.perfect_scaling and self.scheme != "published":
            raise OutOfRange(
                f"perfect scaling requires scheme published, but the scheme is {self.scheme}",
                hint="Choose --scheme published, or leave --perfect-scaling out: `scaled` has scales anyway",
            )
        if not 50 < self.percentile <= 100:
            raise OutOfRange(
                f"percentile is {self.percentile}; it must be above 50 and at most 100",
                hint="Use 99.9, or --ranges min-max",
            )
        if not (math.isfinite(self.sigma) and self.sigma >= 0):
            raise OutOfRange(f"sigma is {self.sigma}; it must be 0 or more")

    @property
    def document(self) -> Mapping[str, Any]:
        """The options as plain values, without the hardware, which a model stores separately."""
        return {name: value for name, value in asdict(self).items() if name != "hardware"}


def _check_choice(name: str, value: str, known_values: tuple[str, ...]) -> None:
    if value not in known_values:
        raise OutOfRange(f"{name} {value!r} is not known", hint=f"Choose one of: {', '.join(known_values)}")
