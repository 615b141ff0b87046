"""Products and sums as light computes them; slow and plain, for few vectors."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int32]


def sums_of(activations: npt.NDArray[np.int16], weights: npt.NDArray[np.int16]) -> Integers:
    """(vectors, rows) of activations (vectors, terms) and weights (rows, terms), both -255 .. 255.

    A product is sign(a * w) * ((|a| * |w|) >> 8).

    >>> sums_of(np.array([[255, -128]], np.int16), np.array([[255, 2]], np.int16)).tolist()
    [[253]]
    """
    magnitudes, signs = np.abs(activations).astype(np.int32), np.sign(activations).astype(np.int32)
    found = np.zeros((len(activations), len(weights)), np.int32)
    for row, values in enumerate(weights):
        used = np.flatnonzero(values)
        products = (magnitudes[:, used] * np.abs(values[used]).astype(np.int32)) >> 8
        found[:, row] = (products * signs[:, used]) @ np.sign(values[used]).astype(np.int32)
    return found
