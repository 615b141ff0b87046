"""A photonic layer's weights in the order in which kernels read them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightning.compiler.model import PhotonicLayer

SPARSE_BELOW = 0.03
"""Part of the weights that are not 0, below which to jump from one to the next is faster than to take all in a row: a
processor multiplies eight to thirty-two neighbours at a time."""


@dataclass(frozen=True)
class OrderedWeights:
    """One group of a layer, as `kernels` describe it."""

    values: npt.NDArray[np.int16]
    pointers: npt.NDArray[np.int64]
    places: npt.NDArray[np.uint32]

    @property
    def arrays(
        self,
    ) -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
        """As kernels take them."""
        return self.values, self.pointers, self.places


def ordered(weights: npt.NDArray[np.int16]) -> OrderedWeights:
    """Return the weights (rows, terms) in the order of kernels.

    >>> ordered(np.eye(1, 50, 1, np.int16)).pointers[:4].tolist()  # the second of fifty is not 0
    [0, 0, 1, 1]
    """
    by_term = np.ascontiguousarray(weights.T)
    if np.count_nonzero(by_term) >= SPARSE_BELOW * by_term.size:
        return OrderedWeights(by_term.reshape(-1), np.empty(0, np.int64), np.empty(0, np.uint32))
    terms, places = np.nonzero(by_term)
    pointers = np.concatenate([[0], np.bincount(terms, minlength=len(by_term)).cumsum()])
    return OrderedWeights(by_term[terms, places], pointers.astype(np.int64), places.astype(np.uint32))


def groups_of(layer: PhotonicLayer) -> tuple[OrderedWeights, ...]:
    """Return every group of a layer."""
    return tuple(ordered(group) for group in layer.weights)
