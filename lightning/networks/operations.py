"""Operations of a network in float32.

    output = apply(node, arrays, constants)

`arrays` hold activations with the batch axis in front. An empty batch goes through everything and costs nothing:
so shapes are found, without a second description of every operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import InputError, UnsupportedNode
from lightning.networks.electronic import ELECTRONIC, electronic
from lightning.networks.functions import (
    elu,
    erf,
    gelu,
    hard_sigmoid,
    leaky_relu,
    log_softmax,
    sigmoid,
    softmax,
    softplus,
)
from lightning.networks.network import Floats, Network, Node
from lightning.networks.windows import average_pool, conv, max_pool

Array = npt.NDArray[Any]
Attributes = Mapping[str, Any]
Operation = Callable[[Sequence[Array], Attributes], Array]


def apply(node: Node, arrays: Mapping[str, Array], constants: Mapping[str, Array]) -> Array:
    """Return what `node` gives, float32 (n, ...). Raises `UnsupportedNode` for an unknown operation."""
    try:
        operation = OPERATIONS[node.operation]
    except KeyError:
        raise UnsupportedNode(f"node {node.name}: nothing here computes {node.operation}") from None
    inputs = [arrays[name] if name in arrays else constants[name] for name in node.inputs]
    with np.errstate(all="ignore"):
        return np.asarray(operation(inputs, node.attributes), np.float32)


# ------------------------------------------------------------------------------------ products


def _gemm(inputs: Sequence[Array], _: Attributes) -> Array:
    product: Array = inputs[0] @ inputs[1].T
    return product + inputs[2] if len(inputs) > 2 else product


# ------------------------------------------------------------------------------ along an axis


def layer_norm(inputs: Sequence[Array], attributes: Attributes) -> Array:
    """Mean 0 and variance 1 over the axes from `axis` on, then times scale, plus bias."""
    x = inputs[0]
    axes = tuple(range(attributes["axis"], x.ndim))
    centred = x - x.mean(axis=axes, keepdims=True)
    deviation = np.sqrt(np.mean(centred * centred, axis=axes, keepdims=True) + attributes["epsilon"])
    scaled: Array = centred / deviation * inputs[1]
    return scaled + inputs[2] if len(inputs) > 2 else scaled


def _batch_normalization(inputs: Sequence[Array], _: Attributes) -> Array:
    scaled: Array = inputs[0] * inputs[1]
    return scaled + inputs[2]


def _concat(inputs: Sequence[Array], attributes: Attributes) -> Array:
    """Return the tensors one behind the other; constants, whose batch axis has the length 1, for every image."""
    images = max(len(x) for x in inputs) if all(len(x) for x in inputs) else 0
    full = [np.broadcast_to(x, (images, *x.shape[1:])) for x in inputs]
    return np.concatenate(full, axis=attributes["axis"])


def _slice(x: Array, attributes: Attributes) -> Array:
    cut = [slice(None)] * x.ndim
    cut[attributes["axis"]] = slice(attributes["start"], attributes["stop"], attributes["step"])
    return x[tuple(cut)]


def _reduce(function: Callable[..., Array]) -> Operation:
    return lambda inputs, a: function(inputs[0], axis=tuple(a["axes"]), keepdims=bool(a["keepdims"]))


# ------------------------------------------------------------------------------------ the table


def _unary(function: Callable[[Array], Array]) -> Operation:
    return lambda inputs, _: function(inputs[0])


def _binary(function: Callable[[Array, Array], Array]) -> Operation:
    return lambda inputs, _: function(inputs[0], inputs[1])


PHOTONIC_OPERATIONS: Mapping[str, Operation] = {"Gemm": _gemm, "Conv": conv}

DIGITAL_OPERATIONS: Mapping[str, Operation] = {
    ELECTRONIC: electronic,
    "MatMul": _binary(np.matmul),
    "Add": _binary(np.add),
    "Sub": _binary(np.subtract),
    "Mul": _binary(np.multiply),
    "Div": _binary(np.divide),
    "Pow": _binary(np.power),
    "Max": _binary(np.maximum),
    "Min": _binary(np.minimum),
    "Relu": _unary(lambda x: np.maximum(x, 0)),
    "LeakyRelu": lambda inputs, a: leaky_relu(inputs[0], a["alpha"]),
    "Where": lambda inputs, _: np.where(*inputs),
    "PRelu": _binary(lambda x, slope: np.where(x < 0, slope * x, x)),
    "Clip": lambda inputs, a: np.clip(inputs[0], a["min"], a["max"]),
    "Elu": lambda inputs, a: elu(inputs[0], a["alpha"]),
    "HardSigmoid": lambda inputs, a: hard_sigmoid(inputs[0], a["alpha"], a["beta"]),
    "Sigmoid": _unary(sigmoid),
    "Softplus": _unary(softplus),
    "Tanh": _unary(np.tanh),
    "Gelu": lambda inputs, a: gelu(inputs[0], a["approximate"]),
    "Erf": _unary(erf),
    "Exp": _unary(np.exp),
    "Log": _unary(np.log),
    "Sqrt": _unary(np.sqrt),
    "Abs": _unary(np.abs),
    "Neg": _unary(np.negative),
    "Reciprocal": _unary(np.reciprocal),
    "Softmax": lambda inputs, a: softmax(inputs[0], a["axis"]),
    "LogSoftmax": lambda inputs, a: log_softmax(inputs[0], a["axis"]),
    "LayerNormalization": layer_norm,
    "BatchNormalization": _batch_normalization,
    "MaxPool": max_pool,
    "AveragePool": average_pool,
    "GlobalAveragePool": lambda inputs, _: inputs[0].mean(axis=(2, 3), keepdims=True),
    "GlobalMaxPool": lambda inputs, _: inputs[0].max(axis=(2, 3), keepdims=True),
    "ReduceMean": _reduce(np.mean),
    "ReduceSum": _reduce(np.sum),
    "ReduceMax": _reduce(np.max),
    "Flatten": lambda inputs, _: inputs[0].reshape(len(inputs[0]), int(np.prod(inputs[0].shape[1:]))),
    "Reshape": lambda inputs, a: inputs[0].reshape(len(inputs[0]), *a["shape"]),
    "Transpose": lambda inputs, a: inputs[0].transpose(a["perm"]),
    "Concat": _concat,
    "Slice": lambda inputs, a: _slice(inputs[0], a),
    "Gather": lambda inputs, a: np.take(inputs[0], inputs[1], axis=a["axis"]),
    "Pad": lambda inputs, a: np.pad(inputs[0], a["pads"], constant_values=a["value"]),
}

OPERATIONS: Mapping[str, Operation] = {**PHOTONIC_OPERATIONS, **DIGITAL_OPERATIONS}


def run_float(network: Network, inputs: npt.ArrayLike) -> Floats:
    """Return the outputs, (n, *output_shape), of inputs (n, *input_shape) to which preprocessing has been applied.

    Raises `InputError` for another shape. Overflow gives infinity, as in every other float32 runtime.
    """
    return activations(network, inputs, (network.output,))[network.output]


def activations(network: Network, inputs: npt.ArrayLike, wanted: tuple[str, ...]) -> dict[str, Floats]:
    """Return the tensors `wanted`, as in `run_float`; others are let go as soon as nobody reads them."""
    x = np.asarray(inputs, np.float32)
    if x.shape[1:] != network.input_shape or x.ndim == 0:
        raise InputError(
            f"{network.name} takes (n, {', '.join(map(str, network.input_shape))}), not {x.shape}",
            hint="Call preprocess(network, raw) first",
        )
    arrays = {network.input: x}
    for node, spent in network.last_uses(wanted):
        arrays[node.output] = apply(node, arrays, network.constants)
        for name in spent:
            arrays.pop(name, None)
    return {name: arrays[name] for name in wanted}
