"""A convolution's activations as rows of products: patches, group by group."""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt

from lightning.compiler.model import Geometry
from lightning.execution.interface import Activations
from lightning.networks.patches import patches as images_as_rows


def patches(activations: Activations, geometry: Geometry, groups: int = 1) -> Activations:
    """Return the patches, (images, positions, groups, terms), of images (images, channels, height, width).

    Padding is 0. Terms run over the channels of a group, then down, then across, as the weights of a `Conv`
    do.

    >>> geometry = Geometry(1, 2, 3, kernel=(2, 2))
    >>> patches(np.arange(6, dtype=np.int16).reshape(1, 1, 2, 3), geometry).tolist()
    [[[[0, 1, 3, 4]], [[1, 2, 4, 5]]]]
    """
    return images_as_rows(
        activations, geometry.kernel, geometry.strides, geometry.pads, geometry.dilations, groups
    )


def pixels(sums: npt.NDArray[np.float32], geometry: Geometry) -> npt.NDArray[np.float32]:
    """Return the pixels, (images, rows of all groups, height, width), of sums (images, positions, groups, rows)."""
    images, positions = sums.shape[:2]
    rows = sums.reshape(images, positions, -1).transpose(0, 2, 1)
    shaped = np.ascontiguousarray(rows).reshape(images, -1, *geometry.output)
    return cast("npt.NDArray[np.float32]", shaped)
