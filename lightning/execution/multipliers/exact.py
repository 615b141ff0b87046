"""Sums of products in integers: `sign(a w) * ((|a| * |w|) >> 8)`, without overflow."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt

from lightning.compiler.lowering import compute_integer_sums
from lightning.compiler.model import Integers, PhotonicLayer
from lightning.execution.interface import Activations, Keys, Multiplier

MAX_SPARSE_DENSITY = 0.03
"""Below this share of nonzero weights, the sparse form is faster. Above this share, the dense form is faster, because a
processor multiplies eight to thirty-two neighbours at a time."""


@dataclass(frozen=True)
class KernelWeights:
    """The weights of one group of a layer, in the form of `kernels.sums`."""

    values: npt.NDArray[np.int16]
    pointers: npt.NDArray[np.int64]
    row_indices: npt.NDArray[np.uint32]

    @property
    def kernel_arguments(
        self,
    ) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
        """The arguments of kernels."""
        return self.values, self.pointers, self.row_indices


def arrange_weights(weights: npt.NDArray[np.int16]) -> KernelWeights:
    """Return the weights (rows, terms) in the form of `kernels.sums`: dense, or sparse below `MAX_SPARSE_DENSITY`.

    >>> arrange_weights(np.eye(1, 50, 1, np.int16)).pointers[:4].tolist()  # the second of fifty is not 0
    [0, 0, 1, 1]
    """
    weights_by_term = np.ascontiguousarray(weights.T)
    if np.count_nonzero(weights_by_term) >= MAX_SPARSE_DENSITY * weights_by_term.size:
        return KernelWeights(weights_by_term.reshape(-1), np.empty(0, np.int64), np.empty(0, np.uint32))
    terms, rows = np.nonzero(weights_by_term)
    pointers = np.concatenate([[0], np.bincount(terms, minlength=len(weights_by_term)).cumsum()])
    return KernelWeights(weights_by_term[terms, rows], pointers.astype(np.int64), rows.astype(np.uint32))


def arrange_groups(layer: PhotonicLayer) -> tuple[KernelWeights, ...]:
    """Return the weights of every group of a layer in the form of `kernels.sums`."""
    return tuple(arrange_weights(group) for group in layer.weights)


def make_exact_multiplier() -> Multiplier:
    """Return a multiplier in machine code if numba is installed, else in numpy. Both give the same integers."""
    return CompiledMultiplier() if find_spec("numba") else ExactMultiplier()


class ExactMultiplier:
    """`Multiplier` without noise in plain numpy. It needs no numba, but is tens of times slower."""

    def compute_sums(self, layer: PhotonicLayer, activations: Activations, keys: Keys) -> Integers:
        """Return the exact sums, int32; `keys` are ignored."""
        image_count, position_count, _, term_count = activations.shape
        sums = [
            compute_integer_sums(activations[:, :, group].reshape(-1, term_count), rows)
            for group, rows in enumerate(layer.weights)
        ]
        return np.stack(sums, axis=1).reshape(image_count, position_count, *layer.weights.shape[:2])


class CompiledMultiplier:
    """`Multiplier` without noise in machine code."""

    def __init__(self) -> None:
        self._weights_by_layer: dict[str, tuple[PhotonicLayer, tuple[KernelWeights, ...]]] = {}

    def compute_sums(self, layer: PhotonicLayer, activations: Activations, keys: Keys) -> Integers:
        """Return the same sums as `ExactMultiplier`."""
        from lightning.execution.kernels.sums import write_sums

        image_count, position_count, group_count, term_count = activations.shape
        row_count = layer.weights.shape[1]
        all_sums = np.empty((image_count, position_count, group_count, row_count), np.int32)
        for group, weights in enumerate(self.get_group_weights(layer)):
            vectors = np.ascontiguousarray(activations[:, :, group]).reshape(-1, term_count)
            sums = np.empty((len(vectors), row_count), np.int32)
            write_sums(vectors, *weights.kernel_arguments, sums)
            all_sums[:, :, group] = sums.reshape(image_count, position_count, row_count)
        return all_sums

    def get_group_weights(self, layer: PhotonicLayer) -> tuple[KernelWeights, ...]:
        """Return `arrange_groups(layer)` from a cache."""
        cache_entry = self._weights_by_layer.get(layer.name)
        if cache_entry is None or cache_entry[0] is not layer:  # a layer of another model may have this name
            cache_entry = self._weights_by_layer[layer.name] = layer, arrange_groups(layer)
        return cache_entry[1]
