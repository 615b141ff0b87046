"""From float weights and activations to magnitudes of 8 bits with a sign.

a = clip(rint(x / input_scale), -255 or 0, 255)            input_scale = largest kept / 255
w = rint(v / weight_scale[row])                            weight_scale = largest of the row (or layer) / 255
sum_k v_k x_k = 256 * input_scale * weight_scale * sum_k (a_k w_k / 256)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lightning.compiler.model import FULL

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Small = npt.NDArray[np.int16]


def quantise(values: npt.NDArray[np.floating], scale: float, *, signed: bool) -> Small:
    """Return the activations in steps of `scale`, ties to even; what is beyond the range becomes its end.

    >>> quantise(np.array([-1.0, 0.6, 9.0]), 0.01, signed=False).tolist()
    [0, 60, 255]
    """
    lowest = -FULL if signed else 0
    return np.asarray(np.clip(np.rint(values / scale), lowest, FULL).astype(np.int16))


def weight_scales(weights: Floats, *, per_channel: bool) -> Doubles:
    """Return what one step of a weight is worth, (groups, rows). Rows of nothing but 0 take the scale of the layer.

    >>> weight_scales(np.array([[[0.5, -1.0], [0.0, 0.0]]], np.float32), per_channel=True).tolist() == [
    ...     [1 / 255] * 2
    ... ]
    True
    """
    largest = np.abs(weights.astype(np.float64)).max(axis=2, initial=0.0)
    whole = float(largest.max(initial=0.0)) or 1.0
    rows = np.where(largest > 0, largest, whole) if per_channel else np.full_like(largest, whole)
    return np.asarray(rows / FULL)


def quantise_weights(weights: Floats, scales: Doubles) -> Small:
    """Return the weights in steps of their scales, -255 .. 255, (groups, rows, terms)."""
    return np.asarray(np.clip(np.rint(weights / scales[..., None]), -FULL, FULL).astype(np.int16))


def output_scales(input_scale: float, scales: Doubles) -> Floats:
    """Return what one step of a sum is worth, (groups, rows): products lose 8 bits."""
    return (256.0 * input_scale * scales).astype(np.float32)
