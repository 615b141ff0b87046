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
    """`published`: one scale for all weights, no biases, activations normalised by shifting. `scaled`: all else."""
    per_channel: bool = True
    """Whether every row has its own weight scale, else every layer."""
    ranges: Ranges = "error"
    """Method that chooses the largest activation without clipping (`lightning.compiler.schemes.ranges`)."""
    percentile: float = 99.9
    """Percentile of the nonzero magnitudes, for `ranges` of `percentile`."""
    sigma: float = MEASURED_SIGMA
    """The noise of a readout, of 255, for which ranges by `error` are chosen: more noise, smaller ranges. Averaging
    over K readouts divides it by the root of K; 0 is best for exact integers."""
    rounding: Rounding = "fitted"
    """Rounding of weights: `fitted` to the loss of `>> 8` (`compiler.schemes.scaled`), or to the `nearest` step."""
    correct_floor: bool = True
    """Whether the mean error of a row (mostly the mean loss of `>> 8`) is added to its bias."""
    wrap: bool = False
    """Sums wrap to 16 bits, as in the published datapath."""
    perfect_scaling: bool = False
    """Of `published`: activations are scaled to 0 .. 255 exactly, as the published emulator can, instead of shifted as
    its datapath does. Noise then matters less."""
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


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise OutOfRange(f"{name} {value!r} is not known", hint=f"Choose one of: {', '.join(known)}")
