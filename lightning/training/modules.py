"""Emulation of photonic layers in any torch module, inside a `with` block.

Rounding uses the straight-through estimator: the forward pass rounds values, and gradients pass unchanged
(Bengio, Leonard, Courville 2013, https://arxiv.org/abs/1308.3432). The units are those of
`lightning.compiler.model`: activations and weights are integers up to 255, and sums add their products / 256.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from lightning.compiler.model import FULL_VALUE
from lightning.errors import CompileError
from lightning.optional import require
from lightning.training.emulation import Emulation

RANGE_DECAY = 0.98
"""Factor by which a range shrinks with each batch that does not reach it."""
MIN_SCALE = 1e-12
"""Lower limit of a scale, against division by zero in a layer of zeros."""

overrides = require("torch.overrides", "to train networks")
PRODUCT_FUNCTIONS = frozenset(
    {
        *("matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "mv", "dot", "addmm", "baddbmm", "addmv"),
        *("linear", "bilinear", "einsum", "tensordot", "conv1d", "conv2d", "conv3d"),
    }
)
"""Names of torch functions that compute sums of products."""
torch = require("torch", "to train networks")
Tensor = Any
SUPPORTED_LAYERS = (torch.nn.Linear, torch.nn.Conv2d)
UNSUPPORTED_LAYERS = (
    *(torch.nn.Conv1d, torch.nn.Conv3d, torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d),
    *(torch.nn.ConvTranspose3d, torch.nn.Bilinear, torch.nn.RNNBase, torch.nn.MultiheadAttention),
)
"""Layers with weights that cannot be emulated. They are refused, because they would be trained without noise."""


class ActivationRange(Protocol):
    """Range of the activations of a layer."""

    is_signed: bool
    """True if activations may be negative, which takes two passes."""

    def compute_step(self, activations: Tensor, *, is_learning: bool) -> Tensor:
        """Return the value of one step of the activations, in a shape that broadcasts with them."""
        ...


class FixedRange:
    """Range of the `scaled` scheme: the largest magnitude of all batches. It decays while batches do not reach it.

    With a `percentile` below 100, this percentile of a batch's nonzero magnitudes replaces the largest magnitude, and
    larger activations are clipped.
    """

    def __init__(self, percentile: float = 100.0) -> None:
        self.percentile = percentile
        self.largest_magnitude: Tensor = None
        self.is_signed = False

    def compute_step(self, activations: Tensor, *, is_learning: bool) -> Tensor:
        """Return the value of one step, a scalar. Update the range first if `is_learning`, or at the first call."""
        if is_learning or self.largest_magnitude is None:
            self._update(activations.detach())
        return self.largest_magnitude / FULL_VALUE

    def _update(self, activations: Tensor) -> None:
        largest = self._find_batch_range(activations.abs()).clamp_min(MIN_SCALE)
        self.is_signed = self.is_signed or bool((activations < 0).any())
        self.largest_magnitude = (
            largest
            if self.largest_magnitude is None
            else torch.maximum(largest, RANGE_DECAY * self.largest_magnitude)
        )

    def _find_batch_range(self, magnitudes: Tensor) -> Tensor:
        nonzero = magnitudes[magnitudes > 0]
        if self.percentile >= 100 or not len(nonzero):
            return magnitudes.amax()
        return nonzero.kthvalue(math.ceil(len(nonzero) * self.percentile / 100)).values


class ShiftedRange:
    """Range of the `published` scheme: each image is shifted so that its largest activation has 8 bits.

    `compute_base_step` returns the value of a step without a shift. The pixels before the first layer are not shifted.
    """

    def __init__(self, compute_base_step: Callable[[], Tensor], *, is_shifted: bool) -> None:
        self.compute_base_step = compute_base_step
        self.is_shifted = is_shifted
        self.is_signed = False

    def compute_step(self, activations: Tensor, *, is_learning: bool) -> Tensor:
        """Return a scale for each image, (images, 1, ...), or a scalar for pixels."""
        base = self.compute_base_step()
        if not self.is_shifted:
            return base
        largest = activations.detach().flatten(1).amax(1).clamp_min(MIN_SCALE) / base
        # The highest set bit of the largest activation becomes bit 7.
        steps = base * torch.exp2(torch.floor(torch.log2(largest)) - 7)
        return steps.reshape(-1, *[1] * (activations.ndim - 1))


functional = torch.nn.functional


def pass_gradient(values: Tensor, rounded_values: Tensor) -> Tensor:
    """Return `rounded_values` with the gradient of `values`."""
    return values + (rounded_values - values).detach()


def round_to_steps(values: Tensor, scale: Tensor) -> Tensor:
    """Return the values as integer steps, -255 .. 255. Clipped values have no gradient.

    The gradient becomes 0 only beyond 255.5 steps, because division may put the largest value slightly above 255.
    """
    steps = (values / scale).clamp(-FULL_VALUE - 0.5, FULL_VALUE + 0.5)
    return pass_gradient(steps, steps.round().clamp(-FULL_VALUE, FULL_VALUE))


def compute_weight_scale(weights: Tensor, *, per_channel: bool) -> Tensor:
    """Return the value of one step of a weight, (rows,)."""
    largest = weights.detach().abs().flatten(1).amax(1)
    return (largest if per_channel else largest.amax().expand(len(largest))).clamp_min(MIN_SCALE) / FULL_VALUE


def count_readouts(steps: Tensor, *, sends_zeros: bool, wavelength_count: int) -> tuple[Tensor, Tensor]:
    """Return (number of readouts, added minus subtracted readouts), both (rows,), for weights `steps` (rows, terms).

    Products that share a readout have the same sign. If `sends_zeros`, weights of 0 are also sent, in added readouts.
    """
    added = -(-(steps > 0).sum(1) // wavelength_count)
    subtracted = -(-(steps < 0).sum(1) // wavelength_count)
    readouts = added + subtracted
    if sends_zeros:
        readouts = readouts.clamp_min(-(-steps.shape[1] // wavelength_count))
    return readouts, readouts - 2 * subtracted


@dataclass
class PhotonicForward:
    """Replacement of `layer.forward` for a `Linear` or `Conv2d` layer."""

    layer: Any
    activation_range: ActivationRange
    emulation: Emulation
    generator: Any
    compute_common_scale: Callable[[], Tensor] | None = None
    """Returns the value of one step of a weight, if all layers share it."""

    def __call__(self, activations: Tensor) -> Tensor:
        """Return the outputs of the layer with rounding and noise."""
        activation_scale = self.activation_range.compute_step(activations, is_learning=self.layer.training)
        row_scales = self._compute_weight_scale()
        steps = round_to_steps(activations, activation_scale)
        weight_scales = row_scales.reshape(-1, *[1] * (self.layer.weight.ndim - 1))
        weights = round_to_steps(self.layer.weight, weight_scales)
        sums = self._multiply(steps, weights) / 256
        noisy_sums = sums + self._draw_noise(sums.detach(), steps.detach(), weights.detach())
        results = noisy_sums * (256 * activation_scale) * self._align_with_results(row_scales)
        return results if self.layer.bias is None else results + self._align_with_results(self.layer.bias)

    def _compute_weight_scale(self) -> Tensor:
        weights = self.layer.weight
        if self.compute_common_scale is not None:
            return self.compute_common_scale().expand(len(weights))
        return compute_weight_scale(weights, per_channel=self.emulation.options.per_channel)

    @property
    def _sends_zeros(self) -> bool:
        return isinstance(self.layer, torch.nn.Linear)

    def _multiply(self, activations: Tensor, weights: Tensor) -> Tensor:
        if self._sends_zeros:
            return functional.linear(activations, weights)
        layer = self.layer
        return functional.conv2d(
            activations, weights, None, layer.stride, layer.padding, layer.dilation, layer.groups
        )

    def _align_with_results(self, rows: Tensor) -> Tensor:
        return rows if self._sends_zeros else rows.reshape(-1, 1, 1)

    def _draw_noise(self, sums: Tensor, steps: Tensor, weights: Tensor) -> Tensor:
        """Return one draw for each sum, with the total variance of its readouts. See `execution.noise.Noise`."""
        noise = self.emulation.noise
        draws = torch.randn(sums.shape, generator=self.generator)
        if not noise.place_properties.per_readout:
            return self._draw_output_noise(sums, draws)
        mean, variance = self._find_noise_moments(steps, weights)
        return mean + (variance / noise.average).sqrt() * draws

    def _draw_output_noise(self, sums: Tensor, draws: Tensor) -> Tensor:
        """Return the noise of sums x, sign(x) * ||x| + n| - x, in units where the largest sum of an image is 255."""
        noise = self.emulation.noise
        largest = sums.abs().flatten(1).amax(1).clamp_min(MIN_SCALE) / FULL_VALUE
        unit = largest.reshape(-1, *[1] * (sums.ndim - 1))
        level = sums.abs() / unit
        deviation = (noise.compute_variance(level) / noise.average).sqrt()
        noisy_level = (level + noise.mean + deviation * draws).abs()
        return sums.sign() * noisy_level * unit - sums

    def _find_noise_moments(self, steps: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        noise, pass_count = self.emulation.noise, 2 if self.activation_range.is_signed else 1
        readouts, net_readouts = count_readouts(
            weights.flatten(1),
            sends_zeros=noise.place_properties.sends_zeros,
            wavelength_count=self.emulation.options.hardware.wavelengths,
        )
        # With two passes, the mean errors of the positive and the negative part cancel.
        mean = (
            torch.zeros(())
            if self.activation_range.is_signed
            else noise.mean * self._align_with_results(net_readouts)
        )
        constant, *light_coefficients = noise.coefficients
        variance = constant * pass_count * self._align_with_results(readouts)
        for power, coefficient in enumerate(light_coefficients, 1):
            if coefficient:
                # A product of steps is 256 times its level in LSB.
                power_sums = self._multiply(steps.abs() ** power, weights.abs() ** power)
                variance = variance + coefficient * power_sums / 256**power
        return mean, variance


class ForeignProductCheck(overrides.TorchFunctionMode):  # type: ignore[misc, name-defined]
    """Context in which a product with one of these parameters, or with a view of it, raises `CompileError`."""

    def __init__(self, foreign_parameters: Mapping[str, Any]) -> None:
        super().__init__()
        self._names = {
            _find_storage_address(parameter): name for name, parameter in foreign_parameters.items()
        }

    def __torch_function__(
        self, function: Any, types: Any, arguments: Sequence[Any] = (), named: Mapping[str, Any] | None = None
    ) -> Any:
        """Call a function of torch. If it computes sums of products, check its arguments first."""
        keywords = dict(named or {})
        if getattr(function, "__name__", "") in PRODUCT_FUNCTIONS:
            self._check_layer((*arguments, *keywords.values()))
        return function(*arguments, **keywords)

    def _check_layer(self, factors: Sequence[Any]) -> None:
        for factor in factors:
            if isinstance(factor, list | tuple):
                self._check_layer(factor)
            elif isinstance(factor, torch.Tensor):
                name = self._names.get(_find_storage_address(factor))
                if name is not None:
                    raise _make_foreign_parameter_error(name)


def find_foreign_parameters(module: Any, layers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters with two or more axes outside these layers, such as embeddings, by name."""
    weights = {id(layer.weight) for layer in layers.values()}
    return {
        name: parameter
        for name, parameter in module.named_parameters()
        if parameter.ndim >= 2 and id(parameter) not in weights and "parametrizations." not in name
    }


