"""Operations on single values, and on pairs of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from lightning.networks.operations.builder import (
    Array,
    Builder,
    Call,
    Computation,
    Operator,
)

DEFAULT_ATTRIBUTES: Mapping[str, Mapping[str, float]] = {
    "LeakyRelu": {"alpha": 0.01},
    "Elu": {"alpha": 1.0},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
}
"""Attributes by operation, with ONNX's defaults."""
FLOAT_TYPE_CODES = frozenset({1, 10, 11, 16})
"""ONNX's type codes of float32, float16, float64, bfloat16."""
ERFC_COEFFICIENTS = (
    0.17087277,
    -0.82215223,
    1.48851587,
    -1.13520398,
    0.27886807,
    -0.18628806,
    0.09678418,
    0.37409196,
    1.00002368,
    -1.26551223,
)
"""Coefficients of t^9 .. 1, with t = 1 / (1 + |x| / 2): Press et al., Numerical Recipes, section 6.2 (erfcc)."""


# ----------------------------------------------------------------- translation


def add_unary(builder: Builder, call: Call) -> str:
    """Add an operation of one activation. Its output has the same shape."""
    attributes = {
        name: call.read_number(name, default)
        for name, default in DEFAULT_ATTRIBUTES.get(call.operation, {}).items()
    }
    return builder.emit(call.operation, [builder.require_activation(call)], call.name, attributes)


def skip_identity(builder: Builder, call: Call) -> str:
    """Return the activation of an `Identity`, or of a `Dropout` in inference."""
    if call.operation == "Dropout":
        mode = builder.find_constant(call, 2)
        if call.output_count > 1 or (mode is not None and mode.any()):
            raise call.make_error("is in training mode", "Export the network for inference")
    builder.add_note(f"{call.operation} {call.name} left out: it changes nothing in inference")
    return builder.require_activation(call)


def skip_cast(builder: Builder, call: Call) -> str:
    """Return the activation of a cast between floats: all floats are float32 here."""
    if call.read_integer("to", 1) not in FLOAT_TYPE_CODES:
        raise call.make_error("converts activations to integers or booleans", "Keep activations floats")
    builder.add_note(f"Cast {call.name} left out: activations are float32")
    return builder.require_activation(call)


def add_gelu(builder: Builder, call: Call) -> str:
    """Add `Gelu` of ONNX's opset 20, exact or approximated by tanh."""
    approximation = call.attributes.get("approximate", "none")
    if approximation not in {"none", "tanh"}:
        raise call.make_error(f"has approximate = {approximation!r}", "Give none or tanh")
    return builder.emit("Gelu", [builder.require_activation(call)], call.name, {"approximate": approximation})


def add_clip(builder: Builder, call: Call) -> str:
    """Add a clip to two constant bounds. Either may be missing."""
    bounds = []
    for index, default_bound in ((1, -np.inf), (2, np.inf)):
        bound = builder.find_constant(call, index)
        if bound is not None and bound.size != 1:
            raise call.make_error(f"clips at bounds of shape {bound.shape}, not at single numbers")
        bounds.append(default_bound if bound is None else float(bound.reshape(())))
    return builder.emit(
        "Clip", [builder.require_activation(call)], call.name, {"min": bounds[0], "max": bounds[1]}
    )


def add_binary(builder: Builder, call: Call) -> str:
    """Add an operation of two tensors, broadcast for each image. At least one is an activation."""
    if call.operation == "Pow" and call.get_input_name(0) in builder.constants:
        raise call.make_error("raises a constant to the power of activations", "Write it as Exp")
    if len(call.inputs) != 2:
        raise call.make_error(f"has {len(call.inputs)} inputs", "Give two")
    return builder.emit(call.operation, _align_ranks(builder, call, call.inputs), call.name)


def make_pairwise_translation(operation: str) -> Callable[[Builder, Call], str]:
    """Return a translation of `Sum`, `Max` or `Min` of several tensors to `operation` on pairs."""

    def translate(builder: Builder, call: Call) -> str:
        accumulated_tensor, *other_inputs = sorted(call.inputs, key=builder.is_constant)
        for tensor in other_inputs:
            accumulated_tensor = builder.emit(
                operation, _align_ranks(builder, call, (accumulated_tensor, tensor)), call.name
            )
        return accumulated_tensor

    return translate


