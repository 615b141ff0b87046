"""Operations with a window that moves over images or sequences: convolution and pooling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, cast

import numpy as np

from lightning.networks.operations.builder import (
    Array,
    Attributes,
    Builder,
    Call,
    Operator,
)
from lightning.networks.patches import Pads, Pair, output_size, pad_image, patches, slide

Move = tuple[Pair, Pads, Pair]
"""Strides, pads, dilations."""

BLOCK_SIZE = 1 << 20
"""Numbers in the patches of one block of images. More would not fit in the processor's caches."""


# ----------------------------------------------------------------- translation


def add_conv(builder: Builder, call: Call) -> str:
    """Add a convolution over one or two axes, with groups, strides, dilations and pads."""
    x, weights, bias = (
        builder.require_activation(call),
        builder.require_constant(call, 1),
        builder.find_constant(call, 2),
    )
    groups, rows = call.integer("group", 1), len(weights)
    _check_kernel(builder, call, weights, bias)
    image, is_sequence = reshape_to_image(builder, call, x)
    kernels = weights.reshape(rows, weights.shape[1], 1, -1) if is_sequence else weights
    kernel = (kernels.shape[2], kernels.shape[3])
    size = (builder.shapes[image][1], builder.shapes[image][2])
    move = read_move(call, size, kernel, is_sequence=is_sequence)
    if min(output_size(size, kernel, *move)) < 1:
        raise call.make_error(f"has a kernel {kernel} larger than the image {size}")
    inputs = [image, builder.constant(kernels, f"{call.name}.weight")]
    if bias is not None:
        inputs.append(builder.constant(bias, f"{call.name}.bias"))
    strides, pads, dilations = move
    attributes = {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups}
    return remove_row(
        builder, call, builder.emit("Conv", inputs, call.name, attributes), is_sequence=is_sequence
    )


def _check_kernel(builder: Builder, call: Call, weights: Array, bias: Array | None) -> None:
    """Raise `UnsupportedNode` if weights, bias, groups and channels contradict each other."""
    x, groups, rows = builder.require_activation(call), call.integer("group", 1), len(weights)
    channels = builder.shapes[x][0]
    if weights.ndim != builder.rank(x):
        raise call.make_error(f"has weights {weights.shape} for activations of {builder.rank(x)} axes")
    if groups < 1 or rows % groups or channels != weights.shape[1] * groups:
        raise call.make_error(f"has weights {weights.shape} in {groups} groups for {channels} channels")
    if bias is not None and bias.shape != (rows,):
        raise call.make_error(f"has a bias of shape {bias.shape} for {rows} outputs")


def reshape_to_image(builder: Builder, call: Call, x: str) -> tuple[str, bool]:
    """Return (image, is_sequence). Reshape a sequence (channels, length) to an image of one row.

    Raise `UnsupportedNode` for other numbers of axes.
    """
    shape = builder.shapes[x]
    if len(shape) not in {2, 3}:
        raise call.make_error(f"moves over {len(shape) - 1} axes", "Use 1 or 2 axes")
    if len(shape) == 3:
        return x, False
    builder.note(f"{call.operation} {call.name} over a sequence computed over an image of one row")
    return builder.reshape(x, (shape[0], 1, shape[1]), f"{call.name}/image"), True


def remove_row(builder: Builder, call: Call, image: str, *, is_sequence: bool) -> str:
    """Return the image, reshaped back to a sequence if `is_sequence`."""
    if not is_sequence:
        return image
    channels, _, length = builder.shapes[image]
    return builder.reshape(image, (channels, length), f"{call.name}/sequence")


