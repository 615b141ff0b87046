"""Emulation of photonic layers in any torch module, inside a `with` block.

Rounding uses the straight-through estimator: values are rounded forward, and gradients pass unchanged
(Bengio, Leonard, Courville 2013, https://arxiv.org/abs/1308.3432). The units are those of
`lightning.compiler.model`: activations and weights are whole steps up to 255, a sum is their products over 256.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from lightning.compiler.model import FULL
from lightning.errors import CompileError
from lightning.optional import require
from lightning.training.emulation import Emulation

FORGETTING = 0.98
"""Factor by which a range shrinks at each batch that does not reach it."""
TINY = 1e-12
"""Keeps a layer of zeros from dividing by zero."""

overrides = require("torch.overrides", "to train networks")
PRODUCTS = frozenset(
    {
        *("matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "mv", "dot", "addmm", "baddbmm", "addmv"),
        *("linear", "bilinear", "einsum", "tensordot", "conv1d", "conv2d", "conv3d"),
    }
)
"""Names of torch functions that sum products."""
torch = require("torch", "to train networks")
Tensor = Any
KINDS = (torch.nn.Linear, torch.nn.Conv2d)
OTHERS = (
    *(torch.nn.Conv1d, torch.nn.Conv3d, torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d),
    *(torch.nn.ConvTranspose3d, torch.nn.Bilinear, torch.nn.RNNBase, torch.nn.MultiheadAttention),
)
"""Layers with weights that cannot be emulated. They are rejected, because otherwise they would train without noise."""


class Range(Protocol):
    """Range of a layer's activations."""

    signed: bool
    """Whether activations may be negative, which takes two passes."""

    def scale(self, activations: Tensor, *, learning: bool) -> Tensor:
        """Return the value of one step of these activations, in a shape that can divide them."""
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
        largest = self._update(activations.abs()).clamp_min(TINY)
        self.signed = self.signed or bool((activations < 0).any())
        self.largest = largest if self.largest is None else torch.maximum(largest, FORGETTING * self.largest)

    def _update(self, magnitudes: Tensor) -> Tensor:
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


functional = torch.nn.functional


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
    """Replacement for `layer.forward` of a `Linear` or a `Conv2d`."""

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
        along_rows = step_of_rows.reshape(-1, *[1] * (self.layer.weight.ndim - 1))
        weights = in_steps(self.layer.weight, along_rows)
        sums = self._multiply(steps, weights) / 256
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

    def _multiply(self, activations: Tensor, weights: Tensor) -> Tensor:
        if self._is_dense:
            return functional.linear(activations, weights)
        layer = self.layer
        return functional.conv2d(
            activations, weights, None, layer.stride, layer.padding, layer.dilation, layer.groups
        )

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
                light = self._multiply(steps.abs() ** power, weights.abs() ** power)
                variance = variance + coefficient * light / 256**power
        return mean, variance


class OutlierProducts(overrides.TorchFunctionMode):  # type: ignore[misc, name-defined]
    """While it is entered, a product with one of these parameters, or a view of it, raises `CompileError`."""

    def __init__(self, outliers: Mapping[str, Any]) -> None:
        super().__init__()
        self._names = {_memory(parameter): name for name, parameter in outliers.items()}

    def __torch_function__(
        self, function: Any, types: Any, arguments: Sequence[Any] = (), named: Mapping[str, Any] | None = None
    ) -> Any:
        """Call a function of torch, after checking its arguments if it sums products."""
        given = dict(named or {})
        if getattr(function, "__name__", "") in PRODUCTS:
            self._check((*arguments, *given.values()))
        return function(*arguments, **given)

    def _check(self, factors: Sequence[Any]) -> None:
        for factor in factors:
            if isinstance(factor, list | tuple):
                self._check(factor)
            elif isinstance(factor, torch.Tensor):
                name = self._names.get(_memory(factor))
                if name is not None:
                    raise _refuse(name)


def outliers_of(module: Any, layers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of two axes or more, by name, that are no weights of these layers: embeddings, factors."""
    ours = {id(layer.weight) for layer in layers.values()}
    return {
        name: parameter
        for name, parameter in module.named_parameters()
        if parameter.ndim >= 2 and id(parameter) not in ours and "parametrizations." not in name
    }


def _memory(tensor: Any) -> int:
    """Return where its numbers lie, which is what a view shares."""
    return int(tensor.untyped_storage().data_ptr())


def _refuse(name: str) -> CompileError:
    return CompileError(
        (
            f"parameter {name} is multiplied outside a Linear or Conv2d layer, so it cannot be trained "
            "with noise"
        ),
        hint="Make it the weight of a Linear layer",
    )


@contextmanager
def emulate(module: Any, emulation: Emulation, *, seed: int = 0) -> Iterator[Any]:
    """Make the `Linear` and `Conv2d` layers of a module compute with rounding and noise inside the `with` block.

    The module, its class, its parameters and its optimiser stay what they are; gradients pass as if nothing had been
    rounded. While layers are in training their ranges follow the activations. Raises `CompileError` for layers that
    cannot be emulated, and inside the block if a parameter is multiplied outside such a layer.

        with emulate(module, Emulation(Noise(sigma=5, place="per-product-dense"))):
            loss(module(images), labels).backward()
    """
    layers = photonic_layers(module)
    generator = torch.Generator().manual_seed(seed)
    common = (
        JointScale(tuple(layers.values()), emulation.pixel)
        if emulation.options.scheme == "published"
        else None
    )
    for index, layer in enumerate(layers.values()):
        known = common.range_of(index) if common else FixedRange(emulation.percentile)
        layer.forward = PhotonicForward(layer, known, emulation, generator, common)
    outliers = outliers_of(module, layers)
    try:
        with OutlierProducts(outliers) if outliers else nullcontext():
            yield module
    finally:
        for layer in layers.values():
            del layer.forward


@dataclass(frozen=True)
class JointScale:
    """A scale for all weights in the `published` scheme: max(1, largest magnitude) / 255."""

    layers: tuple[Any, ...]
    pixel: float
    """What a step of an activation is worth before the first layer."""

    def __call__(self) -> Tensor:
        """Return one number, of the weights as they are now."""
        with torch.no_grad():
            largest = torch.stack([layer.weight.abs().amax() for layer in self.layers]).amax()
        return largest.clamp_min(1.0) / FULL

    def range_of(self, index: int) -> ShiftedRange:
        """Return the range of the layer at this index in the chain; each before it makes a step worth 256 products."""
        return ShiftedRange(lambda: (256 * self()) ** index * self.pixel, shifts=index > 0)


def photonic_layers(module: Any) -> dict[str, Any]:
    """Return the layers that light can multiply for, by name. Raises `CompileError` for one that cannot be emulated."""
    named = dict(module.named_modules())
    for name, layer in named.items():
        _check(name or type(layer).__name__, layer)
    return {name: layer for name, layer in named.items() if isinstance(layer, KINDS)}


def _check(name: str, layer: Any) -> None:
    if isinstance(layer, OTHERS) and not isinstance(layer, KINDS):
        raise CompileError(
            f"{name} is a {type(layer).__name__}, which cannot be trained with noise",
            hint="Build it from Linear or Conv2d layers, or train that part separately",
        )
    if getattr(layer, "padding_mode", "zeros") != "zeros":
        raise CompileError(
            f"{name} pads with {layer.padding_mode!r}, but the hardware pads with zeros",
            hint='Give it padding_mode="zeros"',
        )