def _align_ranks(builder: Builder, call: Call, inputs: tuple[str, ...]) -> list[str]:
    """Return the inputs, reshaped to broadcast without mixing images. Raise `UnsupportedNode` if impossible."""
    ranks = [builder.get_rank(tensor) for tensor in inputs if not builder.is_constant(tensor)]
    if len(set(ranks)) > 1 and builder.is_batched:
        raise call.make_error(
            f"combines activations with {ranks[0]} and {ranks[1]} axes, which would mix images",
            "Give both the same number of axes",
        )
    aligned = []
    for index, tensor in enumerate(inputs):
        if builder.is_constant(tensor):
            aligned.append(_make_broadcastable(builder, call, tensor, max(ranks)))
        else:
            missing_axes = (1,) * (max(ranks) - builder.get_rank(tensor))
            aligned.append(
                builder.reshape(tensor, missing_axes + builder.shapes[tensor], f"{call.name}/rank{index}")
            )
    return aligned


def _make_broadcastable(builder: Builder, call: Call, tensor: str, rank: int) -> str:
    value = builder.constants[tensor]
    if value.ndim > rank or (value.ndim == rank and value.shape[0] != 1):
        raise call.make_error(
            f"combines activations with a constant of shape {value.shape} that has a batch axis",
            "Give its batch axis the length 1",
        )
    if value.dtype.kind not in "fiub":
        raise call.make_error(f"combines activations with a constant of type {value.dtype}, not numbers")
    return (
        tensor
        if value.dtype == np.float32
        else builder.add_constant(value.astype(np.float32), f"{tensor}.float32")
    )


def add_hard_swish(builder: Builder, call: Call) -> str:
    """Add x times its hard sigmoid of slope 1/6."""
    tensor = builder.require_activation(call)
    gate = builder.emit("HardSigmoid", [tensor], f"{call.name}/gate", {"alpha": 1 / 6, "beta": 0.5})
    return builder.emit("Mul", [tensor, gate], call.name)


def add_mish(builder: Builder, call: Call) -> str:
    """Add x times tanh(softplus(x))."""
    tensor = builder.require_activation(call)
    softplus_tensor = builder.emit("Softplus", [tensor], f"{call.name}/softplus")
    return builder.emit(
        "Mul", [tensor, builder.emit("Tanh", [softplus_tensor], f"{call.name}/gate")], call.name
    )


def add_swish(builder: Builder, call: Call) -> str:
    """Add x times its sigmoid, which torch calls SiLU."""
    tensor = builder.require_activation(call)
    return builder.emit("Mul", [tensor, builder.emit("Sigmoid", [tensor], f"{call.name}/gate")], call.name)


def add_where(builder: Builder, call: Call) -> str:
    """Add a selection by a constant condition, as in attention masks."""
    condition = builder.require_constant(call, 0)
    branches = _align_ranks(builder, call, call.inputs[1:])
    rank = max(builder.get_rank(tensor) for tensor in branches if not builder.is_constant(tensor))
    if condition.ndim > rank or (condition.ndim == rank and condition.shape[0] != 1):
        raise call.make_error(
            f"selects by a condition of shape {condition.shape} that has a batch axis",
            "Give its batch axis the length 1",
        )
    condition_name = builder.add_constant(condition.astype(bool), f"{call.name}.condition")
    return builder.emit("Where", [condition_name, *branches], call.name)


# ------------------------------------------------------------------ computation


def erf(x: Array) -> Array:
    """Return the error function; its complement has a relative error below 1.2e-7.

    >>> [round(float(v), 6) for v in erf(np.array([-1.0, 0.5, 2.0]))]
    [-0.842701, 0.5205, 0.995322]
    """
    magnitude = np.abs(x, dtype=np.float64)
    t = 1 / (1 + magnitude / 2)
    complement = t * np.exp(np.polyval(ERFC_COEFFICIENTS, t) - magnitude * magnitude)
    return np.asarray(np.sign(x) * (1 - complement))


