"""Any module on emulated light, for as long as a `with` lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from lightning.compiler.model import FULL
from lightning.errors import CompileError
from lightning.optional import needed
from lightning.training.emulation import Emulation
from lightning.training.layers import PhotonicForward
from lightning.training.outliers import OutlierProducts, outliers_of
from lightning.training.ranges import FixedRange, ShiftedRange

torch = needed("torch", "to train networks")

Tensor = Any

KINDS = (torch.nn.Linear, torch.nn.Conv2d)
OTHERS = (
    *(torch.nn.Conv1d, torch.nn.Conv3d, torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d),
    *(torch.nn.ConvTranspose3d, torch.nn.Bilinear, torch.nn.RNNBase, torch.nn.MultiheadAttention),
)
"""They multiply by weights as well, but not as a layer of ours would: silence would leave them without noise."""


@contextmanager
def emulated(module: Any, emulation: Emulation, *, seed: int = 0) -> Iterator[Any]:
    """Make the `Linear` and `Conv2d` layers of a module compute as light does, rounded and noisy, inside the `with`.

    The module, its class, its parameters and its optimiser stay what they are; gradients pass as if nothing had been
    rounded. While layers are in training their ranges follow the activations. Raises `CompileError` for layers that
    cannot be had so; and inside the `with` where a parameter is multiplied without such a layer.

        with emulated(module, Emulation(Noise(sigma=5, place="per-product-dense"))):
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
    """Return the layers that light can multiply for, by name. Raises `CompileError` for one that cannot be had so."""
    named = dict(module.named_modules())
    for name, layer in named.items():
        _check(name or type(layer).__name__, layer)
    return {name: layer for name, layer in named.items() if isinstance(layer, KINDS)}


def _check(name: str, layer: Any) -> None:
    if isinstance(layer, OTHERS) and not isinstance(layer, KINDS):
        raise CompileError(
            f"{name} is a {type(layer).__name__}, which has no noisy form in training",
            hint="Write it with Linear or Conv2d layers, or train that part by itself",
        )
    if getattr(layer, "padding_mode", "zeros") != "zeros":
        raise CompileError(
            f"{name} pads with {layer.padding_mode!r}, and light multiplies zeros there",
            hint='Give it padding_mode="zeros"',
        )