def add_pool(builder: Builder, call: Call) -> str:
    """Add `MaxPool` or `AveragePool` over one or two axes."""
    x = builder.require_activation(call)
    if call.outputs > 1:
        raise call.make_error("returns indices too", "Export it with one output")
    image, is_sequence = reshape_to_image(builder, call, x)
    size = (builder.shapes[image][1], builder.shapes[image][2])
    sides = call.integers("kernel_shape", (0,) if is_sequence else (0, 0), minimum=1)
    kernel = (1, sides[0]) if is_sequence else (sides[0], sides[1])
    movement = read_move(call, size, kernel, is_sequence=is_sequence)
    strides, pads, dilations = movement
    reach = [dilations[axis % 2] * (kernel[axis % 2] - 1) + 1 for axis in range(4)]
    if any(pad >= span for pad, span in zip(pads, reach, strict=True)):
        raise call.make_error(f"pads {pads} as much as its kernel {kernel}", "Pad less than the kernel")
    extra_pads = excess(size, kernel, movement) if call.integer("ceil_mode", 0) else (0, 0)
    all_pads = (pads[0], pads[1], pads[2] + extra_pads[0], pads[3] + extra_pads[1])
    if min(output_size(size, kernel, strides, all_pads, dilations)) < 1:
        raise call.make_error(f"has a kernel {kernel} larger than the image {size}")
    attributes: dict[str, Any] = {"kernel": kernel, "strides": strides, "pads": pads, "dilations": dilations}
    attributes["excess"] = extra_pads
    if call.operation == "AveragePool":
        attributes["count_include_pad"] = bool(call.integer("count_include_pad", 0))
    return remove_row(
        builder, call, builder.emit(call.operation, [image], call.name, attributes), is_sequence=is_sequence
    )


def add_global_pool(builder: Builder, call: Call) -> str:
    """Add `GlobalAveragePool` or `GlobalMaxPool` of images or sequences."""
    x = builder.require_activation(call)
    image, is_sequence = reshape_to_image(builder, call, x)
    return remove_row(
        builder, call, builder.emit(call.operation, [image], call.name), is_sequence=is_sequence
    )


def read_move(call: Call, size: tuple[int, ...], kernel: Pair, *, is_sequence: bool) -> Move:
    """Return strides, pads and dilations of a call for an image of `size`. Attributes of a sequence have one axis.

    Raise `UnsupportedNode` for invalid attributes, for example negative pads.
    """
    ones = (1,) if is_sequence else (1, 1)
    strides = _make_pair(call.integers("strides", ones, minimum=1))
    dilations = _make_pair(call.integers("dilations", ones, minimum=1))
    return (
        strides,
        _find_pads(call, (size[0], size[1]), kernel, strides, dilations, is_sequence=is_sequence),
        dilations,
    )


def _make_pair(values: tuple[int, ...]) -> Pair:
    return (1, values[0]) if len(values) == 1 else (values[0], values[1])


def _find_pads(
    call: Call, size: Pair, kernel: Pair, strides: Pair, dilations: Pair, *, is_sequence: bool
) -> Pads:
    auto_pad = call.attributes.get("auto_pad", "NOTSET")
    if auto_pad == "VALID":
        return (0, 0, 0, 0)
    if auto_pad in {"SAME_UPPER", "SAME_LOWER"}:
        return compute_same_pads(size, kernel, strides, dilations, pads_end=auto_pad == "SAME_UPPER")
    if auto_pad != "NOTSET":
        raise call.make_error(f"has auto_pad = {auto_pad!r}")
    pads = call.integers("pads", (0, 0) if is_sequence else (0, 0, 0, 0))
    return (0, pads[0], 0, pads[1]) if is_sequence else cast("Pads", pads)


