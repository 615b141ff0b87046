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


BLOCK = 1 << 20
"""Numbers in the patches of the images that are taken at once: more would leave the processor's caches."""


def conv(inputs: Sequence[Array], attributes: Attributes) -> Array:
    """Cross-correlation of images (n, channels, height, width) with weights (rows, channels / groups, kh, kw)."""
    x, weights = inputs[0], inputs[1]
    rows, kernel = weights.shape[0], (weights.shape[2], weights.shape[3])
    strides, pads = attributes["strides"], attributes["pads"]
    dilations, groups = attributes["dilations"], attributes["groups"]
    tall, wide = output_size((x.shape[2], x.shape[3]), kernel, strides, pads, dilations)
    by_group = weights.reshape(groups, rows // groups, -1).transpose(0, 2, 1)
    out = np.empty((len(x), rows, tall * wide), np.float32)
    step = max(1, BLOCK // (tall * wide * groups * by_group.shape[1]))
    for start in range(0, len(x), step):
        seen = patches(x[start : start + step], kernel, strides, pads, dilations, groups)
        sums = np.matmul(seen.transpose(0, 2, 1, 3), by_group)
        out[start : start + step] = sums.transpose(0, 1, 3, 2).reshape(len(seen), rows, tall * wide)
    if len(inputs) > 2:
        out += inputs[2][:, None]
    return out.reshape(len(x), rows, tall, wide)


def max_pool(inputs: Sequence[Array], attributes: Attributes) -> Array:
    """Return the largest value in each window; what lies outside the image is never it."""
    x = padded(inputs[0], _pads(attributes), -np.inf)
    dilations = attributes.get("dilations", (1, 1))
    return reduce(np.maximum, shifted(x, attributes["kernel"], attributes["strides"], dilations))


def average_pool(inputs: Sequence[Array], attributes: Attributes) -> Array:
    """Return the mean of each window: over what lies in the image, and over `pads` too with `count_include_pad`.

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
    """Return the padding and what `ceil_mode` adds to it."""
    top, left, bottom, right = attributes["pads"]
    below, right_of_it = attributes.get("excess", (0, 0))
    return top, left, bottom + below, right + right_of_it
