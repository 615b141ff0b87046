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
from lightning.networks.patches import (
    Pads,
    Pair,
    compute_output_size,
    extract_patches,
    pad_image,
    slide_window,
)

WindowSettings = tuple[Pair, Pads, Pair]
"""Strides, pads, dilations."""

MAX_BLOCK_VALUES = 1 << 20
"""Maximum number of values in the patches of one block of images, so that they fit in the processor's caches."""


# ----------------------------------------------------------------- translation


def add_conv(builder: Builder, call: Call) -> str:
    """Add a convolution over one or two axes, with groups, strides, dilations and pads."""
    tensor, weights, bias = (
        builder.require_activation(call),
        builder.require_constant(call, 1),
        builder.find_constant(call, 2),
    )
    groups, output_channels = call.read_integer("group", 1), len(weights)
    _check_kernel(builder, call, weights, bias)
    image, is_sequence = reshape_to_image(builder, call, tensor)
    kernels = weights.reshape(output_channels, weights.shape[1], 1, -1) if is_sequence else weights
    kernel = (kernels.shape[2], kernels.shape[3])
    image_size = (builder.shapes[image][1], builder.shapes[image][2])
    window_settings = read_window_settings(call, image_size, kernel, is_sequence=is_sequence)
    if min(compute_output_size(image_size, kernel, *window_settings)) < 1:
        raise call.make_error(f"has a kernel {kernel} larger than the image {image_size}")
    inputs = [image, builder.add_constant(kernels, f"{call.name}.weight")]
    if bias is not None:
        inputs.append(builder.add_constant(bias, f"{call.name}.bias"))
    strides, pads, dilations = window_settings
    attributes = {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups}
    return remove_row(
        builder, call, builder.emit("Conv", inputs, call.name, attributes), is_sequence=is_sequence
    )


def _check_kernel(builder: Builder, call: Call, weights: Array, bias: Array | None) -> None:
    """Raise `UnsupportedNode` if weights, bias, groups and channels contradict each other."""
    tensor, groups, output_channels = (
        builder.require_activation(call),
        call.read_integer("group", 1),
        len(weights),
    )
    channels = builder.shapes[tensor][0]
    if weights.ndim != builder.get_rank(tensor):
        raise call.make_error(
            f"has weights of shape {weights.shape} for activations of {builder.get_rank(tensor)} axes; both need as "
            "many axes"
        )
    if groups < 1 or output_channels % groups or channels != weights.shape[1] * groups:
        raise call.make_error(
            f"has weights of shape {weights.shape} in {groups} groups, which do not fit {channels} input channels"
        )
    if bias is not None and bias.shape != (output_channels,):
        raise call.make_error(f"has a bias of shape {bias.shape} for {output_channels} outputs")


def reshape_to_image(builder: Builder, call: Call, tensor: str) -> tuple[str, bool]:
    """Return (image, is_sequence). Reshape a sequence (channels, length) to an image of one row.

    Raise `UnsupportedNode` for other numbers of axes.
    """
    shape = builder.shapes[tensor]
    if len(shape) not in {2, 3}:
        raise call.make_error(f"moves over {len(shape) - 1} axes", "Use 1 or 2 axes")
    if len(shape) == 3:
        return tensor, False
    builder.add_note(f"{call.operation} {call.name} of a sequence is computed as an image of one row")
    return builder.reshape(tensor, (shape[0], 1, shape[1]), f"{call.name}/image"), True


def remove_row(builder: Builder, call: Call, image: str, *, is_sequence: bool) -> str:
    """Return the image, reshaped back to a sequence if `is_sequence`."""
    if not is_sequence:
        return image
    channels, _, length = builder.shapes[image]
    return builder.reshape(image, (channels, length), f"{call.name}/sequence")


