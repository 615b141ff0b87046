"""Patches of an image, which turn a convolution into a matrix product."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Pair = tuple[int, int]
Pads = tuple[int, int, int, int]


def compute_output_size(
    image_size: Pair, kernel: Pair, strides: Pair, pads: Pads, dilations: Pair = (1, 1)
) -> Pair:
    """Return the output's height and width for a window that moves over an image of `image_size`.

    >>> compute_output_size((28, 28), kernel=(5, 5), strides=(2, 2), pads=(2, 2, 2, 2))
    (14, 14)
    """
    output_height = image_size[0] + pads[0] + pads[2] - dilations[0] * (kernel[0] - 1) - 1
    output_width = image_size[1] + pads[1] + pads[3] - dilations[1] * (kernel[1] - 1) - 1
    return output_height // strides[0] + 1, output_width // strides[1] + 1


def pad_image(images: Array, pads: Pads, value: float = 0) -> Array:
    """Return `images` (n, channels, height, width) padded with `value`; `images` itself if all pads are 0."""
    if not any(pads):
        return images
    top, left, bottom, right = pads
    return np.pad(images, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=value)


def extract_patches(
    images: Array,
    kernel: Pair,
    strides: Pair = (1, 1),
    pads: Pads = (0, 0, 0, 0),
    dilations: Pair = (1, 1),
    group_count: int = 1,
) -> Array:
    """Return the patches, (n, positions, groups, terms), of `images` (n, channels, height, width), padded with 0.

    `positions` run over the output row by row. `terms` run over channels of the group, then over rows and columns
    of the kernel, as in weights of shape (output channels, channels / groups, kh, kw). The result is C-contiguous.

    >>> extract_patches(np.arange(9).reshape(1, 1, 3, 3), kernel=(2, 2))[0, :, 0]
    array([[0, 1, 3, 4],
           [1, 2, 4, 5],
           [3, 4, 6, 7],
           [4, 5, 7, 8]])
    """
    image_count, channels, height, width = images.shape
    output_height, output_width = compute_output_size((height, width), kernel, strides, pads, dilations)
    padded_images = pad_image(images, pads)
    image_stride, channel_stride, row_stride, column_stride = padded_images.strides
    windows = np.lib.stride_tricks.as_strided(
        padded_images,
        (image_count, output_height, output_width, channels, *kernel),
        (
            image_stride,
            row_stride * strides[0],
            column_stride * strides[1],
            channel_stride,
            row_stride * dilations[0],
            column_stride * dilations[1],
        ),
        writeable=False,
    )
    term_count = channels // group_count * kernel[0] * kernel[1]
    # Copy, because compiled kernels refuse the read-only view.
    contiguous_windows = np.array(windows, order="C")
    return contiguous_windows.reshape(image_count, output_height * output_width, group_count, term_count)


def slide_window(images: Array, kernel: Pair, strides: Pair, dilations: Pair = (1, 1)) -> Iterator[Array]:
    """Yield a view (n, channels, output height, output width) for every position in the window, in row order.

    For every placement of the window on the image, the view holds the value at this position. For pooling this is
    cheaper than patches. `images` must already be padded.
    """
    output_height, output_width = compute_output_size(
        (images.shape[2], images.shape[3]), kernel, strides, (0, 0, 0, 0), dilations
    )
    for row in range(kernel[0]):
        for column in range(kernel[1]):
            top, left = row * dilations[0], column * dilations[1]
            bottom, right = (
                top + (output_height - 1) * strides[0] + 1,
                left + (output_width - 1) * strides[1] + 1,
            )
            yield images[:, :, top : bottom : strides[0], left : right : strides[1]]
