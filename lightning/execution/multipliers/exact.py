"""Sums of products in whole numbers: `sign(a w) * ((|a| * |w|) >> 8)`, added up without loss."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np

from lightning.compiler.integers import sums_of
from lightning.compiler.model import Integers, PhotonicLayer
from lightning.execution.interface import Activations, Keys, Multiplier
from lightning.execution.multipliers.weights import OrderedWeights, groups_of


def exact_multiplier() -> Multiplier:
    """Machine code where numba is installed, else numpy; both give the same integers."""
    return CompiledMultiplier() if find_spec("numba") else ExactMultiplier()


class ExactMultiplier:
    """Integers of light without noise, in plain numpy: nothing to install, and tens of times slower."""

    def sums(self, layer: PhotonicLayer, activations: Activations, keys: Keys) -> Integers:
        """Return the sums as `Multiplier.sums` does; `keys` do not matter."""
        images, positions, _, terms = activations.shape
        found = [
            sums_of(activations[:, :, group].reshape(-1, terms), rows)
            for group, rows in enumerate(layer.weights)
        ]
        return np.stack(found, axis=1).reshape(images, positions, *layer.weights.shape[:2])


class CompiledMultiplier:
    """The same integers from machine code."""

    def __init__(self) -> None:
        self._ordered: dict[str, tuple[PhotonicLayer, tuple[OrderedWeights, ...]]] = {}

    def sums(self, layer: PhotonicLayer, activations: Activations, keys: Keys) -> Integers:
        """Return the sums, the same as those of `ExactMultiplier`."""
        from lightning.execution.kernels.sums import sums_into

        images, positions, groups, terms = activations.shape
        rows = layer.weights.shape[1]
        found = np.empty((images, positions, groups, rows), np.int32)
        for group, weights in enumerate(self.ordered(layer)):
            vectors = np.ascontiguousarray(activations[:, :, group]).reshape(-1, terms)
            sums = np.empty((len(vectors), rows), np.int32)
            sums_into(vectors, *weights.arrays, sums)
            found[:, :, group] = sums.reshape(images, positions, rows)
        return found

    def ordered(self, layer: PhotonicLayer) -> tuple[OrderedWeights, ...]:
        """Return the layer's weights as kernels read them, made once."""
        kept = self._ordered.get(layer.name)
        if kept is None or kept[0] is not layer:  # a layer of another model may have this name
            kept = self._ordered[layer.name] = layer, groups_of(layer)
        return kept[1]
