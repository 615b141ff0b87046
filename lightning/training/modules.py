"""Any module on emulated light, for as long as a `with` lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lightning.compiler.model import FULL
from lightning.errors import CompileError
from lightning.optional import needed
from lightning.training.emulation import Emulation
from lightning.training.layers import PhotonicForward
from lightning.training.ranges import FixedRange, ShiftedRange

torch = needed("torch", "to train networks")

Tensor = Any


@contextmanager
def emulated(module: Any, emulation: Emulation, *, seed: int = 0) -> Iterator[Any]:
    """Let the `Linear` and `Conv2d` layers of a module compute as light does, rounded and noisy, inside the `with`.

    The module, its class, its parameters and its optimiser stay what they are; gradients pass as if nothing had been
    rounded. While layers are in training their ranges follow the activations. Raises `CompileError` for layers that
    cannot be had so.

        with emulated(module, Emulation(Noise(sigma=5, place="per-product-dense"))):
            loss(module(images), labels).backward()
    """
    layers = photonic_layers(module)
    generator = torch.Generator().manual_seed(seed)
    common = JointScale(tuple(layers.values()), emulation.pixel) if emulation.options.scheme == "published" else None
    for index, layer in enumerate(layers.values()):
        known = common.range_of(index) if common else FixedRange(emulation.percentile)
        layer.forward = PhotonicForward(layer, known, emulation, generator, common)
    try:
        yield module
    finally:
        for layer in layers.values():
            del layer.forward


@dataclass(frozen=True)
class JointScale:
    """What a step of any weight is worth in the `published` scheme: max(1, largest magnitude) / 255."""

    layers: tuple[Any, ...]
    pixel: float
    """What a step of an activation is worth before the first layer."""

    def __call__(self) -> Tensor:
        """One number, of the weights as they are now."""
        with torch.no_grad():
            largest = torch.stack([layer.weight.abs().amax() for layer in self.layers]).amax()
        return largest.clamp_min(1.0) / FULL

    def range_of(self, index: int) -> ShiftedRange:
        """Of the layer with this index in the chain; each before it has made a step worth that of 256 products."""
        return ShiftedRange(lambda: (256 * self()) ** index * self.pixel, shifts=index > 0)


def photonic_layers(module: Any) -> dict[str, Any]:
    """The layers that light can multiply for, by name. Raises `CompileError` for a padding other than zeros."""
    kinds = (torch.nn.Linear, torch.nn.Conv2d)
    found = {name: each for name, each in module.named_modules() if isinstance(each, kinds)}
    for name, layer in found.items():
        if getattr(layer, "padding_mode", "zeros") != "zeros":
            raise CompileError(
                f"layer {name!r} pads with {layer.padding_mode!r}, and light multiplies zeros there",
                cure='Give it padding_mode="zeros"',
            )
    return found
