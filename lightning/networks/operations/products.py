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
    if builder.is_constant(call.get_input_name(0)):
        raise call.make_error(
            "has a constant as its first factor, so the rows of its output are not images", "Swap the factors"
        )
    tensor = builder.require_activation(call)
    if call.read_integer("transA", 0):
        raise call.make_error(
            "transposes its activations, so the batch axis is not in front", "Export transA=0"
        )
    factor = builder.require_constant(call, 1)
    weights = call.read_number("alpha", 1.0) * (factor if call.read_integer("transB", 0) else factor.T)
    return _add_affine(builder, call, tensor, weights, call.read_number("beta", 1.0))


def _add_affine(builder: Builder, call: Call, tensor: str, weights: Array, beta: float) -> str:
    """Add x @ weights.T + beta * (input 2). A constant input 2 becomes the bias."""
    addend = call.get_input_name(2)
    output_count = len(weights)
    if builder.is_constant(addend):
        bias = beta * np.broadcast_to(
            _check_bias(call, builder.constants[addend], output_count), (output_count,)
        )
        return add_dense(builder, call, tensor, weights, bias)
    product = add_dense(builder, call, tensor, weights, None)
    if not addend:
        return product
    if beta != 1:
        beta_tensor = builder.add_constant(np.float32(beta), f"{call.name}.beta")
        addend = builder.emit("Mul", [addend, beta_tensor], f"{call.name}/beta")
    return builder.emit("Add", [product, addend], f"{call.name}/add")


def _check_bias(call: Call, bias: Array, output_count: int) -> Array:
    if bias.shape not in {(), (1,), (output_count,), (1, 1), (1, output_count)}:
        raise call.make_error(
            f"adds a constant of shape {bias.shape} to {output_count} outputs", "Give one bias per output"
        )
    return bias.reshape(-1)


def add_dense(builder: Builder, call: Call, tensor: str, weights: Array, bias: Array | None) -> str:
    """Add a canonical `Gemm`: weights (rows, k), bias (rows,)."""
    if weights.ndim != 2 or not builder.shapes[tensor] or weights.shape[1] != builder.shapes[tensor][-1]:
        raise call.make_error(
            f"multiplies {builder.shapes[tensor]} by weights {weights.T.shape}", "Check the shapes"
        )
    inputs = [tensor, builder.add_constant(np.asarray(weights, np.float32), f"{call.name}.weight")]
    if bias is not None:
        inputs.append(builder.add_constant(np.asarray(bias, np.float32), f"{call.name}.bias"))
    return builder.emit("Gemm", inputs, call.name)


def add_matmul(builder: Builder, call: Call) -> str:
    """Add a `Gemm` if one factor is a constant matrix or vector, else a digital `MatMul`."""
    left_tensor, right_tensor = call.get_input_name(0), call.get_input_name(1)
    if builder.is_constant(right_tensor):
        return _add_with_right_constant(
            builder,
            call,
            builder.require_activation(call),
            _drop_leading_axes(builder.constants[right_tensor]),
        )
    if builder.is_constant(left_tensor):
        return _add_with_left_constant(
            builder,
            call,
            builder.require_activation(call, 1),
            _drop_leading_axes(builder.constants[left_tensor]),
        )
    ranks = (
        builder.get_rank(builder.require_activation(call)),
        builder.get_rank(builder.require_activation(call, 1)),
    )
    if ranks[0] != ranks[1] or ranks[0] < 3:
        raise call.make_error(
            f"multiplies activations with {ranks[0]} and {ranks[1]} axes, which would mix images",
            "Keep the batch axis in front of both",
        )
    return builder.emit("MatMul", [left_tensor, right_tensor], call.name)


def _drop_leading_axes(factor: Array) -> Array:
    """Remove leading axes of length 1 from a factor with more than two axes."""
    while factor.ndim > 2 and factor.shape[0] == 1:
        factor = factor[0]
    return factor


def _add_with_right_constant(builder: Builder, call: Call, tensor: str, factor: Array) -> str:
    if factor.ndim == 1:
        product = add_dense(builder, call, tensor, factor[None], None)
        return builder.reshape(product, builder.shapes[product][:-1], f"{call.name}/squeeze")
    if factor.ndim == 2:
        return add_dense(builder, call, tensor, factor.T, None)
    return _add_stacked_product(builder, call, [tensor, builder.add_constant(factor, f"{call.name}.factor")])


def _add_with_left_constant(builder: Builder, call: Call, tensor: str, factor: Array) -> str:
    rank = builder.get_rank(tensor)
    if rank < 3:
        raise call.make_error(
            "has a constant as its first factor, so the rows of its output are not images", "Swap the factors"
        )
    if factor.ndim > 2:
        return _add_stacked_product(
            builder, call, [builder.add_constant(factor, f"{call.name}.factor"), tensor]
        )
    swapped_axes = (*range(rank - 2), rank - 1, rank - 2)
    transposed = builder.emit("Transpose", [tensor], f"{call.name}/turned", {"perm": swapped_axes})
    product = add_dense(builder, call, transposed, np.atleast_2d(factor), None)
    builder.add_note(f"MatMul {call.name} computed as a Gemm between two transpositions")
    if factor.ndim == 1:
        return builder.reshape(product, builder.shapes[product][:-1], f"{call.name}/squeeze")
    return builder.emit("Transpose", [product], f"{call.name}/back", {"perm": swapped_axes})


def _add_stacked_product(builder: Builder, call: Call, factors: list[str]) -> str:
    """Add a digital product with constant matrices, one for each index of the leading axes."""
    ranks = [
        builder.constants[factor].ndim + 1 if builder.is_constant(factor) else builder.get_rank(factor)
        for factor in factors
    ]
    if (ranks[0] > ranks[1]) if builder.is_constant(factors[0]) else (ranks[1] > ranks[0]):
        raise call.make_error("multiplies by a constant that has more axes than an image")
    return builder.emit("MatMul", factors, call.name)


# ------------------------------------------------------------------ computation


def gemm(inputs: Sequence[Array], _: Attributes) -> Array:
    """Return x @ weights.T, plus the bias if there is one."""
    product: Array = inputs[0] @ inputs[1].T
    return product + inputs[2] if len(inputs) > 2 else product


PRODUCT_OPERATORS: Mapping[str, Operator] = {
    "Gemm": Operator(add_gemm, gemm),
    "MatMul": Operator(add_matmul, lambda inputs, _: np.matmul(inputs[0], inputs[1])),
}
