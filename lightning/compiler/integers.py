"""Products and sums as light computes them; plain, for as many vectors as a layer is measured on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int32]

_EXACT_TERMS = 2**16
"""So many products of up to 254 are added up without loss in float32, which holds whole numbers up to 2**24."""


def sums_of(activations: npt.NDArray[np.int16], weights: npt.NDArray[np.int16]) -> Integers:
    """Return the sums, (vectors, rows), of activations (vectors, terms) and weights (rows, terms), both -255 .. 255.

    A product is sign(a * w) * ((|a| * |w|) >> 8).

    >>> sums_of(np.array([[255, -128]], np.int16), np.array([[255, 2]], np.int16)).tolist()
    [[253]]
    """
    kind = np.float32 if weights.shape[1] <= _EXACT_TERMS else np.float64
    magnitudes = np.abs(activations).astype(np.uint16)  # 255 * 255 fits
    signs = np.sign(activations).astype(kind) if activations.min(initial=0) < 0 else None
    found = np.empty((len(activations), len(weights)), np.int32)
    for row, values in enumerate(weights):
        used = np.flatnonzero(values)
        products = ((magnitudes[:, used] * np.abs(values[used]).astype(np.uint16)) >> 8).astype(kind)
        signed = products if signs is None else products * signs[:, used]
        found[:, row] = signed @ np.sign(values[used]).astype(kind)
    return found