def _find_storage_address(tensor: Any) -> int:
    """Return the address of the storage, which a tensor shares with its views."""
    return int(tensor.untyped_storage().data_ptr())


def _make_foreign_parameter_error(name: str) -> CompileError:
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

    The module, its class, its parameters and its optimiser remain the same objects. Gradients pass as if nothing were
    rounded. The ranges of layers in training mode follow the activations. Raise `CompileError` for layers that cannot
    be emulated, and inside the block if a parameter is multiplied outside these layers.

        with emulate(module, Emulation(Noise(sigma=5, place="per-product-dense"))):
            loss(module(images), labels).backward()
    """
    layers = find_photonic_layers(module)
    generator = torch.Generator().manual_seed(seed)
    common_scale = (
        JointScale(tuple(layers.values()), emulation.raw_level)
        if emulation.options.scheme == "published"
        else None
    )
    for index, layer in enumerate(layers.values()):
        layer_range = common_scale.find_range(index) if common_scale else FixedRange(emulation.percentile)
        layer.forward = PhotonicForward(layer, layer_range, emulation, generator, common_scale)
    foreign_parameters = find_foreign_parameters(module, layers)
    try:
        with ForeignProductCheck(foreign_parameters) if foreign_parameters else nullcontext():
            yield module
    finally:
        for layer in layers.values():
            del layer.forward


@dataclass(frozen=True)
class JointScale:
    """Common scale of all weights in the `published` scheme: max(1, largest magnitude) / 255."""

    layers: tuple[Any, ...]
    raw_level_value: float
    """Value of one step of an activation before the first layer."""

    def __call__(self) -> Tensor:
        """Return the scale of the current weights, a scalar."""
        with torch.no_grad():
            largest = torch.stack([layer.weight.abs().amax() for layer in self.layers]).amax()
        return largest.clamp_min(1.0) / FULL_VALUE

    def find_range(self, index: int) -> ShiftedRange:
        """Return the range of the layer at this index of the chain.

        Each earlier layer multiplies the value of a step by 256 times the common scale.
        """
        return ShiftedRange(lambda: (256 * self()) ** index * self.raw_level_value, is_shifted=index > 0)


def find_photonic_layers(module: Any) -> dict[str, Any]:
    """Return the layers that run on light, by name. Raise `CompileError` for a layer that cannot be emulated."""
    layer_by_name = dict(module.named_modules())
    for name, layer in layer_by_name.items():
        _check_layer(name or type(layer).__name__, layer)
    return {name: layer for name, layer in layer_by_name.items() if isinstance(layer, SUPPORTED_LAYERS)}


def _check_layer(name: str, layer: Any) -> None:
    if isinstance(layer, UNSUPPORTED_LAYERS) and not isinstance(layer, SUPPORTED_LAYERS):
        raise CompileError(
            f"{name} is a {type(layer).__name__}, which cannot be trained with noise",
            hint="Build it from Linear or Conv2d layers, or train that part separately",
        )
    if getattr(layer, "padding_mode", "zeros") != "zeros":
        raise CompileError(
            f"{name} pads with {layer.padding_mode!r}, but the hardware pads with zeros",
            hint='Give it padding_mode="zeros"',
        )
