"""Operations along axes: normalisation, softmax, means and sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from lightning.networks.operations.builder import (
    Array,
    Attributes,
    Builder,
    Call,
    Computation,
    Operator,
)

# ----------------------------------------------------------------- translation


def add_batch_normalisation(builder: Builder, call: Call) -> str:
    """Add a scale and shift per channel from constant statistics. `simplify` folds them into a product if possible."""
    tensor = builder.require_activation(call)
    scale, bias, mean, variance = (
        builder.require_constant(call, index).astype(np.float64) for index in (1, 2, 3, 4)
    )
    if call.read_integer("training_mode", 0):
        raise call.make_error("is in training mode", "Export the network for inference")
    statistics_shape = builder.shapes[tensor][:1]
    if any(values.shape != statistics_shape for values in (scale, bias, mean, variance)):
        shapes = ", ".join(str(values.shape) for values in (scale, bias, mean, variance))
        raise call.make_error(
            f"has scale, bias, mean and variance of the shapes {shapes}; all must be {statistics_shape}"
        )
    factor = scale / np.sqrt(variance + call.read_number("epsilon", 1e-5))
    channel_shape = (-1, *(1,) * (builder.get_rank(tensor) - 2))
    scale_tensor = builder.add_constant(factor.reshape(channel_shape), f"{call.name}.scale")
    shift = builder.add_constant((bias - mean * factor).reshape(channel_shape), f"{call.name}.shift")
    return builder.emit("BatchNormalization", [tensor, scale_tensor, shift], call.name)


def add_layer_normalisation(builder: Builder, call: Call) -> str:
    """Add a layer normalisation over the last axes, with constant scale and bias."""
    tensor, scale, bias = (
        builder.require_activation(call),
        builder.require_constant(call, 1),
        builder.find_constant(call, 2),
    )
    if call.output_count > 1:
        raise call.make_error("returns its statistics too", "Export it with one output")
    axis = builder.normalise_axis(call, call.read_integer("axis", -1), builder.get_rank(tensor))
    shape = builder.shapes[tensor][axis - 1 :]
    if any(np.broadcast_shapes(array.shape, shape) != shape for array in (scale, bias) if array is not None):
        shapes = " and ".join(str(array.shape) for array in (scale, bias) if array is not None)
        raise call.make_error(
            f"has scale and bias of shape {shapes}, which do not fit the normalised shape {shape}"
        )
    inputs = [tensor, builder.add_constant(scale, f"{call.name}.scale")]
    if bias is not None:
        inputs.append(builder.add_constant(bias, f"{call.name}.bias"))
    attributes = {"axis": axis, "epsilon": call.read_number("epsilon", 1e-5)}
    return builder.emit("LayerNormalization", inputs, call.name, attributes)


def add_softmax(builder: Builder, call: Call) -> str:
    """Add `Softmax` or `LogSoftmax` along one axis."""
    tensor = builder.require_activation(call)
    axis = builder.normalise_axis(call, call.read_integer("axis", -1), builder.get_rank(tensor))
    return builder.emit(call.operation, [tensor], call.name, {"axis": axis})


def add_reduction(builder: Builder, call: Call) -> str:
    """Add `ReduceMean`, `ReduceSum` or `ReduceMax`. The axes are an attribute, in later opsets an input."""
    tensor = builder.require_activation(call)
    axes_input = builder.find_constant(call, 1)
    requested_axes = (
        call.attributes.get("axes", ()) if axes_input is None else axes_input.reshape(-1).tolist()
    )
    if not requested_axes and call.read_integer("noop_with_empty_axes", 0):
        return tensor
    rank = builder.get_rank(tensor)
    axes = tuple(
        sorted(builder.normalise_axis(call, int(axis), rank) for axis in requested_axes or range(rank))
    )
    attributes = {"axes": axes, "keepdims": bool(call.read_integer("keepdims", 1))}
    return builder.emit(call.operation, [tensor], call.name, attributes)


# ------------------------------------------------------------------ computation


def softmax(x: Array, axis: int) -> Array:
    """Return the softmax along `axis`. Subtract the maximum first to avoid overflow."""
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis=axis, keepdims=True))


def log_softmax(x: Array, axis: int) -> Array:
    """Return the logarithm of `softmax`."""
    shifted = x - x.max(axis=axis, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True)))


def layer_norm(inputs: Sequence[Array], attributes: Attributes) -> Array:
    """Return the input normalised over the axes from `axis` on, times scale, plus bias if there is one."""
    activations = inputs[0]
    axes = tuple(range(attributes["axis"], activations.ndim))
    centred = activations - activations.mean(axis=axes, keepdims=True)
    deviation = np.sqrt(np.mean(centred * centred, axis=axes, keepdims=True) + attributes["epsilon"])
    scaled: Array = centred / deviation * inputs[1]
    return scaled + inputs[2] if len(inputs) > 2 else scaled


def batch_norm(inputs: Sequence[Array], _: Attributes) -> Array:
    """Return the channels times their scale, plus their shift."""
    scaled: Array = inputs[0] * inputs[1]
    return scaled + inputs[2]


def _make_reduction(function: Callable[..., Array]) -> Computation:
    return lambda inputs, a: function(inputs[0], axis=tuple(a["axes"]), keepdims=bool(a["keepdims"]))


AXIS_OPERATORS: Mapping[str, Operator] = {
    "BatchNormalization": Operator(add_batch_normalisation, batch_norm),
    "LayerNormalization": Operator(add_layer_normalisation, layer_norm),
    "Softmax": Operator(add_softmax, lambda inputs, a: softmax(inputs[0], a["axis"])),
    "LogSoftmax": Operator(add_softmax, lambda inputs, a: log_softmax(inputs[0], a["axis"])),
    "ReduceMean": Operator(add_reduction, _make_reduction(np.mean)),
    "ReduceSum": Operator(add_reduction, _make_reduction(np.sum)),
    "ReduceMax": Operator(add_reduction, _make_reduction(np.max)),
}
