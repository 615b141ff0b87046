"""Products, attention and pooling of torch in ONNX's vocabulary."""

# ruff: noqa: ARG001 - signatures are torch's own, behind the scope

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lightning.networks.imports.torch.scope import Scope, Tensor, moving, per_axis, sizes

Function = Callable[..., Any]


def linear(scope: Scope, x: Tensor, weight: Any, bias: Any = None) -> Tensor:
    """Add rows of weights times the last axis, plus bias."""
    return scope.add("Gemm", [x, weight, bias], transB=1)


def conv(
    scope: Scope,
    x: Tensor,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    padding_mode: str = "zeros",
) -> Tensor:
    """Over one axis or two."""
    axes = moving(scope, x)
    if padding_mode != "zeros":
        raise scope.refused(f"pads by {padding_mode!r}", "Pad with zeros")
    attributes = {
        "strides": per_axis(stride, axes),
        "dilations": per_axis(dilation, axes),
        "group": int(groups),
    }
    if padding == "same":
        return scope.add("Conv", [x, weight, bias], auto_pad="SAME_UPPER", **attributes)
    pads = per_axis(0 if padding == "valid" else padding, axes)
    return scope.add("Conv", [x, weight, bias], pads=pads * 2, **attributes)


def matmul(scope: Scope, x: Any, y: Any) -> Tensor:
    """Add the product of two activations, or with a constant on either side."""
    return scope.add("MatMul", [x, y])


def additive(mask: Any) -> Any:
    """Return 0 where a mask of booleans is true and minus infinity elsewhere; other masks as they are."""
    is_boolean = str(mask.dtype).removeprefix("torch.") == "bool"
    return np.where(np.asarray(mask), 0, -np.inf).astype(np.float32) if is_boolean else mask


def attention(
    scope: Scope,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Add softmax(query @ key^T * scale + mask) @ value: products of two activations, digital."""
    rank, width = len(scope.shape(query)), scope.shape(query)[-1]
    if is_causal:
        attn_mask = np.tri(scope.shape(query)[-2], scope.shape(key)[-2], dtype=bool)
    turned = scope.add("Transpose", [key], "key", perm=[*range(rank - 2), rank - 1, rank - 2])
    scores = scope.add("MatMul", [query, turned], "scores")
    scores = scope.add("Mul", [scores, float(scale or 1 / math.sqrt(width))], "scaled")
    if attn_mask is not None:
        scores = scope.add("Add", [scores, additive(attn_mask)], "masked")
    return scope.add("MatMul", [scope.add("Softmax", [scores], "softmax", axis=-1), value])


def max_pool(
    scope: Scope,
    x: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """Over one axis or two."""
    if return_indices:
        raise scope.refused("gives indices too", "Ask for the values only")
    return _pool(scope, "MaxPool", x, kernel_size, stride, padding, ceil_mode, {"dilations": dilation})


def average_pool(
    scope: Scope,
    x: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Over one axis or two."""
    if divisor_override is not None:
        raise scope.refused("divides by a number of its own", "Leave divisor_override out")
    return _pool(scope, "AveragePool", x, kernel_size, stride, padding, ceil_mode, {}, int(count_include_pad))


def _pool(
    scope: Scope,
    operation: str,
    x: Tensor,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil: bool,
    more: Mapping[str, Any],
    count: int = 0,
) -> Tensor:
    axes = moving(scope, x)
    attributes = {name: per_axis(value, axes) for name, value in more.items()}
    steps = per_axis(kernel if stride is None or stride == [] else stride, axes)
    return scope.add(
        operation,
        [x],
        kernel_shape=per_axis(kernel, axes),
        strides=steps,
        pads=per_axis(padding, axes) * 2,
        ceil_mode=int(ceil),
        count_include_pad=count,
        **attributes,
    )


def adaptive(operation: str) -> Function:
    """Return a pooling to a given size: one value, or windows that divide the image evenly."""

    def function(scope: Scope, x: Tensor, output_size: Any, return_indices: bool = False) -> Tensor:
        size = scope.shape(x)[2:]
        wanted = [
            full if n is None else n for n, full in zip(sizes(output_size, len(size)), size, strict=True)
        ]
        if all(n == 1 for n in wanted) and not return_indices:
            return scope.add(f"Global{operation}", [x])
        if return_indices or any(full % n for n, full in zip(wanted, size, strict=True)):
            raise scope.refused(f"pools {size} to {wanted}", "Choose a size that divides it")
        kernel = [full // n for n, full in zip(wanted, size, strict=True)]
        return scope.add(operation, [x], kernel_shape=kernel, strides=kernel)

    return function
