"""Functions of torch on single values and along axes in ONNX's vocabulary."""

# ruff: noqa: ARG001 - signatures are torch's own, behind the scope

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lightning.networks.imports.torch.scope import Scope, Tensor, moving, sizes

Function = Callable[..., Any]


def plain(operation: str) -> Function:
    """Return a function of one activation that has no settings."""

    def function(scope: Scope, x: Tensor, inplace: bool = False) -> Tensor:
        return scope.add(operation, [x])

    return function


def relu6(scope: Scope, x: Tensor, inplace: bool = False) -> Tensor:
    """Between 0 and 6."""
    return clamp(scope, x, 0.0, 6.0)


def hardsigmoid(scope: Scope, x: Tensor, inplace: bool = False) -> Tensor:
    """Add `Hardsigmoid` of slope 1/6, where ONNX's own has 1/5."""
    return scope.add("HardSigmoid", [x], alpha=1 / 6, beta=0.5)


def leaky_relu(scope: Scope, x: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """Add `LeakyRelu`, ONNX's own."""
    return scope.add("LeakyRelu", [x], alpha=float(negative_slope))


def elu(scope: Scope, x: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Add `Elu`, ONNX's own."""
    return scope.add("Elu", [x], alpha=float(alpha))


def gelu(scope: Scope, x: Tensor, approximate: str = "none") -> Tensor:
    """Add `Gelu`, that of ONNX's opset 20."""
    return scope.add("Gelu", [x], approximate=approximate)


def prelu(scope: Scope, x: Tensor, weight: Any) -> Tensor:
    """Add `PRelu` with one slope, or one a channel."""
    return scope.add("PRelu", [x, weight.reshape(-1, *(1,) * moving(scope, x))])


def softplus(scope: Scope, x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Add `Softplus` with beta 1; above the threshold it is linear to float32 precision anyhow."""
    if beta != 1:
        raise scope.refused(f"has beta = {beta}", "Use beta 1")
    return scope.add("Softplus", [x])


def clamp(scope: Scope, x: Tensor, min: float | None = None, max: float | None = None) -> Tensor:  # noqa: A002
    """Between two numbers, either of which may be missing."""
    return scope.add("Clip", [x, None if min is None else float(min), None if max is None else float(max)])


def hardtanh(
    scope: Scope, x: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """Between two numbers."""
    return clamp(scope, x, min_val, max_val)


def same(scope: Scope, x: Tensor, *settings: Any, **named: Any) -> Tensor:
    """Return the activation itself."""
    if scope.operation.lower().endswith("dropout"):
        scope.builder.note(f"{scope.operation} {scope.name} left out: it changes nothing in inference")
    return x


def binary(operation: str) -> Function:
    """Return a function of two tensors or numbers."""

    def function(
        scope: Scope, x: Any, y: Any, *, alpha: float = 1, rounding_mode: str | None = None
    ) -> Tensor:
        if alpha != 1 or rounding_mode is not None:
            raise scope.refused("has alpha or rounding_mode", "Write the product or the rounding out")
        return scope.add(operation, [x, y])

    return function


def reversed_difference(scope: Scope, x: Any, y: Any) -> Tensor:
    """Y - x."""
    return scope.add("Sub", [y, x])


def masked_fill(scope: Scope, x: Tensor, mask: Any, value: float) -> Tensor:
    """Return `value` where a constant mask is true."""
    return scope.add("Where", [mask, float(value), x])


def batch_norm(
    scope: Scope,
    x: Tensor,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise with running statistics."""
    if running_mean is None or running_var is None or training:
        raise scope.refused("has no running statistics", "Train with track_running_stats=True")
    scale = running_var * 0 + 1 if weight is None else weight
    shift = running_mean * 0 if bias is None else bias
    return scope.add("BatchNormalization", [x, scale, shift, running_mean, running_var], epsilon=float(eps))


def layer_norm(
    scope: Scope, x: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    """Over the last axes."""
    scale = 1.0 if weight is None else weight
    axis = -len(sizes(normalized_shape, 1))
    return scope.add("LayerNormalization", [x, scale, bias], axis=axis, epsilon=float(eps))


def along(operation: str) -> Function:
    """Return `softmax` and `log_softmax` along an axis."""

    def function(scope: Scope, x: Tensor, dim: int | None = None, *_: Any, **__: Any) -> Tensor:
        if dim is None:
            raise scope.refused("does not say along which axis", "Give dim")
        return scope.add(operation, [x], axis=int(dim))

    return function


def reduction(operation: str) -> Function:
    """Return a reduction: `mean`, `sum`, `amax`."""

    def function(
        scope: Scope, x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
    ) -> Tensor:
        axes = range(len(scope.shape(x))) if dim is None else sizes(dim, 1)
        return scope.add(operation, [x], axes=[int(axis or 0) for axis in axes], keepdims=int(keepdim))

    return function
