"""Operations that only move values, never across images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from lightning.networks.operations.builder import (
    BATCH_LENGTH,
    Array,
    Attributes,
    Builder,
    Call,
    Operator,
)

# ----------------------------------------------------------------- translation


def add_flatten(builder: Builder, call: Call) -> str:
    """Add a reshape to (n, everything)."""
    tensor = builder.require_activation(call)
    axis = call.read_integer("axis", 1)
    axis = axis + builder.get_rank(tensor) if axis < 0 else axis
    if not 1 <= axis <= builder.get_rank(tensor) or prod(builder.shapes[tensor][: axis - 1]) != 1:
        raise call.make_error(f"flattens images with the batch at axis {axis}", "Flatten from axis 1")
    return tensor if builder.get_rank(tensor) == 2 else builder.emit("Flatten", [tensor], call.name)


def add_reshape(builder: Builder, call: Call) -> str:
    """Add a reshape to a constant shape that keeps the batch axis first."""
    tensor = builder.require_activation(call)
    target_shape = [int(size) for size in builder.require_constant(call, 1).reshape(-1)]
    return builder.reshape(tensor, resolve_image_shape(builder, call, tensor, target_shape), call.name)


def resolve_image_shape(
    builder: Builder, call: Call, tensor: str, target_shape: list[int]
) -> tuple[int, ...]:
    """Return the shape of one image after ONNX's Reshape of `tensor` to `target_shape`.

    In `target_shape`, 0 copies the length of an axis, and -1 stands for the length that the size determines. Raise
    `UnsupportedNode` if the reshape mixes images.
    """
    shape = builder.shapes[tensor]
    image_size = prod(shape)
    if not target_shape or target_shape[0] not in {-1, 0, 1, BATCH_LENGTH}:
        raise call.make_error(
            f"reshapes images to {target_shape}, with another batch axis", "Keep the batch axis in front"
        )
    image_shape = [
        shape[axis - 1]
        if size == 0 and not call.read_integer("allowzero", 0) and axis <= len(shape)
        else size
        for axis, size in enumerate(target_shape)
    ][1:]
    if image_shape.count(-1) == 1 and target_shape[0] != -1:
        known_size = prod(size for size in image_shape if size != -1)
        image_shape[image_shape.index(-1)] = image_size // known_size if known_size else 0
    if prod(image_shape) != image_size or min(image_shape, default=1) < 1:
        raise call.make_error(
            f"reshapes {shape} per image to {target_shape}, which mixes images", "Keep images apart"
        )
    if target_shape[0] == 1 and builder.is_batched:
        builder.add_note(f"Reshape {call.name} to a batch of one image keeps the batch axis open instead")
    return tuple(image_shape)


def add_squeeze(builder: Builder, call: Call) -> str:
    """Remove axes of length 1: those in input 1, or all."""
    tensor = builder.require_activation(call)
    shape, rank = builder.shapes[tensor], builder.get_rank(tensor)
    requested_axes = builder.find_constant(call, 1)
    if requested_axes is None:
        if not builder.is_batched:
            raise call.make_error("removes the batch axis too", "Name the axes that Squeeze removes")
        return builder.reshape(tensor, [size for size in shape if size != 1], call.name)
    removed_axes = {builder.normalise_axis(call, int(axis), rank) for axis in requested_axes.reshape(-1)}
    if any(shape[axis - 1] != 1 for axis in removed_axes):
        raise call.make_error(
            f"removes axes {sorted(removed_axes)} of images of shape {shape}; not all have length 1"
        )
    return builder.reshape(
        tensor, [size for axis, size in enumerate(shape, 1) if axis not in removed_axes], call.name
    )


def add_unsqueeze(builder: Builder, call: Call) -> str:
    """Insert axes of length 1."""
    tensor = builder.require_activation(call)
    axes = builder.require_constant(call, 1).reshape(-1)
    rank = builder.get_rank(tensor) + len(axes)
    inserted_axes = {builder.normalise_axis(call, int(axis), rank) for axis in axes}
    sizes = iter(builder.shapes[tensor])
    return builder.reshape(
        tensor, [1 if axis in inserted_axes else next(sizes) for axis in range(1, rank)], call.name
    )


def add_transpose(builder: Builder, call: Call) -> str:
    """Add a transpose that keeps the batch axis in front."""
    tensor = builder.require_activation(call)
    rank = builder.get_rank(tensor)
    order = call.attributes.get("perm", tuple(reversed(range(rank))))
    if sorted(order) != list(range(rank)):
        raise call.make_error(f"has perm = {order!r}, which is not an order of the axes 0 to {rank - 1}")
    if order[0] != 0:
        raise call.make_error(
            "moves the batch axis",
            "Keep the batch axis in front (batch_first=True), or import the torch module itself",
        )
    return builder.emit("Transpose", [tensor], call.name, {"perm": tuple(order)})


def add_concat(builder: Builder, call: Call) -> str:
    """Add a concatenation along an axis. Constants repeat for every image."""
    rank = max(builder.get_rank(tensor) for tensor in call.inputs if not builder.is_constant(tensor))
    for tensor in call.inputs:
        value = builder.constants.get(tensor)
        if value is not None and (value.ndim != rank or value.shape[0] != 1):
            raise call.make_error(
                f"joins a constant of shape {value.shape} to activations of {rank} axes; the constant needs as many "
                "axes, the first of length 1"
            )
    attributes = {"axis": builder.normalise_axis(call, call.read_integer("axis", 1), rank)}
    return builder.emit("Concat", call.inputs, call.name, attributes)


def add_split(builder: Builder, call: Call) -> tuple[str, ...]:
    """Split along an axis, with a `Slice` for each output."""
    tensor = builder.require_activation(call)
    axis = builder.normalise_axis(call, call.read_integer("axis", 0), builder.get_rank(tensor))
    length, sizes = builder.shapes[tensor][axis - 1], builder.find_constant(call, 1)
    if sizes is None:
        part_length = -(-length // max(call.read_integer("num_outputs", call.output_count), 1))
        sizes = np.minimum(part_length, length - part_length * np.arange(call.output_count))
    if sizes.sum() != length or len(sizes) != call.output_count:
        raise call.make_error(
            f"splits length {length} into {sizes.tolist()}; it needs {call.output_count} parts of this total length"
        )
    stops = np.cumsum(sizes).tolist()
    spans = zip([0, *stops[:-1]], stops, strict=True)
    return tuple(
        add_slice(builder, tensor, axis, (*span, 1), f"{call.name}/{index}")
        for index, span in enumerate(spans)
    )


def add_slice(builder: Builder, tensor: str, axis: int, span: tuple[int, int | None, int], name: str) -> str:
    """Add `tensor`[start:stop:step] along `axis`, with bounds as in Python."""
    start, stop, step = span
    return builder.emit("Slice", [tensor], name, {"axis": axis, "start": start, "stop": stop, "step": step})


def add_slices(builder: Builder, call: Call) -> str:
    """Add a `Slice` for each axis."""
    tensor = builder.require_activation(call)
    starts, stops = (builder.require_constant(call, index).reshape(-1) for index in (1, 2))
    axes, steps = builder.find_constant(call, 3), builder.find_constant(call, 4)
    axes = np.arange(len(starts)) if axes is None else axes.reshape(-1)
    steps = np.ones(len(starts), np.int64) if steps is None else steps.reshape(-1)
    for start, stop, axis, step in zip(starts, stops, axes, steps, strict=True):
        if int(axis) % builder.get_rank(tensor) == 0 and start == 0 and stop >= BATCH_LENGTH and step == 1:
            continue
        positive_axis = builder.normalise_axis(call, int(axis), builder.get_rank(tensor))
        tensor = add_slice(
            builder,
            tensor,
            positive_axis,
            normalise_span(builder.shapes[tensor][positive_axis - 1], start, stop, step),
            call.name,
        )
    return tensor


def normalise_span(length: int, start: Any, stop: Any, step: Any) -> tuple[int, int | None, int]:
    """Return (start, stop, step) of a Python slice. `stop` is None for a backward slice that includes the first entry.

    >>> normalise_span(5, -1, -(2**63), -2)
    (4, None, -2)
    """
    begin, end, index_step = slice(int(start), int(stop), int(step)).indices(length)
    return begin, None if end < 0 else end, index_step


def add_gather(builder: Builder, call: Call) -> str:
    """Add a selection of entries along an axis, by constant indices."""
    if builder.is_constant(call.get_input_name(0)):
        raise call.make_error(
            "looks up rows of a constant table by indices that depend on the image",
            "Pass the vectors instead of their indices",
        )
    tensor, indices = builder.require_activation(call), builder.require_constant(call, 1)
    axis = builder.normalise_axis(call, call.read_integer("axis", 0), builder.get_rank(tensor))
    if indices.dtype.kind not in "iu":
        raise call.make_error(f"takes indices of type {indices.dtype}, not integers")
    length = builder.shapes[tensor][axis - 1]
    if indices.size and not -length <= indices.min() <= indices.max() < length:
        raise call.make_error(
            f"takes indices {indices.min()} to {indices.max()} of an axis of length {length}"
        )
    index_tensor = builder.add_constant(indices, f"{call.name}.places")
    return builder.emit("Gather", [tensor, index_tensor], call.name, {"axis": axis})


def add_pad(builder: Builder, call: Call) -> str:
    """Pad images with a constant."""
    tensor, mode = builder.require_activation(call), call.attributes.get("mode", "constant")
    value, axes = builder.find_constant(call, 2), builder.find_constant(call, 3)
    if mode != "constant":
        raise call.make_error(f"uses the padding mode {mode!r}", "Pad with a constant")
    rank = builder.get_rank(tensor)
    pad_pairs = builder.require_constant(call, 1).reshape(2, -1).T
    pad_axes = range(rank) if axes is None else [int(axis) % rank for axis in axes.reshape(-1)]
    pads = [(0, 0)] * rank
    for pad_axis, (pad_before, pad_after) in zip(pad_axes, pad_pairs, strict=True):
        pads[pad_axis] = (int(pad_before), int(pad_after))
    if pads[0] != (0, 0) or min(min(pair) for pair in pads) < 0:
        raise call.make_error(f"pads {pads}", "Pad images, by 0 or more")
    if not any(map(any, pads)):
        return tensor
    fill_value = 0.0 if value is None else float(value.reshape(()))
    return builder.emit("Pad", [tensor], call.name, {"pads": tuple(pads), "value": fill_value})


def add_expand(builder: Builder, call: Call) -> str:
    """Add an expansion to a larger shape by repeating axes of length 1."""
    tensor, target_shape = builder.require_activation(call), builder.require_constant(call, 1).reshape(-1)
    rank = builder.get_rank(tensor)
    if len(target_shape) > rank or (len(target_shape) == rank and target_shape[0] not in {1, BATCH_LENGTH}):
        raise call.make_error(
            f"repeats images to {target_shape.tolist()}", "Keep images apart, along the first axis"
        )
    ones = np.ones([1, *target_shape[-len(builder.shapes[tensor]) :].tolist()], np.float32)
    return builder.emit("Mul", [tensor, builder.add_constant(ones, f"{call.name}.ones")], call.name)


# ------------------------------------------------------------------ computation


def concat(inputs: Sequence[Array], attributes: Attributes) -> Array:
    """Return the concatenated tensors. Repeat constants (batch axis of length 1) for every image."""
    image_count = max(len(array) for array in inputs) if all(len(array) for array in inputs) else 0
    broadcast_tensors = [np.broadcast_to(array, (image_count, *array.shape[1:])) for array in inputs]
    return np.concatenate(broadcast_tensors, axis=attributes["axis"])


def take_slice(inputs: Sequence[Array], attributes: Attributes) -> Array:
    """Return x[start:stop:step] along an axis."""
    slices = [slice(None)] * inputs[0].ndim
    slices[attributes["axis"]] = slice(attributes["start"], attributes["stop"], attributes["step"])
    return inputs[0][tuple(slices)]


SHAPING_OPERATORS: Mapping[str, Operator] = {
    "Flatten": Operator(
        add_flatten, lambda inputs, _: inputs[0].reshape(len(inputs[0]), int(np.prod(inputs[0].shape[1:])))
    ),
    "Reshape": Operator(add_reshape, lambda inputs, a: inputs[0].reshape(len(inputs[0]), *a["shape"])),
    "Squeeze": Operator(add_squeeze),
    "Unsqueeze": Operator(add_unsqueeze),
    "Transpose": Operator(add_transpose, lambda inputs, a: inputs[0].transpose(a["perm"])),
    "Concat": Operator(add_concat, concat),
    "Split": Operator(add_split),
    "Slice": Operator(add_slices, take_slice),
    "Gather": Operator(add_gather, lambda inputs, a: np.take(inputs[0], inputs[1], axis=a["axis"])),
    "Pad": Operator(add_pad, lambda inputs, a: np.pad(inputs[0], a["pads"], constant_values=a["value"])),
    "Expand": Operator(add_expand),
}
