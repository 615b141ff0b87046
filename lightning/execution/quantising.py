"""Between photonic layers: real numbers become the magnitudes that light carries, and sums become real again."""

from __future__ import annotations

import numpy as np

from lightning.compiler.model import FULL, Floats, Integers, PhotonicLayer
from lightning.execution.interface import Activations


def quantised(real: Floats, layer: PhotonicLayer) -> tuple[Activations, int]:
    """Return the activations in steps of the layer's `input_scale`, and how many of them were clipped.

    What is below 0 becomes 0 unless the layer takes signs, and counts, too. Behind a ReLU there is nothing below 0.
    """
    steps, lowest = steps_of(real, layer), -FULL if layer.signed else 0
    beyond = int(np.count_nonzero((steps > FULL) | (steps < lowest)))
    return np.clip(steps, lowest, FULL).astype(np.int16), beyond


def steps_of(real: Floats, layer: PhotonicLayer) -> Floats:
    """Whole steps, not clipped; ties are rounded to even, as in ONNX's QuantizeLinear."""
    return np.asarray(np.rint(real / np.float32(layer.input_scale)), np.float32)


def real_of(sums: Integers, layer: PhotonicLayer) -> Floats:
    """Return the real values, (images, positions, groups, rows): sums with bias, times what a step is worth."""
    return np.asarray((sums + layer.bias).astype(np.float32) * layer.output_scale, np.float32)


def wrapped(sums: Integers) -> tuple[Integers, int]:
    """Return the sums as a 16-bit accumulator leaves them, in two's complement, and how many of them that changed.

    >>> wrapped(np.array([32767, 32768, -40000], np.int32))
    (array([ 32767, -32768,  25536], dtype=int32), 2)
    """
    low = sums.astype(np.int16).astype(np.int32)
    return low, int(np.count_nonzero(low != sums))
