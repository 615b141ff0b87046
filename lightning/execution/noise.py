"""Noise of detector readouts: where it is drawn, how it grows with the light, and its limits.

`VARIANCE_TERMS` declares the terms of the variance. Machine code computes them with `kernels.laws`, up to a highest
power of the light. Everything else uses `Noise`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Literal

from lightning.compiler.measured import MEASURED_SIGMA
from lightning.compiler.model import FULL_VALUE
from lightning.errors import OutOfRange
from lightning.execution.kernels.laws import HIGHEST_POWER, NoiseLaw

Place = Literal["per-output", "per-product", "per-product-dense"]

MAX_NOISE = 1e4
"""Largest standard deviation: forty times full light. With more, sums of long rows would exceed 32 bits."""


@dataclass(frozen=True, slots=True)
class NoisePlace:
    """A place where noise is drawn."""

    per_readout: bool = True
    """True for one draw per readout of the detector, False for one per sum."""
    sends_zeros: bool = False
    """True if products whose weight is 0 are also read."""


PLACES: Mapping[Place, NoisePlace] = {
    "per-output": NoisePlace(per_readout=False),
    "per-product": NoisePlace(),
    "per-product-dense": NoisePlace(sends_zeros=True),
}


@dataclass(frozen=True, slots=True)
class VarianceTerm:
    """A term of the variance: a field of `Noise`, times a power of the level."""

    power: int
    is_deviation: bool = False
    """True if the field is a standard deviation, which must be squared; False for a variance."""

    def make_coefficient(self, field_value: float) -> float:
        """Return the factor of the power of the level."""
        return field_value**2 if self.is_deviation else field_value

    def scale(self, field_value: float, factor: float) -> float:
        """Return the number for `factor` times the standard deviation."""
        return field_value * (factor if self.is_deviation else factor * factor)

    @property
    def max_value(self) -> float:
        """The largest allowed value of the field, which gives a deviation of `MAX_NOISE` at full light."""
        return MAX_NOISE if self.is_deviation else MAX_NOISE**2 / FULL_VALUE**self.power


VARIANCE_TERMS: Mapping[str, VarianceTerm] = {
    "sigma": VarianceTerm(0, is_deviation=True),
    "shot": VarianceTerm(1),
    "intensity": VarianceTerm(2),
}
"""Terms of the variance by field of `Noise`."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Gaussian noise of detector readouts, in LSB (a product of 255 and 255 is 254 LSB).

    The variance of a readout at `level` is sigma^2 + shot * level + intensity * level^2. `per-product` draws per
    readout and omits products whose weight is 0; `per-product-dense` includes them. `per-output` draws once per sum, on
    a scale where the largest sum of the layer is 255, like the published emulation.
    """

    place: Place = "per-product"
    sigma: float = MEASURED_SIGMA
    mean: float = 0.0
    shot: float = 0.0
    """Variance per step of level."""
    intensity: float = 0.0
    """Relative variance, such as the laser's."""
    average: int = 1
    """Number of averaged readouts. It divides variances, but not the mean."""
    identity: str = ""
    """Identity of the calibration or link that the noise comes from; empty for the user's own numbers."""
    full_scale: float = 510.0
    """Magnitude at which the converter clips a readout, in steps per wavelength; by default twice a full product."""

    @property
    def place_properties(self) -> NoisePlace:
        """The place where the noise is drawn."""
        return PLACES[self.place]

    @property
    def law(self) -> NoiseLaw:
        """The dependence of the variance on the light."""
        if not self.place_properties.per_readout:
            return NoiseLaw.PER_OUTPUT
        return NoiseLaw.VARYING if any(self.coefficients[1:]) else NoiseLaw.CONSTANT

    @property
    def coefficients(self) -> tuple[float, ...]:
        """The variance of one readout as a polynomial of its level, lowest power first."""
        coefficients = [0.0] * (1 + max(HIGHEST_POWER, *(term.power for term in VARIANCE_TERMS.values())))
        for name, term in VARIANCE_TERMS.items():
            coefficients[term.power] += term.make_coefficient(getattr(self, name))
        return tuple(coefficients)

    @property
    def is_linear(self) -> bool:
        """True if dividing light among several readouts does not change the total variance."""
        return not any(self.coefficients[2:])

    def compute_variance(self, level: Any) -> Any:
        """Return the variance of one readout at these levels: numbers, arrays or tensors.

        >>> Noise(sigma=3.0, shot=0.5, intensity=0.25).compute_variance(2.0)
        11.0
        """
        constant, *higher_coefficients = self.coefficients
        return sum(
            (coefficient * level**power for power, coefficient in enumerate(higher_coefficients, 1)),
            start=constant,
        )

    def scale(self, factor: float) -> Noise:
        """Return the same noise with `factor` times the standard deviation and an unchanged mean.

        >>> Noise(sigma=2.0, shot=0.1).scale(3.0).sigma, round(Noise(shot=0.1).scale(3.0).shot, 12)
        (6.0, 0.9)
        """
        changes: dict[str, Any] = {
            name: term.scale(getattr(self, name), factor) for name, term in VARIANCE_TERMS.items()
        }
        return replace(self, **changes)


def check_noise(noise: Noise) -> Noise:
    """Return the noise unchanged. Raise `OutOfRange` for an invalid field."""
    if noise.place not in PLACES:
        raise OutOfRange(
            f"noise.place {noise.place!r} is not known", hint=f"Choose one of: {', '.join(PLACES)}"
        )
    for name, term in VARIANCE_TERMS.items():
        value = getattr(noise, name)
        if not 0 <= value <= term.max_value:
            raise OutOfRange(f"noise.{name} is {value}; it must be 0 to {term.max_value:g}")
    if any(noise.coefficients[HIGHEST_POWER + 1 :]):
        raise OutOfRange(
            f"the noise has a term beyond power {HIGHEST_POWER} of the light, which machine code does not compute",
            hint="Leave the term out, or add its power to lightning/execution/kernels/laws.py",
        )
    if not abs(noise.mean) <= MAX_NOISE:
        raise OutOfRange(f"noise.mean is {noise.mean}; it must be -{MAX_NOISE:g} to {MAX_NOISE:g}")
    check_average(noise.average)
    if not noise.full_scale > 0:
        raise OutOfRange(f"noise.full_scale is {noise.full_scale}; it must be above 0")
    return noise


def check_average(average: object) -> int:
    """Return the number of averaged readouts. Raise `OutOfRange` unless it is an integer of 1 or more."""
    if not isinstance(average, Integral) or int(average) < 1:
        raise OutOfRange(f"cannot average {average!r} readouts", hint="Give an integer of 1 or more")
    return int(average)
