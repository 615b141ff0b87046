"""Matrix products of ONNX: photonic `Gemm` with a constant factor, and digital `MatMul` of activations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lightning.networks.operations.builder import (
    Array,
    Attributes,
    Builder,
    Call,
    Operator,
)

# ----------------------------------------------------------------- translation


def add_gemm(builder: Builder, call: Call) -> str:
    """Add the matrix product alpha * A @ B + beta * C, with constant B."""
    if builder.is_constant(call.input_name(0)):
        raise call.make_error(
            "has a constant as its first factor, so the rows of its output are not images", "Swap the factors"
        )
    x = builder.require_activation(call)
    if call.integer("transA", 0):
        raise call.make_error(
            "transposes its activations, so the batch axis is not in front", "Export transA=0"
        )
    factor = builder.require_constant(call, 1)
    weights = call.number("alpha", 1.0) * (factor if call.integer("transB", 0) else factor.T)
    return _add_affine(builder, call, x, weights, call.number("beta", 1.0))


def _add_affine(builder: Builder, call: Call, x: str, weights: Array, beta: float) -> str:
    """Add x @ weights.T + beta * (input 2). A constant input 2 becomes the bias."""
    third = call.input_name(2)
    rows = len(weights)
    if builder.is_constant(third):
        bias = beta * np.broadcast_to(_check_bias(call, builder.constants[third], rows), (rows,))
        return add_dense(builder, call, x, weights, bias)
    product = add_dense(builder, call, x, weights, None)
    if not third:
        return product
    if beta != 1:
        factor = builder.constant(np.float32(beta), f"{call.name}.beta")
        third = builder.emit("Mul", [third, factor], f"{call.name}/beta")
    return builder.emit("Add", [product, third], f"{call.name}/add")


def _check_bias(call: Call, bias: Array, rows: int) -> Array:
    if bias.shape not in {(), (1,), (rows,), (1, 1), (1, rows)}:
        raise call.make_error(
            f"adds a constant of shape {bias.shape} to {rows} outputs", "Give one bias per output"
        )
    return bias.reshape(-1)


def add_dense(builder: Builder, call: Call, x: str, weights: Array, bias: Array | None) -> str:
    """Add a canonical `Gemm`: weights (rows, k), bias (rows,)."""
    if weights.ndim != 2 or not builder.shapes[x] or weights.shape[1] != builder.shapes[x][-1]:
        raise call.make_error(
            f"multiplies {builder.shapes[x]} by weights {weights.T.shape}", "Check the shapes"
        )
    inputs = [x, builder.constant(np.asarray(weights, np.float32), f"{call.name}.weight")]
    if bias is not None:
        inputs.append(builder.constant(np.asarray(bias, np.float32), f"{call.name}.bias"))
    return builder.emit("Gemm", inputs, call.name)


def add_matmul(builder: Builder, call: Call) -> str:
    """Add a `Gemm` if one factor is a constant matrix or vector, else a digital `MatMul`."""
    left, right = call.input_name(0), call.input_name(1)
    if builder.is_constant(right):
        return _add_with_right_constant(
            builder, call, builder.require_activation(call), _drop_leading_axes(builder.constants[right])
        )
    if builder.is_constant(left):
        return _add_with_left_constant(
            builder, call, builder.require_activation(call, 1), _drop_leading_axes(builder.constants[left])
        )
    ranks = builder.rank(builder.require_activation(call)), builder.rank(builder.require_activation(call, 1))
    if ranks[0] != ranks[1] or ranks[0] < 3:
        raise call.make_error(
            f"multiplies activations with {ranks[0]} and {ranks[1]} axes, which would mix images",
            "Keep the batch axis in front of both",
        )
    return builder.emit("MatMul", [left, right], call.name)


def _drop_leading_axes(factor: Array) -> Array:
    """Remove leading axes of length 1 from a factor with more than two axes."""
    while factor.ndim > 2 and factor.shape[0] == 1:
        factor = factor[0]
    return factor


def _add_with_right_constant(builder: Builder, call: Call, x: str, factor: Array) -> str:
    if factor.ndim == 1:
        product = add_dense(builder, call, x, factor[None], None)
        return builder.reshape(product, builder.shapes[product][:-1], f"{call.name}/squeeze")
    if factor.ndim == 2:
        return add_dense(builder, call, x, factor.T, None)
    return _add_stacked_product(builder, call, [x, builder.constant(factor, f"{call.name}.factor")])


def _add_with_left_constant(builder: Builder, call: Call, x: str, factor: Array) -> str:
    rank = builder.rank(x)
    if rank < 3:
        raise call.make_error(
            "has a constant as its first factor, so the rows of its output are not images", "Swap the factors"
        )
    if factor.ndim > 2:
        return _add_stacked_product(builder, call, [builder.constant(factor, f"{call.name}.factor"), x])
    swapped = (*range(rank - 2), rank - 1, rank - 2)
    transposed = builder.emit("Transpose", [x], f"{call.name}/turned", {"perm": swapped})
    product = add_dense(builder, call, transposed, np.atleast_2d(factor), None)
    builder.note(f"MatMul {call.name} computed as a Gemm between two transpositions")
    if factor.ndim == 1:
        return builder.reshape(product, builder.shapes[product][:-1], f"{call.name}/squeeze")
    return builder.emit("Transpose", [product], f"{call.name}/back", {"perm": swapped})


def _add_stacked_product(builder: Builder, call: Call, factors: list[str]) -> str:
    """Add a digital product with constant matrices, one for each index of the leading axes."""
    ranks = [builder.constants[f].ndim + 1 if builder.is_constant(f) else builder.rank(f) for f in factors]
    if (ranks[0] > ranks[1]) if builder.is_constant(factors[0]) else (ranks[1] > ranks[0]):
        raise call.make_error("multiplies by a constant that has more axes than an image")
    return builder.emit("MatMul", factors, call.name)


# ------------------------------------------------------------------ computation


def gemm(inputs: Sequence[Array], _: Attributes) -> Array:
    """Return x @ weights.T, plus the bias if there is one."""
    product: Array = inputs[0] @ inputs[1].T
    return product + inputs[2] if len(inputs) > 2 else product


PRODUCTS: Mapping[str, Operator] = {
    "Gemm": Operator(add_gemm, gemm),
    "MatMul": Operator(add_matmul, lambda inputs, _: np.matmul(inputs[0], inputs[1])),
}
