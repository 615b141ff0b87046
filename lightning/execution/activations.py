"""Between photonic layers: real numbers become the magnitudes that light carries, and sums become real again."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lightning.compiler.model import FULL, Floats, Integers, PhotonicLayer
from lightning.execution.seam import Activations


def quantised(real: Floats, layer: PhotonicLayer) -> tuple[Activations, int]:
    """Activations in steps of the layer's `input_scale`, and how many of them were clipped.

    What is below 0 becomes 0 unless the layer takes signs. That is no clipping where it is a ReLU's doing, so only
    values beyond the range's far ends count.
    """
    steps = steps_of(real, layer)
    beyond = int(np.count_nonzero(np.abs(steps) > FULL if layer.signed else steps > FULL))
    return np.clip(steps, -FULL if layer.signed else 0, FULL).astype(np.int16), beyond


def steps_of(real: Floats, layer: PhotonicLayer) -> Floats:
    """Whole steps, not clipped; ties are rounded to even, as in ONNX's QuantizeLinear."""
    return np.asarray(np.rint(real / np.float32(layer.input_scale)), np.float32)


def shift_normalised(sums: npt.NDArray[np.float32] | Integers) -> Activations:
    """Sums (images, ...) as the published datapath makes activations of them: negative ones 0, the others shifted,
    image by image, so that the highest set bit of the largest becomes bit 7.

    >>> shift_normalised(np.array([[1000, -7, 3], [5, 1, 0]], np.int32)).tolist()
    [[250, 0, 0], [160, 32, 0]]
    """
    positive = np.maximum(sums, 0).astype(np.int64)
    return ((positive << 7) >> highest_bits(positive)).astype(np.int16)


def highest_bits(magnitudes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The place of the highest set bit of the largest of every image, shaped to broadcast; 0 where all are 0."""
    largest = magnitudes.reshape(len(magnitudes), -1).max(axis=1)
    _, exponents = np.frexp(largest)  # exact below 2**53: largest = m * 2**exponent with 0.5 <= m < 1
    places = np.maximum(exponents.astype(np.int64) - 1, 0)
    return places.reshape(-1, *([1] * (magnitudes.ndim - 1)))


def real_of(sums: Integers, layer: PhotonicLayer) -> Floats:
    """(images, positions, groups, rows): sums with bias, times what a step is worth."""
    return (sums + layer.bias).astype(np.float32) * layer.output_scale


def wrapped(sums: Integers) -> tuple[Integers, int]:
    """Sums as a 16-bit accumulator leaves them, in two's complement, and how many of them that changed.

    >>> wrapped(np.array([32767, 32768, -40000], np.int32))
    (array([ 32767, -32768,  25536], dtype=int32), 2)
    """
    low = sums.astype(np.int16).astype(np.int32)
    return low, int(np.count_nonzero(low != sums))


def shifted(sums: Integers) -> Integers:
    """Sums (images, ...) as the published emulator gives those of the last layer: the highest set bit of the largest
    magnitude in place 7, negative ones rounded down.

    >>> shifted(np.array([[1000, -7, 3]], np.int32)).tolist()
    [[250, -2, 0]]
    """
    wide = sums.astype(np.int64)
    return ((wide << 7) >> highest_bits(np.abs(wide))).astype(np.int32)
