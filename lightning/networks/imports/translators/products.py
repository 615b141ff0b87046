"""Products: `Gemm`, `MatMul` and `Conv` of ONNX as `Gemm` and `Conv` with constant weights, which light computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.networks.imports.builder import Builder, Call
from lightning.networks.imports.translators.windows import move_of
from lightning.networks.patches import output_size

Array = npt.NDArray[Any]


def gemm(builder: Builder, call: Call) -> str:
    """Add the matrix product alpha * A @ B + beta * C, with constant B."""
    if builder.is_constant(call.given(0)):
        raise call.refused(
            "multiplies a constant by activations, so its rows are not images", "Swap the factors"
        )
    x = builder.activation(call)
    if call.whole("transA", 0):
        raise call.refused("transposes its activations, so the batch axis is not in front", "Export transA=0")
    factor = builder.fixed(call, 1)
    weights = call.number("alpha", 1.0) * (factor if call.whole("transB", 0) else factor.T)
    return _affine(builder, call, x, weights, call.number("beta", 1.0))


def _affine(builder: Builder, call: Call, x: str, weights: Array, beta: float) -> str:
    """Add the product x @ weights.T + beta * (input 2), the last as a bias where it is constant."""
    third = call.given(2)
    rows = len(weights)
    if builder.is_constant(third):
        bias = beta * np.broadcast_to(_row(call, builder.constants[third], rows), (rows,))
        return dense(builder, call, x, weights, bias)
    product = dense(builder, call, x, weights, None)
    if not third:
        return product
    if beta != 1:
        factor = builder.constant(np.float32(beta), f"{call.name}.beta")
        third = builder.emit("Mul", [third, factor], f"{call.name}/beta")
    return builder.emit("Add", [product, third], f"{call.name}/add")


def _row(call: Call, bias: Array, rows: int) -> Array:
    if bias.shape not in {(), (1,), (rows,), (1, 1), (1, rows)}:
        raise call.refused(
            f"adds a constant of shape {bias.shape} to {rows} outputs", "Give one bias an output"
        )
    return bias.reshape(-1)


def dense(builder: Builder, call: Call, x: str, weights: Array, bias: Array | None) -> str:
    """Add a canonical `Gemm`: weights (rows, k), bias (rows,)."""
    if weights.ndim != 2 or not builder.shapes[x] or weights.shape[1] != builder.shapes[x][-1]:
        raise call.refused(f"multiplies {builder.shapes[x]} by weights {weights.T.shape}", "Check the shapes")
    inputs = [x, builder.constant(np.asarray(weights, np.float32), f"{call.name}.weight")]
    if bias is not None:
        inputs.append(builder.constant(np.asarray(bias, np.float32), f"{call.name}.bias"))
    return builder.emit("Gemm", inputs, call.name)


def matmul(builder: Builder, call: Call) -> str:
    """Add a `Gemm` where one factor is a constant matrix; else a digital `MatMul`."""
    first, second = call.given(0), call.given(1)
    if builder.is_constant(second):
        return _times_constant(builder, call, builder.activation(call), _matrix(builder.constants[second]))
    if builder.is_constant(first):
        return _constant_times(builder, call, builder.activation(call, 1), _matrix(builder.constants[first]))
    ranks = builder.rank(builder.activation(call)), builder.rank(builder.activation(call, 1))
    if ranks[0] != ranks[1] or ranks[0] < 3:
        raise call.refused(
            f"multiplies activations of {ranks[0]} and {ranks[1]} axes across images",
            "Keep the batch axis in front of both",
        )
    return builder.emit("MatMul", [first, second], call.name)


def _matrix(factor: Array) -> Array:
    """Without leading axes of length 1."""
    while factor.ndim > 2 and factor.shape[0] == 1:
        factor = factor[0]
    return factor


def _times_constant(builder: Builder, call: Call, x: str, factor: Array) -> str:
    if factor.ndim == 1:
        product = dense(builder, call, x, factor[None], None)
        return builder.reshape(product, builder.shapes[product][:-1], f"{call.name}/squeeze")
    if factor.ndim == 2:
        return dense(builder, call, x, factor.T, None)
    return _stacked(builder, call, [x, builder.constant(factor, f"{call.name}.factor")])


def _constant_times(builder: Builder, call: Call, x: str, factor: Array) -> str:
    rank = builder.rank(x)
    if rank < 3:
        raise call.refused(
            "multiplies a constant by activations, so its rows are not images", "Swap the factors"
        )
    if factor.ndim > 2:
        return _stacked(builder, call, [builder.constant(factor, f"{call.name}.factor"), x])
    swapped = (*range(rank - 2), rank - 1, rank - 2)
    turned = builder.emit("Transpose", [x], f"{call.name}/turned", {"perm": swapped})
    product = dense(builder, call, turned, np.atleast_2d(factor), None)
    builder.note(f"MatMul {call.name} computed as a Gemm between two transpositions")
    if factor.ndim == 1:
        return builder.reshape(product, builder.shapes[product][:-1], f"{call.name}/squeeze")
    return builder.emit("Transpose", [product], f"{call.name}/back", {"perm": swapped})


def _stacked(builder: Builder, call: Call, factors: list[str]) -> str:
    """Add several constant matrices at once, one for each entry of another axis: digital."""
    ranks = [builder.constants[f].ndim + 1 if builder.is_constant(f) else builder.rank(f) for f in factors]
    if (ranks[0] > ranks[1]) if builder.is_constant(factors[0]) else (ranks[1] > ranks[0]):
        raise call.refused("multiplies by a constant that has more axes than an image")
    return builder.emit("MatMul", factors, call.name)


def conv(builder: Builder, call: Call) -> str:
    """Add a convolution over one axis or two, grouped, strided, dilated, padded."""
    x, weights, bias = builder.activation(call), builder.fixed(call, 1), builder.optional(call, 2)
    groups, rows = call.whole("group", 1), len(weights)
    _check_kernel(builder, call, weights, bias)
    image, flat = as_image(builder, call, x)
    kernels = weights.reshape(rows, weights.shape[1], 1, -1) if flat else weights
    kernel = (kernels.shape[2], kernels.shape[3])
    size = (builder.shapes[image][1], builder.shapes[image][2])
    move = move_of(call, size, kernel, flat=flat)
    if min(output_size(size, kernel, *move)) < 1:
        raise call.refused(f"has a kernel {kernel} larger than the image {size}")
    inputs = [image, builder.constant(kernels, f"{call.name}.weight")]
    if bias is not None:
        inputs.append(builder.constant(bias, f"{call.name}.bias"))
    strides, pads, dilations = move
    attributes = {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups}
    return without_row(builder, call, builder.emit("Conv", inputs, call.name, attributes), flat=flat)


def _check_kernel(builder: Builder, call: Call, weights: Array, bias: Array | None) -> None:
    """Raise `UnsupportedNode` where weights, bias, groups and channels contradict each other."""
    x, groups, rows = builder.activation(call), call.whole("group", 1), len(weights)
    channels = builder.shapes[x][0]
    if weights.ndim != builder.rank(x):
        raise call.refused(f"has weights {weights.shape} for activations of {builder.rank(x)} axes")
    if groups < 1 or rows % groups or channels != weights.shape[1] * groups:
        raise call.refused(f"has weights {weights.shape} in {groups} groups for {channels} channels")
    if bias is not None and bias.shape != (rows,):
        raise call.refused(f"has a bias of shape {bias.shape} for {rows} outputs")


def as_image(builder: Builder, call: Call, x: str) -> tuple[str, bool]:
    """Return `x` (channels, height, width); a sequence (channels, length) becomes an image of one row, and True.

    Raises `UnsupportedNode` for more axes.
    """
    shape = builder.shapes[x]
    if len(shape) not in {2, 3}:
        raise call.refused(f"moves over {len(shape) - 1} axes", "Use 1 or 2 axes")
    if len(shape) == 3:
        return x, False
    builder.note(f"{call.operation} {call.name} over a sequence computed over an image of one row")
    return builder.reshape(x, (shape[0], 1, shape[1]), f"{call.name}/image"), True


def without_row(builder: Builder, call: Call, image: str, *, flat: bool) -> str:
    """Return the sequence of an image of one row, where it was a sequence."""
    if not flat:
        return image
    channels, _, length = builder.shapes[image]
    return builder.reshape(image, (channels, length), f"{call.name}/sequence")
