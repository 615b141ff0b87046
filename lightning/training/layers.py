"""One layer as light computes it, for gradients: rounded to steps, multiplied, and the noise of its readouts added.

All rounding is straight-through: forward it rounds, backward it is not there
(Bengio, Leonard, Courville 2013, https://arxiv.org/abs/1308.3432). The units are those of
`lightning.compiler.model`: activations and weights are whole steps up to 255, a sum is their products over 256.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lightning.compiler.model import FULL
from lightning.optional import needed
from lightning.training.emulation import Emulation
from lightning.training.ranges import TINY, Range

torch = needed("torch", "to train networks")
functional = torch.nn.functional

Tensor = Any


def straight_through(values: Tensor, rounded: Tensor) -> Tensor:
    """Return `rounded`, with the gradient of `values`."""
    return values + (rounded - values).detach()


def in_steps(values: Tensor, scale: Tensor) -> Tensor:
    """Return the values as whole steps, -255 .. 255. What is cut off has no gradient: to move it would change nothing.

    The largest value of a range keeps its own, though division may put it a little above 255.
    """
    steps = (values / scale).clamp(-FULL - 0.5, FULL + 0.5)
    return straight_through(steps, steps.round().clamp(-FULL, FULL))


def weight_scale(weights: Tensor, *, per_channel: bool) -> Tensor:
    """Return what a step of a weight is worth, (rows,)."""
    largest = weights.detach().abs().flatten(1).amax(1)
    return (largest if per_channel else largest.amax().expand(len(largest))).clamp_min(TINY) / FULL


def draws_of(steps: Tensor, *, dense: bool, wavelengths: int) -> tuple[Tensor, Tensor]:
    """Return the readouts of sums of weights (rows, terms), and how many more add than subtract, (rows,).

    Products that share a readout share a sign; where weights of 0 are sent, they fill up what adds.
    """
    added = -(-(steps > 0).sum(1) // wavelengths)
    subtracted = -(-(steps < 0).sum(1) // wavelengths)
    draws = added + subtracted
    if dense:
        draws = draws.clamp_min(-(-steps.shape[1] // wavelengths))
    return draws, draws - 2 * subtracted


@dataclass
class PhotonicForward:
    """Stands in for `layer.forward` of a `Linear` or a `Conv2d`."""

    layer: Any
    range: Range
    emulation: Emulation
    generator: Any
    common_scale: Callable[[], Tensor] | None = None
    """What a step of a weight is worth, where all layers share it."""

    def __call__(self, activations: Tensor) -> Tensor:
        """Return the layer's outputs, rounded and noisy."""
        step = self.range.scale(activations, learning=self.layer.training)
        step_of_rows = self._weight_scale()
        steps = in_steps(activations, step)
        weights = in_steps(self.layer.weight, self._for_weights(step_of_rows))
        sums = self._multiplied(steps, weights) / 256
        noisy = sums + self._noise(sums.detach(), steps.detach(), weights.detach())
        results = noisy * (256 * step) * self._for_results(step_of_rows)
        return results if self.layer.bias is None else results + self._for_results(self.layer.bias)

    def _weight_scale(self) -> Tensor:
        weights = self.layer.weight
        if self.common_scale is not None:
            return self.common_scale().expand(len(weights))
        return weight_scale(weights, per_channel=self.emulation.options.per_channel)

    @property
    def _is_dense(self) -> bool:
        return isinstance(self.layer, torch.nn.Linear)

    def _multiplied(self, activations: Tensor, weights: Tensor) -> Tensor:
        if self._is_dense:
            return functional.linear(activations, weights)
        layer = self.layer
        return functional.conv2d(
            activations, weights, None, layer.stride, layer.padding, layer.dilation, layer.groups
        )

    def _for_weights(self, rows: Tensor) -> Tensor:
        return rows.reshape(-1, *[1] * (self.layer.weight.ndim - 1))

    def _for_results(self, rows: Tensor) -> Tensor:
        return rows if self._is_dense else rows.reshape(-1, 1, 1)

    def _noise(self, sums: Tensor, steps: Tensor, weights: Tensor) -> Tensor:
        """Return one draw for each sum, of the variance of all its readouts; see `execution.noise.Noise`."""
        noise = self.emulation.noise
        drawn = torch.randn(sums.shape, generator=self.generator)
        if not noise.drawn.per_readout:
            return self._per_output(sums, drawn)
        mean, variance = self._per_product(steps, weights)
        return mean + (variance / noise.average).sqrt() * drawn

    def _per_output(self, sums: Tensor, drawn: Tensor) -> Tensor:
        """Return the noise on a scale where an image's largest sum is 255, sign(x) * ||x| + n|: signs stay."""
        noise = self.emulation.noise
        largest = sums.abs().flatten(1).amax(1).clamp_min(TINY) / FULL
        step = largest.reshape(-1, *[1] * (sums.ndim - 1))
        level = sums.abs() / step
        deviation = (noise.variance(level) / noise.average).sqrt()
        noisy = (level + noise.mean + deviation * drawn).abs()
        return sums.sign() * noisy * step - sums

    def _per_product(self, steps: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        noise, passes = self.emulation.noise, 2 if self.range.signed else 1
        draws, net = draws_of(
            weights.flatten(1),
            dense=noise.drawn.dense,
            wavelengths=self.emulation.options.hardware.wavelengths,
        )
        mean = torch.zeros(()) if self.range.signed else noise.mean * self._for_results(net)
        constant, *growing = noise.coefficients
        variance = constant * passes * self._for_results(draws)
        for power, coefficient in enumerate(growing, 1):
            if coefficient:
                light = self._multiplied(steps.abs() ** power, weights.abs() ** power)
                variance = variance + coefficient * light / 256**power
        return mean, variance