def compute_same_pads(size: Pair, kernel: Pair, strides: Pair, dilations: Pair, *, pads_end: bool) -> Pads:
    """Return pads for an output of ceil(size / stride). With `pads_end`, an odd pad is at the end, else at the start.

    >>> compute_same_pads((5, 6), kernel=(3, 3), strides=(1, 2), dilations=(1, 1), pads_end=True)
    (1, 0, 1, 1)
    """
    start_pads, end_pads = [], []
    for length, k, stride, dilation in zip(size, kernel, strides, dilations, strict=True):
        total = max((-(-length // stride) - 1) * stride + (k - 1) * dilation + 1 - length, 0)
        smaller_pad, larger_pad = total // 2, total - total // 2
        start_pads.append(smaller_pad if pads_end else larger_pad)
        end_pads.append(larger_pad if pads_end else smaller_pad)
    return (start_pads[0], start_pads[1], end_pads[0], end_pads[1])


def excess(size: Pair, kernel: Pair, move: Move) -> Pair:
    """Return the extra padding (bottom, right) of `ceil_mode`, which completes a last, partial window.

    A window that would start after the image and its front padding does not count.

    >>> excess((5, 6), kernel=(2, 2), move=((2, 2), (0, 0, 0, 0), (1, 1)))
    (1, 0)
    """
    strides, pads, dilations = move
    added = []
    for axis in (0, 1):
        room = size[axis] + pads[axis] + pads[axis + 2] - dilations[axis] * (kernel[axis] - 1) - 1
        count = -(-room // strides[axis]) + 1
        if (count - 1) * strides[axis] >= size[axis] + pads[axis]:
            count -= 1
        added.append(max((count - 1) * strides[axis] - room, 0))
    return (added[0], added[1])


# ------------------------------------------------------------------ computation


def conv(inputs: Sequence[Array], attributes: Attributes) -> Array:
    """Return the cross-correlation of images and weights, plus the bias if there is one.

    Images are (n, channels, height, width), weights (rows, channels / groups, kh, kw).
    """
    x, weights = inputs[0], inputs[1]
    rows, kernel = weights.shape[0], (weights.shape[2], weights.shape[3])
    strides, pads = attributes["strides"], attributes["pads"]
    dilations, groups = attributes["dilations"], attributes["groups"]
    tall, wide = output_size((x.shape[2], x.shape[3]), kernel, strides, pads, dilations)
    by_group = weights.reshape(groups, rows // groups, -1).transpose(0, 2, 1)
    out = np.empty((len(x), rows, tall * wide), np.float32)
    step = max(1, BLOCK_SIZE // (tall * wide * groups * by_group.shape[1]))
    for start in range(0, len(x), step):
        rows_of_patches = patches(x[start : start + step], kernel, strides, pads, dilations, groups)
        sums = np.matmul(rows_of_patches.transpose(0, 2, 1, 3), by_group)
        out[start : start + step] = sums.transpose(0, 1, 3, 2).reshape(
            len(rows_of_patches), rows, tall * wide
        )
    if len(inputs) > 2:
        out += inputs[2][:, None]
    return out.reshape(len(x), rows, tall, wide)


def max_pool(inputs: Sequence[Array], attributes: Attributes) -> Array:
    """Return the largest value in each window; padding never counts."""
    x = pad_image(inputs[0], _add_excess(attributes), -np.inf)
    dilations = attributes.get("dilations", (1, 1))
    return reduce(np.maximum, slide(x, attributes["kernel"], attributes["strides"], dilations))


def average_pool(inputs: Sequence[Array], attributes: Attributes) -> Array:
    """Return the mean of each window over the image, and over `pads` too with `count_include_pad`.

    `excess` (bottom, right) is the extra padding of `ceil_mode`. It never counts.
    """
    x, pads = inputs[0], _add_excess(attributes)
    move = attributes["kernel"], attributes["strides"], attributes.get("dilations", (1, 1))
    outline = np.ones((1, 1, *x.shape[2:]), np.float32)
    if attributes.get("count_include_pad", False):
        outline = pad_image(outline, attributes["pads"], 1)
        bottom, right = attributes.get("excess", (0, 0))
        outline = pad_image(outline, (0, 0, bottom, right))
    else:
        outline = pad_image(outline, pads)
    total = sum(slide(pad_image(x, pads), *move))
    return np.asarray(total / sum(slide(outline, *move)), np.float32)


def _add_excess(attributes: Attributes) -> Pads:
    """Return the padding, including the extra padding of `ceil_mode`."""
    top, left, bottom, right = attributes["pads"]
    extra_bottom, extra_right = attributes.get("excess", (0, 0))
    return top, left, bottom + extra_bottom, right + extra_right


WINDOWS: Mapping[str, Operator] = {
    "Conv": Operator(add_conv, conv),
    "MaxPool": Operator(add_pool, max_pool),
    "AveragePool": Operator(add_pool, average_pool),
    "GlobalAveragePool": Operator(
        add_global_pool, lambda inputs, _: inputs[0].mean(axis=(2, 3), keepdims=True)
    ),
    "GlobalMaxPool": Operator(add_global_pool, lambda inputs, _: inputs[0].max(axis=(2, 3), keepdims=True)),
}
