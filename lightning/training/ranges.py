"""Ranges of activations: what a step of them is worth, in either scheme."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

from lightning.compiler.model import FULL
from lightning.optional import needed

torch = needed("torch", "to train networks")

FORGETTING = 0.98
"""What is left of a range after a batch that does not need it."""
TINY = 1e-12
"""Keeps a layer of zeros from dividing by zero."""

Tensor = Any


class Range(Protocol):
    """Range of a layer's activations."""

    signed: bool
    """Whether they may be negative: two passes."""

    def scale(self, activations: Tensor, *, learning: bool) -> Tensor:
        """Return what a step of these activations is worth, shaped to divide them."""
        ...


class FixedRange:
    """The largest magnitude that is kept, of all batches; it fades when later ones do not reach it: scheme `scaled`.

    With `percentile` below 100 it is that of a batch's magnitudes other than 0, and what is larger is cut off.
    """

    def __init__(self, percentile: float = 100.0) -> None:
        self.percentile = percentile
        self.largest: Tensor = None
        self.signed = False

    def scale(self, activations: Tensor, *, learning: bool) -> Tensor:
        """Return one number. The range follows the activations while `learning`."""
        if learning or self.largest is None:
            self._follow(activations.detach())
        return self.largest / FULL

    def _follow(self, activations: Tensor) -> None:
        largest = self._kept(activations.abs()).clamp_min(TINY)
        self.signed = self.signed or bool((activations < 0).any())
        self.largest = largest if self.largest is None else torch.maximum(largest, FORGETTING * self.largest)

    def _kept(self, magnitudes: Tensor) -> Tensor:
        seen = magnitudes[magnitudes > 0]
        if self.percentile >= 100 or not len(seen):
            return magnitudes.amax()
        return seen.kthvalue(math.ceil(len(seen) * self.percentile / 100)).values


class ShiftedRange:
    """Image by image the power of two that gives the largest activation 8 bits: scheme `published`.

    `base` is what a step would be worth without any shift. Pixels, before the first layer, are not shifted.
    """

    def __init__(self, base: Callable[[], Tensor], *, shifts: bool) -> None:
        self.base = base
        self.shifts = shifts
        self.signed = False

    def scale(self, activations: Tensor, *, learning: bool) -> Tensor:
        """Return a number for each image, (images, 1, ...), or one number for pixels."""
        base = self.base()
        if not self.shifts:
            return base
        largest = activations.detach().flatten(1).amax(1).clamp_min(TINY) / base
        steps = base * torch.exp2(torch.floor(torch.log2(largest)) - 7)
        return steps.reshape(-1, *[1] * (activations.ndim - 1))