def add_pool(builder: Builder, call: Call) -> str:
    """Add `MaxPool` or `AveragePool` over one or two axes."""
    tensor = builder.require_activation(call)
    if call.output_count > 1:
        raise call.make_error("returns indices too", "Export it with one output")
    image, is_sequence = reshape_to_image(builder, call, tensor)
    image_size = (builder.shapes[image][1], builder.shapes[image][2])
    kernel_shape = call.read_integers("kernel_shape", (0,) if is_sequence else (0, 0), minimum=1)
    kernel = (1, kernel_shape[0]) if is_sequence else (kernel_shape[0], kernel_shape[1])
    window_settings = read_window_settings(call, image_size, kernel, is_sequence=is_sequence)
    strides, pads, dilations = window_settings
    kernel_spans = [dilations[axis % 2] * (kernel[axis % 2] - 1) + 1 for axis in range(4)]
    if any(pad >= span for pad, span in zip(pads, kernel_spans, strict=True)):
        raise call.make_error(f"pads {pads} as much as its kernel {kernel}", "Pad less than the kernel")
    extra_pads = (
        compute_ceil_mode_pads(image_size, kernel, window_settings)
        if call.read_integer("ceil_mode", 0)
        else (0, 0)
    )
    all_pads = (pads[0], pads[1], pads[2] + extra_pads[0], pads[3] + extra_pads[1])
    if min(compute_output_size(image_size, kernel, strides, all_pads, dilations)) < 1:
        raise call.make_error(f"has a kernel {kernel} larger than the image {image_size}")
    attributes: dict[str, Any] = {"kernel": kernel, "strides": strides, "pads": pads, "dilations": dilations}
    attributes["excess"] = extra_pads
    if call.operation == "AveragePool":
        attributes["count_include_pad"] = bool(call.read_integer("count_include_pad", 0))
    return remove_row(
        builder, call, builder.emit(call.operation, [image], call.name, attributes), is_sequence=is_sequence
    )


def add_global_pool(builder: Builder, call: Call) -> str:
    """Add `GlobalAveragePool` or `GlobalMaxPool` of images or sequences."""
    tensor = builder.require_activation(call)
    image, is_sequence = reshape_to_image(builder, call, tensor)
    return remove_row(
        builder, call, builder.emit(call.operation, [image], call.name), is_sequence=is_sequence
    )


def read_window_settings(
    call: Call, image_size: tuple[int, ...], kernel: Pair, *, is_sequence: bool
) -> WindowSettings:
    """Return strides, pads and dilations of a call for an image of `image_size`.

    Attributes of a sequence have one axis.
    Raise `UnsupportedNode` for invalid attributes, for example negative pads.
    """
    ones = (1,) if is_sequence else (1, 1)
    strides = _make_pair(call.read_integers("strides", ones, minimum=1))
    dilations = _make_pair(call.read_integers("dilations", ones, minimum=1))
    return (
        strides,
        _find_pads(call, (image_size[0], image_size[1]), kernel, strides, dilations, is_sequence=is_sequence),
        dilations,
    )


def _make_pair(values: tuple[int, ...]) -> Pair:
    return (1, values[0]) if len(values) == 1 else (values[0], values[1])


