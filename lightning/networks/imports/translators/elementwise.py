"""Operations on every value by itself, and on pairs of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lightning.networks.imports.builder import Builder, Call

Translator = Callable[[Builder, Call], str]

DEFAULTS: Mapping[str, Mapping[str, float]] = {
    "LeakyRelu": {"alpha": 0.01},
    "Elu": {"alpha": 1.0},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
}
"""Attributes, with ONNX's defaults."""

FLOATS = frozenset({1, 10, 11, 16})
"""ONNX's numbers of float32, float16, float64, bfloat16."""


def unary(builder: Builder, call: Call) -> str:
    """Return an importer of one activation in, one of the same shape out."""
    attributes = {
        name: call.number(name, default) for name, default in DEFAULTS.get(call.operation, {}).items()
    }
    return builder.emit(call.operation, [builder.activation(call)], call.name, attributes)


def same(builder: Builder, call: Call) -> str:
    """`Identity`, and `Dropout` when nothing is trained: the activation itself."""
    if call.operation == "Dropout":
        mode = builder.optional(call, 2)
        if call.outputs > 1 or (mode is not None and mode.any()):
            raise call.refused("is in training mode", "Export the network for inference")
    builder.note(f"{call.operation} {call.name} left out: it changes nothing in inference")
    return builder.activation(call)


def cast(builder: Builder, call: Call) -> str:
    """Add a cast from one float to another; all are float32 here."""
    if call.whole("to", 1) not in FLOATS:
        raise call.refused("makes whole numbers or booleans of activations", "Keep activations floats")
    builder.note(f"Cast {call.name} left out: activations are float32")
    return builder.activation(call)


def gelu(builder: Builder, call: Call) -> str:
    """Add `Gelu` of ONNX's opset 20: exact, or approximated by tanh."""
    way = call.attributes.get("approximate", "none")
    if way not in {"none", "tanh"}:
        raise call.refused(f"has approximate = {way!r}", "Give none or tanh")
    return builder.emit("Gelu", [builder.activation(call)], call.name, {"approximate": way})


def clip(builder: Builder, call: Call) -> str:
    """Between two constants, either of which may be missing."""
    bounds = []
    for place, missing in ((1, -np.inf), (2, np.inf)):
        bound = builder.optional(call, place)
        if bound is not None and bound.size != 1:
            raise call.refused("clips at bounds that are no single number")
        bounds.append(missing if bound is None else float(bound.reshape(())))
    return builder.emit("Clip", [builder.activation(call)], call.name, {"min": bounds[0], "max": bounds[1]})


def binary(builder: Builder, call: Call) -> str:
    """Return an importer of two tensors, at least one of them of activations, broadcast image by image."""
    if call.operation == "Pow" and call.given(0) in builder.constants:
        raise call.refused("raises a constant to the power of activations", "Write it as Exp")
    if len(call.inputs) != 2:
        raise call.refused(f"has {len(call.inputs)} inputs", "Give two")
    return builder.emit(call.operation, _aligned(builder, call, call.inputs), call.name)


def several(operation: str) -> Translator:
    """`Sum`, `Max`, `Min` of any number of tensors, as pairs of `operation`."""

    def translate(builder: Builder, call: Call) -> str:
        total, *others = sorted(call.inputs, key=builder.is_constant)
        for other in others:
            total = builder.emit(operation, _aligned(builder, call, (total, other)), call.name)
        return total

    return translate


def _aligned(builder: Builder, call: Call, inputs: tuple[str, ...]) -> list[str]:
    """Return the inputs, once they are known to broadcast without mixing images."""
    ranks = [builder.rank(tensor) for tensor in inputs if not builder.is_constant(tensor)]
    if len(set(ranks)) > 1 and builder.batched:
        raise call.refused(
            f"combines activations of {ranks[0]} and {ranks[1]} axes across images", "Give both as many axes"
        )
    aligned = []
    for number, tensor in enumerate(inputs):
        if builder.is_constant(tensor):
            aligned.append(_broadcastable(builder, call, tensor, max(ranks)))
        else:
            missing = (1,) * (max(ranks) - builder.rank(tensor))
            aligned.append(
                builder.reshape(tensor, missing + builder.shapes[tensor], f"{call.name}/rank{number}")
            )
    return aligned


def _broadcastable(builder: Builder, call: Call, tensor: str, rank: int) -> str:
    value = builder.constants[tensor]
    if value.ndim > rank or (value.ndim == rank and value.shape[0] != 1):
        raise call.refused(
            f"combines activations with a constant of shape {value.shape} that has a batch axis",
            "Give it the length 1",
        )
    if value.dtype.kind not in "fiub":
        raise call.refused(f"combines activations with a constant of type {value.dtype}")
    return (
        tensor
        if value.dtype == np.float32
        else builder.constant(value.astype(np.float32), f"{tensor}.float32")
    )


def hard_swish(builder: Builder, call: Call) -> str:
    """X times its hard sigmoid of slope 1/6."""
    x = builder.activation(call)
    gate = builder.emit("HardSigmoid", [x], f"{call.name}/gate", {"alpha": 1 / 6, "beta": 0.5})
    return builder.emit("Mul", [x, gate], call.name)


def mish(builder: Builder, call: Call) -> str:
    """X times tanh(softplus(x))."""
    x = builder.activation(call)
    gate = builder.emit("Softplus", [x], f"{call.name}/softplus")
    return builder.emit("Mul", [x, builder.emit("Tanh", [gate], f"{call.name}/gate")], call.name)


def swish(builder: Builder, call: Call) -> str:
    """X times its sigmoid; torch calls it SiLU."""
    x = builder.activation(call)
    return builder.emit("Mul", [x, builder.emit("Sigmoid", [x], f"{call.name}/gate")], call.name)


def where(builder: Builder, call: Call) -> str:
    """Chosen by a constant condition, as attention masks are."""
    condition = builder.fixed(call, 0)
    chosen = _aligned(builder, call, call.inputs[1:])
    rank = max(builder.rank(tensor) for tensor in chosen if not builder.is_constant(tensor))
    if condition.ndim > rank or (condition.ndim == rank and condition.shape[0] != 1):
        raise call.refused(
            f"chooses by a condition of shape {condition.shape} that has a batch axis", "Give it the length 1"
        )
    kept = builder.constant(condition.astype(bool), f"{call.name}.condition")
    return builder.emit("Where", [kept, *chosen], call.name)


ELEMENTWISE: Mapping[str, Any] = {
    **dict.fromkeys(
        ("Relu", "LeakyRelu", "Elu", "HardSigmoid", "Sigmoid", "Softplus", "Tanh", "Erf", "Exp", "Log"), unary
    ),
    **dict.fromkeys(("Sqrt", "Abs", "Neg", "Reciprocal"), unary),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Pow", "PRelu"), binary),
    "Identity": same,
    "Dropout": same,
    "Cast": cast,
    "Gelu": gelu,
    "Clip": clip,
    "Sum": several("Add"),
    "Max": several("Max"),
    "Min": several("Min"),
    "HardSwish": hard_swish,
    "Mish": mish,
    "Swish": swish,
    "Where": where,
}
