"""Chains that many images go through at a time, and their weights in the order of `kernels.lanes`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lightning.compiler.model import PhotonicLayer
from lightning.execution.kernels.laws import NoiseLaw

FEWEST = 32
"""Images from which lanes are faster: a vector is computed whole, however few images it holds."""
SPARSE_BELOW = 0.25
"""Part of a chain's weights that are not 0, below which lanes are faster than image after image."""
_FOUR = 4


class LaneWeights(NamedTuple):
    """Weights that are not 0, by row, as `kernels.lanes` describes them."""

    magnitudes: npt.NDArray[np.uint16]
    terms: npt.NDArray[np.uint32]
    begins: npt.NDArray[np.int64]


def takes_lanes(layers: Sequence[PhotonicLayer], law: NoiseLaw) -> bool:
    """Return whether lanes give the same numbers, faster.

    No activation may be negative, and no noise may need the light of each image.
    """
    if law == NoiseLaw.VARYING or any(layer.signed for layer in layers):
        return False
    lit = sum(np.count_nonzero(layer.weights) for layer in layers)
    return bool(lit < SPARSE_BELOW * sum(layer.weights.size for layer in layers))


def lane_weights(layers: Sequence[PhotonicLayer]) -> LaneWeights:
    """Return the weights of all layers of a chain, each part of a row filled up to fours with weights of 0."""
    magnitudes: list[npt.NDArray[np.generic]] = []
    terms: list[npt.NDArray[np.generic]] = []
    begins, place = [], 0
    for layer in layers:
        for row in layer.weights[0]:
            begins.append([place])
            for chosen in (np.flatnonzero(row > 0), np.flatnonzero(row < 0)):
                padding = (0, -len(chosen) % _FOUR)
                magnitudes.append(np.pad(np.abs(row[chosen]), padding))
                terms.append(np.pad(chosen, padding))
                place += len(chosen) + padding[1]
                begins[-1].append(place)
    return LaneWeights(
        np.concatenate(magnitudes).astype(np.uint16),
        np.concatenate(terms).astype(np.uint32),
        np.array(begins, np.int64),
    )