def _find_pads(
    call: Call, image_size: Pair, kernel: Pair, strides: Pair, dilations: Pair, *, is_sequence: bool
) -> Pads:
    auto_pad = call.attributes.get("auto_pad", "NOTSET")
    if auto_pad == "VALID":
        return (0, 0, 0, 0)
    if auto_pad in {"SAME_UPPER", "SAME_LOWER"}:
        return compute_same_pads(
            image_size, kernel, strides, dilations, is_end_larger=auto_pad == "SAME_UPPER"
        )
    if auto_pad != "NOTSET":
        raise call.make_error(f"has auto_pad = {auto_pad!r}", "Use NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    pads = call.read_integers("pads", (0, 0) if is_sequence else (0, 0, 0, 0))
    return (0, pads[0], 0, pads[1]) if is_sequence else cast("Pads", pads)


def compute_same_pads(
    image_size: Pair, kernel: Pair, strides: Pair, dilations: Pair, *, is_end_larger: bool
) -> Pads:
    """Return pads for an output of ceil(size / stride).

    If the total pad of an axis is odd, the larger part is at the end if `is_end_larger`, else at the start.

    >>> compute_same_pads((5, 6), kernel=(3, 3), strides=(1, 2), dilations=(1, 1), is_end_larger=True)
    (1, 0, 1, 1)
    """
    start_pads, end_pads = [], []
    for length, kernel_length, stride, dilation in zip(image_size, kernel, strides, dilations, strict=True):
        total_pad = max((-(-length // stride) - 1) * stride + (kernel_length - 1) * dilation + 1 - length, 0)
        smaller_pad, larger_pad = total_pad // 2, total_pad - total_pad // 2
        start_pads.append(smaller_pad if is_end_larger else larger_pad)
        end_pads.append(larger_pad if is_end_larger else smaller_pad)
    return (start_pads[0], start_pads[1], end_pads[0], end_pads[1])


def compute_ceil_mode_pads(image_size: Pair, kernel: Pair, window_settings: WindowSettings) -> Pair:
    """Return the extra padding (bottom, right) of `ceil_mode`, which completes a last, partial window.

    A window that would start after the image and its front padding does not count.

    >>> compute_ceil_mode_pads((5, 6), kernel=(2, 2), window_settings=((2, 2), (0, 0, 0, 0), (1, 1)))
    (1, 0)
    """
    strides, pads, dilations = window_settings
    ceil_mode_pads = []
    for axis in (0, 1):
        largest_start = (
            image_size[axis] + pads[axis] + pads[axis + 2] - dilations[axis] * (kernel[axis] - 1) - 1
        )
        window_count = -(-largest_start // strides[axis]) + 1
        if (window_count - 1) * strides[axis] >= image_size[axis] + pads[axis]:
            window_count -= 1
        ceil_mode_pads.append(max((window_count - 1) * strides[axis] - largest_start, 0))
    return (ceil_mode_pads[0], ceil_mode_pads[1])


# ------------------------------------------------------------------ computation


def conv(inputs: Sequence[Array], attributes: Attributes) -> Array:
    """Return the cross-correlation of images and weights, plus the bias if there is one.

    Images are (n, channels, height, width), weights (output channels, channels / groups, kh, kw).
    """
    images, weights = inputs[0], inputs[1]
    output_channels, kernel = weights.shape[0], (weights.shape[2], weights.shape[3])
    strides, pads = attributes["strides"], attributes["pads"]
    dilations, groups = attributes["dilations"], attributes["groups"]
    output_height, output_width = compute_output_size(
        (images.shape[2], images.shape[3]), kernel, strides, pads, dilations
    )
    weights_by_group = weights.reshape(groups, output_channels // groups, -1).transpose(0, 2, 1)
    outputs = np.empty((len(images), output_channels, output_height * output_width), np.float32)
    images_per_block = max(
        1, MAX_BLOCK_VALUES // (output_height * output_width * groups * weights_by_group.shape[1])
    )
    for start in range(0, len(images), images_per_block):
        rows_of_patches = extract_patches(
            images[start : start + images_per_block], kernel, strides, pads, dilations, groups
        )
        sums = np.matmul(rows_of_patches.transpose(0, 2, 1, 3), weights_by_group)
        outputs[start : start + images_per_block] = sums.transpose(0, 1, 3, 2).reshape(
            len(rows_of_patches), output_channels, output_height * output_width
        )
    if len(inputs) > 2:
        outputs += inputs[2][:, None]
    return outputs.reshape(len(images), output_channels, output_height, output_width)


def max_pool(inputs: Sequence[Array], attributes: Attributes) -> Array:
    """Return the largest value in each window, without padding."""
    padded_images = pad_image(inputs[0], _add_excess(attributes), -np.inf)
    dilations = attributes.get("dilations", (1, 1))
    return reduce(
        np.maximum, slide_window(padded_images, attributes["kernel"], attributes["strides"], dilations)
    )


def average_pool(inputs: Sequence[Array], attributes: Attributes) -> Array:
    """Return the mean of each window. Padding counts only with `count_include_pad`.

    The attribute `excess` (bottom, right) is the extra padding of `ceil_mode`. It never counts.
    """
    images, pads = inputs[0], _add_excess(attributes)
    window = attributes["kernel"], attributes["strides"], attributes.get("dilations", (1, 1))
    counted_mask = np.ones((1, 1, *images.shape[2:]), np.float32)
    if attributes.get("count_include_pad", False):
        counted_mask = pad_image(counted_mask, attributes["pads"], 1)
        bottom, right = attributes.get("excess", (0, 0))
        counted_mask = pad_image(counted_mask, (0, 0, bottom, right))
    else:
        counted_mask = pad_image(counted_mask, pads)
    total = sum(slide_window(pad_image(images, pads), *window))
    return np.asarray(total / sum(slide_window(counted_mask, *window)), np.float32)


def _add_excess(attributes: Attributes) -> Pads:
    """Return the padding, including the extra padding of `ceil_mode`."""
    top, left, bottom, right = attributes["pads"]
    extra_bottom, extra_right = attributes.get("excess", (0, 0))
    return top, left, bottom + extra_bottom, right + extra_right


WINDOW_OPERATORS: Mapping[str, Operator] = {
    "Conv": Operator(add_conv, conv),
    "MaxPool": Operator(add_pool, max_pool),
    "AveragePool": Operator(add_pool, average_pool),
    "GlobalAveragePool": Operator(
        add_global_pool, lambda inputs, _: inputs[0].mean(axis=(2, 3), keepdims=True)
    ),
    "GlobalMaxPool": Operator(add_global_pool, lambda inputs, _: inputs[0].max(axis=(2, 3), keepdims=True)),
}
