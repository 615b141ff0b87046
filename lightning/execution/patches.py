"""A convolution's activations as rows of products: patches, group by group."""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt

from lightning.compiler.model import Geometry
from lightning.execution.seam import Activations


def patches(activations: Activations, geometry: Geometry, groups: int = 1) -> Activations:
    """(images, positions, groups, terms) of (images, channels, height, width); padding is 0.

    Terms run over the channels of a group, then down, then across, as the weights of a `Conv` do.

    >>> geometry = Geometry(1, 2, 3, kernel=(2, 2))
    >>> patches(np.arange(6, dtype=np.int16).reshape(1, 1, 2, 3), geometry).tolist()
    [[[[0, 1, 3, 4]], [[1, 2, 4, 5]]]]
    """
    images = len(activations)
    tall, wide = geometry.output
    windows = _windows(_padded(activations, geometry), geometry)
    grouped = windows.reshape(images, groups, geometry.channels // groups, *windows.shape[2:])
    ordered = grouped.transpose(0, 3, 4, 1, 2, 5, 6)
    return np.ascontiguousarray(ordered).reshape(images, tall * wide, groups, -1)


def _padded(activations: Activations, geometry: Geometry) -> Activations:
    top, left, bottom, right = geometry.pads
    if not any(geometry.pads):
        return activations
    return np.pad(activations, ((0, 0), (0, 0), (top, bottom), (left, right)))


def _windows(padded: Activations, geometry: Geometry) -> Activations:
    """(images, channels, output height, output width, kernel height, kernel width), a view."""
    (tall, wide), (down, across), (step_down, step_across) = (
        geometry.kernel,
        geometry.dilations,
        geometry.strides,
    )
    reach = (down * (tall - 1) + 1, across * (wide - 1) + 1)
    every = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=(2, 3))
    return every[:, :, ::step_down, ::step_across, ::down, ::across]


def pixels(sums: npt.NDArray[np.float32], geometry: Geometry) -> npt.NDArray[np.float32]:
    """(images, rows of all groups, height, width) of (images, positions, groups, rows): the way back."""
    images, positions = sums.shape[:2]
    rows = sums.reshape(images, positions, -1).transpose(0, 2, 1)
    shaped = np.ascontiguousarray(rows).reshape(images, -1, *geometry.output)
    return cast("npt.NDArray[np.float32]", shaped)