def gelu(x: Array, approximate: str = "none") -> Array:
    """Return x times the standard normal distribution function of x, or its approximation by `tanh`.

    >>> gelu(np.array([1.0])).round(4), gelu(np.array([1.0]), "tanh").round(4)
    (array([0.8413]), array([0.8412]))
    """
    if approximate == "tanh":
        return np.asarray(0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3))))
    return np.asarray(0.5 * x * (1 + erf(x * 0.7071067812)))


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x)), computed from tanh, which does not overflow."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))


def softplus(x: Array) -> Array:
    """Return log(1 + exp(x)), without overflow."""
    return np.asarray(np.logaddexp(x, 0))


def leaky_relu(x: Array, alpha: float) -> Array:
    """Return x, with negative values multiplied by `alpha`."""
    return np.where(x < 0, np.float32(alpha) * x, x)


def elu(x: Array, alpha: float) -> Array:
    """Return x, with negative values replaced by alpha * (exp(x) - 1)."""
    return np.where(x < 0, np.float32(alpha) * np.expm1(np.minimum(x, 0)), x)


def hard_sigmoid(x: Array, alpha: float, beta: float) -> Array:
    """Return alpha * x + beta, clipped to 0..1."""
    return np.asarray(np.clip(np.float32(alpha) * x + np.float32(beta), 0, 1))


def _make_unary(function: Callable[[Array], Array]) -> Computation:
    return lambda inputs, _: function(inputs[0])


def _make_binary(function: Callable[[Array, Array], Array]) -> Computation:
    return lambda inputs, _: function(inputs[0], inputs[1])


ELEMENTWISE_OPERATORS: Mapping[str, Operator] = {
    "Relu": Operator(add_unary, _make_unary(lambda x: np.maximum(x, 0))),
    "LeakyRelu": Operator(add_unary, lambda inputs, a: leaky_relu(inputs[0], a["alpha"])),
    "Elu": Operator(add_unary, lambda inputs, a: elu(inputs[0], a["alpha"])),
    "HardSigmoid": Operator(add_unary, lambda inputs, a: hard_sigmoid(inputs[0], a["alpha"], a["beta"])),
    "Sigmoid": Operator(add_unary, _make_unary(sigmoid)),
    "Softplus": Operator(add_unary, _make_unary(softplus)),
    "Tanh": Operator(add_unary, _make_unary(np.tanh)),
    "Erf": Operator(add_unary, _make_unary(erf)),
    "Exp": Operator(add_unary, _make_unary(np.exp)),
    "Log": Operator(add_unary, _make_unary(np.log)),
    "Sqrt": Operator(add_unary, _make_unary(np.sqrt)),
    "Abs": Operator(add_unary, _make_unary(np.abs)),
    "Neg": Operator(add_unary, _make_unary(np.negative)),
    "Reciprocal": Operator(add_unary, _make_unary(np.reciprocal)),
    "Add": Operator(add_binary, _make_binary(np.add)),
    "Sub": Operator(add_binary, _make_binary(np.subtract)),
    "Mul": Operator(add_binary, _make_binary(np.multiply)),
    "Div": Operator(add_binary, _make_binary(np.divide)),
    "Pow": Operator(add_binary, _make_binary(np.power)),
    "PRelu": Operator(add_binary, _make_binary(lambda x, slope: np.where(x < 0, slope * x, x))),
    "Identity": Operator(skip_identity),
    "Dropout": Operator(skip_identity),
    "Cast": Operator(skip_cast),
    "Gelu": Operator(add_gelu, lambda inputs, a: gelu(inputs[0], a["approximate"])),
    "Clip": Operator(add_clip, lambda inputs, a: np.clip(inputs[0], a["min"], a["max"])),
    "Sum": Operator(make_pairwise_translation("Add")),
    "Max": Operator(make_pairwise_translation("Max"), _make_binary(np.maximum)),
    "Min": Operator(make_pairwise_translation("Min"), _make_binary(np.minimum)),
    "HardSwish": Operator(add_hard_swish),
    "Mish": Operator(add_mish),
    "Swish": Operator(add_swish),
    "Where": Operator(add_where, lambda inputs, _: np.where(*inputs)),
}
