"""Operations whose windows move over images: convolution and pooling, in float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.networks.patches import Pads, output_size, padded, patches, shifted

Array = npt.NDArray[Any]
Attributes = Mapping[str, Any]


def conv(inputs: Sequence[Array], attributes: Attributes) -> Array:
    """Cross-correlation of images (n, channels, height, width) with weights (rows, channels / groups, kh, kw)."""
    x, weights = inputs[0], inputs[1]
    rows, kernel = weights.shape[0], (weights.shape[2], weights.shape[3])
    strides, pads = attributes["strides"], attributes["pads"]
    dilations, groups = attributes["dilations"], attributes["groups"]
    tall, wide = output_size((x.shape[2], x.shape[3]), kernel, strides, pads, dilations)
    seen = patches(x, kernel, strides, pads, dilations, groups)
    seen = seen.reshape(len(x) * tall * wide, groups, seen.shape[3])
    sums = np.matmul(seen.transpose(1, 0, 2), weights.reshape(groups, rows // groups, -1).transpose(0, 2, 1))
    by_position = sums.transpose(1, 0, 2).reshape(len(x), tall * wide, rows)
    if len(inputs) > 2:
        by_position = by_position + inputs[2]
    return np.ascontiguousarray(by_position.transpose(0, 2, 1)).reshape(len(x), rows, tall, wide)


def max_pool(inputs: Sequence[Array], attributes: Attributes) -> Array:
    """The largest value in each window; what lies outside the image is never it."""
    x = padded(inputs[0], _pads(attributes), -np.inf)
    dilations = attributes.get("dilations", (1, 1))
    return reduce(np.maximum, shifted(x, attributes["kernel"], attributes["strides"], dilations))


def average_pool(inputs: Sequence[Array], attributes: Attributes) -> Array:
    """The mean of each window: over what lies in the image, and over `pads` too with `count_include_pad`.

    `excess` (bottom, right) is what `ceil_mode` adds behind the padding; it never counts.
    """
    x, pads = inputs[0], _pads(attributes)
    move = attributes["kernel"], attributes["strides"], attributes.get("dilations", (1, 1))
    outline = np.ones((1, 1, *x.shape[2:]), np.float32)
    if attributes.get("count_include_pad", False):
        outline = padded(outline, attributes["pads"], 1)
        bottom, right = attributes.get("excess", (0, 0))
        outline = padded(outline, (0, 0, bottom, right))
    else:
        outline = padded(outline, pads)
    total = sum(shifted(padded(x, pads), *move))
    return np.asarray(total / sum(shifted(outline, *move)), np.float32)


def _pads(attributes: Attributes) -> Pads:
    """Padding and what `ceil_mode` adds to it."""
    top, left, bottom, right = attributes["pads"]
    below, beside = attributes.get("excess", (0, 0))
    return top, left, bottom + below, right + beside
