"""Translation of torch's functions and methods to ONNX operations. A function and its method have the same name.

Values and axes come first, then shapes, products and pooling; `TRANSLATOR_BY_FUNCTION` lists them all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lightning.networks.imports.torch.scope import (
    Scope,
    Tensor,
    count_spatial_axes,
    list_sizes,
    repeat_per_axis,
)
from lightning.networks.operations.builder import BATCH_LENGTH

# ruff: noqa: ARG001 - signatures are torch's own, behind the scope

Translator = Callable[..., Any]


def make_unary(operation: str) -> Translator:
    """Return a function of one activation that has no settings."""

    def function(scope: Scope, x: Tensor, inplace: bool = False) -> Tensor:
        return scope.add(operation, [x])

    return function


def relu6(scope: Scope, x: Tensor, inplace: bool = False) -> Tensor:
    """Clip to 0..6."""
    return clamp(scope, x, 0.0, 6.0)


def hardsigmoid(scope: Scope, x: Tensor, inplace: bool = False) -> Tensor:
    """Add `HardSigmoid` with slope 1/6. ONNX's default is 1/5."""
    return scope.add("HardSigmoid", [x], alpha=1 / 6, beta=0.5)


def leaky_relu(scope: Scope, x: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """Add ONNX's `LeakyRelu`."""
    return scope.add("LeakyRelu", [x], alpha=float(negative_slope))


def elu(scope: Scope, x: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Add ONNX's `Elu`."""
    return scope.add("Elu", [x], alpha=float(alpha))


def gelu(scope: Scope, x: Tensor, approximate: str = "none") -> Tensor:
    """Add `Gelu` of ONNX's opset 20."""
    return scope.add("Gelu", [x], approximate=approximate)


def prelu(scope: Scope, x: Tensor, weight: Any) -> Tensor:
    """Add `PRelu` with one slope, or one slope per channel."""
    return scope.add("PRelu", [x, weight.reshape(-1, *(1,) * count_spatial_axes(scope, x))])


def softplus(scope: Scope, x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Add `Softplus` with beta 1. Ignore `threshold`: above it, `Softplus` is linear to float32 precision."""
    if beta != 1:
        raise scope.make_error(f"has beta = {beta}", "Use beta 1")
    return scope.add("Softplus", [x])


def clamp(scope: Scope, x: Tensor, min: float | None = None, max: float | None = None) -> Tensor:  # noqa: A002
    """Clip to two bounds. Either may be None."""
    return scope.add("Clip", [x, None if min is None else float(min), None if max is None else float(max)])


def hardtanh(
    scope: Scope, x: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """Clip to two bounds."""
    return clamp(scope, x, min_val, max_val)


def pass_through(scope: Scope, x: Tensor, *settings: Any, **keyword_settings: Any) -> Tensor:
    """Return the activation itself."""
    if scope.operation.lower().endswith("dropout"):
        scope.builder.add_note(f"{scope.operation} {scope.name} left out: it changes nothing in inference")
    return x


def make_binary(operation: str) -> Translator:
    """Return a function of two tensors or numbers."""

    def function(
        scope: Scope, x: Any, y: Any, *, alpha: float = 1, rounding_mode: str | None = None
    ) -> Tensor:
        if alpha != 1 or rounding_mode is not None:
            raise scope.make_error(
                f"has alpha = {alpha} and rounding_mode = {rounding_mode}",
                "Write the product or the rounding out",
            )
        return scope.add(operation, [x, y])

    return function


def subtract_reversed(scope: Scope, x: Any, y: Any) -> Tensor:
    """Add `y - x`."""
    return scope.add("Sub", [y, x])


def masked_fill(scope: Scope, x: Tensor, mask: Any, value: float) -> Tensor:
    """Add a selection: `value` where a constant mask is true, else `x`."""
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
    """Add a batch normalisation with running statistics."""
    if running_mean is None or running_var is None or training:
        raise scope.make_error("has no running statistics", "Train with track_running_stats=True")
    scale = running_var * 0 + 1 if weight is None else weight
    shift = running_mean * 0 if bias is None else bias
    return scope.add("BatchNormalization", [x, scale, shift, running_mean, running_var], epsilon=float(eps))


def layer_norm(
    scope: Scope, x: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    """Add a layer normalisation over the last axes."""
    scale = 1.0 if weight is None else weight
    axis = -len(list_sizes(normalized_shape, 1))
    return scope.add("LayerNormalization", [x, scale, bias], axis=axis, epsilon=float(eps))


def make_softmax(operation: str) -> Translator:
    """Return a function that applies `Softmax` or `LogSoftmax` along an axis."""

    def function(scope: Scope, x: Tensor, dim: int | None = None, *_: Any, **__: Any) -> Tensor:
        if dim is None:
            raise scope.make_error("does not name an axis", "Give dim")
        return scope.add(operation, [x], axis=int(dim))

    return function


def make_reduction(operation: str) -> Translator:
    """Return a reduction: `mean`, `sum`, `amax`."""

    def function(
        scope: Scope, x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
    ) -> Tensor:
        axes = range(len(scope.get_shape(x))) if dim is None else list_sizes(dim, 1)
        return scope.add(operation, [x], axes=[int(axis or 0) for axis in axes], keepdims=int(keepdim))

    return function


def _flatten_arguments(values: Sequence[Any]) -> list[int]:
    """Return the integers of several arguments, or of a single sequence."""
    numbers = values[0] if len(values) == 1 and isinstance(values[0], (tuple, list)) else values
    return [int(value) for value in numbers]


def reshape(scope: Scope, x: Tensor, *shape: Any) -> Tensor:
    """Reshape to any shape that keeps images apart."""
    return scope.add("Reshape", [x, _flatten_arguments(shape)], allowzero=1)


def flatten(scope: Scope, x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Flatten some axes into one."""
    shape = scope.get_shape(x)
    first_axis, last_axis = (scope.normalise_axis(x, dim) for dim in (start_dim, end_dim))
    if (first_axis, last_axis) == (1, len(shape) - 1):
        return scope.add("Flatten", [x], axis=1)
    return reshape(
        scope, x, *shape[:first_axis], math.prod(shape[first_axis : last_axis + 1]), *shape[last_axis + 1 :]
    )


def unflatten(scope: Scope, x: Tensor, dim: int, sizes: Any) -> Tensor:
    """Split one axis into several."""
    shape, axis = scope.get_shape(x), scope.normalise_axis(x, dim)
    known_size = math.prod(size for size in sizes if size != -1)
    resolved_sizes = [shape[axis] // known_size if size == -1 else size for size in sizes]
    return reshape(scope, x, *shape[:axis], *resolved_sizes, *shape[axis + 1 :])


def permute(scope: Scope, x: Tensor, *dims: Any) -> Tensor:
    """Permute the axes."""
    return scope.add(
        "Transpose", [x], perm=[scope.normalise_axis(x, axis) for axis in _flatten_arguments(dims)]
    )


def transpose(scope: Scope, x: Tensor, dim0: int, dim1: int) -> Tensor:
    """Exchange two axes."""
    order = list(range(len(scope.get_shape(x))))
    first_axis, second_axis = scope.normalise_axis(x, dim0), scope.normalise_axis(x, dim1)
    order[first_axis], order[second_axis] = order[second_axis], order[first_axis]
    return scope.add("Transpose", [x], perm=order)


def squeeze(scope: Scope, x: Tensor, *dims: Any) -> Tensor:
    """Remove axes of length 1: those in `dims`, or all. Longer axes stay."""
    shape = scope.get_shape(x)
    axes = {
        scope.normalise_axis(x, axis) for axis in (_flatten_arguments(dims) if dims else range(len(shape)))
    }
    return reshape(scope, x, *(size for axis, size in enumerate(shape) if size != 1 or axis not in axes))


def unsqueeze(scope: Scope, x: Tensor, dim: int) -> Tensor:
    """Insert an axis of length 1."""
    return scope.add("Unsqueeze", [x, [scope.normalise_axis(x, dim, new_axes=1)]])


def cat(scope: Scope, tensors: Any, dim: int = 0, *, axis: int | None = None) -> Tensor:
    """Concatenate tensors along an axis."""
    return scope.add("Concat", list(tensors), axis=int(dim if axis is None else axis))


def chunk(scope: Scope, x: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Cut into `chunks` pieces. The last may be shorter."""
    length = scope.get_shape(x)[scope.normalise_axis(x, dim)]
    return split(scope, x, -(-length // chunks), dim)


def split(scope: Scope, x: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Cut into pieces of one size, or of the given sizes."""
    sizes, length = split_size_or_sections, scope.get_shape(x)[scope.normalise_axis(x, dim)]
    if isinstance(sizes, int):
        sizes = [min(sizes, length - start) for start in range(0, length, sizes)]
    return scope.add_several("Split", [x, list(sizes)], "", len(sizes), {"axis": int(dim)})


def unbind(scope: Scope, x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Return the entries along an axis as separate tensors."""
    axis = scope.normalise_axis(x, dim)
    return tuple(
        scope.add("Gather", [x, index], str(index), axis=axis) for index in range(scope.get_shape(x)[axis])
    )


def pad(scope: Scope, x: Tensor, padding: Any, mode: str = "constant", value: float | None = None) -> Tensor:
    """Pad with a constant. `padding` starts with the last axis, as in torch."""
    pairs = [tuple(padding[index : index + 2]) for index in range(0, len(padding), 2)][::-1]
    pads_before, pads_after = zip(*((0, 0),) * (len(scope.get_shape(x)) - len(pairs)), *pairs, strict=True)
    return scope.add("Pad", [x, [*pads_before, *pads_after], float(value or 0)], mode=mode)


def size(scope: Scope, x: Tensor, dim: int | None = None) -> Any:
    """Return the shape, or the length of axis `dim`. The batch axis has the length `BATCH_LENGTH`."""
    return scope.get_shape(x) if dim is None else scope.get_shape(x)[dim]


def get_attribute(scope: Scope, x: Tensor, name: str) -> Any:
    """Return the attribute `shape`, `ndim` or `mT`."""
    if name == "shape":
        return scope.get_shape(x)
    if name == "ndim":
        return len(scope.get_shape(x))
    if name == "mT":
        return transpose(scope, x, -1, -2)
    raise scope.make_error(f"uses {name}")


def get_item(scope: Scope, x: Any, index: Any) -> Any:
    """Return an entry of a tuple, or a slice of an activation: `[:, 0]`, `[..., 1:]`, `[:, None]`."""
    if not isinstance(x, Tensor):
        return x[index]
    entries = list(index) if isinstance(index, tuple) else [index]
    if Ellipsis in entries:
        ellipsis_index = entries.index(Ellipsis)
        missing_axis_count = len(scope.get_shape(x)) - sum(entry is not None for entry in entries) + 1
        entries[ellipsis_index : ellipsis_index + 1] = [slice(None)] * missing_axis_count
    axis = 0
    for number, entry in enumerate(entries):
        if entry is None:
            x = scope.add("Unsqueeze", [x, [axis]], f"new{number}")
        elif isinstance(entry, int):
            x, axis = scope.add("Gather", [x, entry], f"taken{number}", axis=axis), axis - 1
        elif entry != slice(None):
            start, stop, step = entry.indices(scope.get_shape(x)[axis])
            x = scope.add(
                "Slice", [x, [start], [BATCH_LENGTH if stop < 0 else stop], [axis], [step]], f"cut{number}"
            )
        axis += 1
    return x


# ruff: noqa: ARG001 - signatures are torch's own, behind the scope


def linear(scope: Scope, x: Tensor, weight: Any, bias: Any = None) -> Tensor:
    """Add the product of the last axis with the weights, plus the bias."""
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
    """Add a convolution over one or two axes."""
    axis_count = count_spatial_axes(scope, x)
    if padding_mode != "zeros":
        raise scope.make_error(f"uses the padding mode {padding_mode!r}", "Pad with zeros")
    attributes = {
        "strides": repeat_per_axis(stride, axis_count),
        "dilations": repeat_per_axis(dilation, axis_count),
        "group": int(groups),
    }
    if padding == "same":
        return scope.add("Conv", [x, weight, bias], auto_pad="SAME_UPPER", **attributes)
    pads = repeat_per_axis(0 if padding == "valid" else padding, axis_count)
    return scope.add("Conv", [x, weight, bias], pads=pads * 2, **attributes)


def matmul(scope: Scope, x: Any, y: Any) -> Tensor:
    """Add the product of two activations, or with a constant on either side."""
    return scope.add("MatMul", [x, y])


def make_additive_mask(mask: Any) -> Any:
    """Convert a boolean mask to 0 where true and minus infinity elsewhere. Return other masks unchanged."""
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
    """Add softmax(query @ key^T * scale + mask) @ value. These products of activations are digital."""
    rank, width = len(scope.get_shape(query)), scope.get_shape(query)[-1]
    if is_causal:
        attn_mask = np.tri(scope.get_shape(query)[-2], scope.get_shape(key)[-2], dtype=bool)
    transposed = scope.add("Transpose", [key], "key", perm=[*range(rank - 2), rank - 1, rank - 2])
    scores = scope.add("MatMul", [query, transposed], "scores")
    scores = scope.add("Mul", [scores, float(scale or 1 / math.sqrt(width))], "scaled")
    if attn_mask is not None:
        scores = scope.add("Add", [scores, make_additive_mask(attn_mask)], "masked")
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
    """Add max pooling over one or two axes."""
    if return_indices:
        raise scope.make_error("returns indices too", "Request the values only")
    return _add_pool(scope, "MaxPool", x, kernel_size, stride, padding, ceil_mode, {"dilations": dilation})


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
    """Add average pooling over one or two axes."""
    if divisor_override is not None:
        raise scope.make_error("divides by a number of its own", "Leave divisor_override out")
    return _add_pool(
        scope, "AveragePool", x, kernel_size, stride, padding, ceil_mode, {}, int(count_include_pad)
    )


def _add_pool(
    scope: Scope,
    operation: str,
    x: Tensor,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    extra_attributes: Mapping[str, Any],
    count_include_pad: int = 0,
) -> Tensor:
    axis_count = count_spatial_axes(scope, x)
    attributes = {name: repeat_per_axis(value, axis_count) for name, value in extra_attributes.items()}
    strides = repeat_per_axis(kernel if stride is None or stride == [] else stride, axis_count)
    return scope.add(
        operation,
        [x],
        kernel_shape=repeat_per_axis(kernel, axis_count),
        strides=strides,
        pads=repeat_per_axis(padding, axis_count) * 2,
        ceil_mode=int(ceil_mode),
        count_include_pad=count_include_pad,
        **attributes,
    )


def make_adaptive_pool(operation: str) -> Translator:
    """Return a pooling to a given output size: one value, or windows that divide the image evenly."""

    def function(scope: Scope, x: Tensor, output_size: Any, return_indices: bool = False) -> Tensor:
        image_size = scope.get_shape(x)[2:]
        targets = [
            length if target is None else target
            for target, length in zip(list_sizes(output_size, len(image_size)), image_size, strict=True)
        ]
        if all(target == 1 for target in targets) and not return_indices:
            return scope.add(f"Global{operation}", [x])
        if return_indices or any(length % target for target, length in zip(targets, image_size, strict=True)):
            raise scope.make_error(f"pools {image_size} to {targets}", "Choose a size that divides it")
        kernel = [length // target for target, length in zip(targets, image_size, strict=True)]
        return scope.add(operation, [x], kernel_shape=kernel, strides=kernel)

    return function


TRANSLATOR_BY_FUNCTION: Mapping[str, Translator] = {
    "linear": linear,
    **dict.fromkeys(("conv1d", "conv2d"), conv),
    **dict.fromkeys(("matmul", "bmm"), matmul),
    "scaled_dot_product_attention": attention,
    **dict.fromkeys(("max_pool1d", "max_pool2d"), max_pool),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d"), average_pool),
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d"), make_adaptive_pool("AveragePool")),
    "adaptive_max_pool2d": make_adaptive_pool("MaxPool"),
    "relu": make_unary("Relu"),
    "relu6": relu6,
    "sigmoid": make_unary("Sigmoid"),
    "tanh": make_unary("Tanh"),
    "silu": make_unary("Swish"),
    "mish": make_unary("Mish"),
    "hardswish": make_unary("HardSwish"),
    "hardsigmoid": hardsigmoid,
    "leaky_relu": leaky_relu,
    "elu": elu,
    "prelu": prelu,
    "gelu": gelu,
    "gelu_as": gelu,
    "softplus": softplus,
    **dict.fromkeys(("clamp", "clip"), clamp),
    "hardtanh": hardtanh,
    **{
        name: make_unary(name.capitalize())
        for name in ("erf", "exp", "log", "sqrt", "abs", "neg", "reciprocal")
    },
    **dict.fromkeys(("identity", "dropout", "dropout1d", "dropout2d", "alpha_dropout"), pass_through),
    **dict.fromkeys(("contiguous", "clone", "detach", "float"), pass_through),
    "add": make_binary("Add"),
    **dict.fromkeys(("sub", "subtract"), make_binary("Sub")),
    "rsub": subtract_reversed,
    **dict.fromkeys(("mul", "multiply"), make_binary("Mul")),
    **dict.fromkeys(("div", "truediv", "divide", "true_divide"), make_binary("Div")),
    "pow": make_binary("Pow"),
    "maximum": make_binary("Max"),
    "minimum": make_binary("Min"),
    "masked_fill": masked_fill,
    "where": lambda scope, condition, x, y: scope.add("Where", [condition, x, y]),
    "batch_norm": batch_norm,
    "layer_norm": layer_norm,
    "softmax": make_softmax("Softmax"),
    "log_softmax": make_softmax("LogSoftmax"),
    "mean": make_reduction("ReduceMean"),
    "sum": make_reduction("ReduceSum"),
    "amax": make_reduction("ReduceMax"),
    **dict.fromkeys(("reshape", "view"), reshape),
    "flatten": flatten,
    "unflatten": unflatten,
    "permute": permute,
    **dict.fromkeys(("transpose", "swapaxes"), transpose),
    "squeeze": squeeze,
    "unsqueeze": unsqueeze,
    **dict.fromkeys(("cat", "concat", "concatenate"), cat),
    "chunk": chunk,
    "split": split,
    "unbind": unbind,
    "pad": pad,
    "size": size,
    "dim": lambda scope, x: len(scope.get_shape(x)),
    "getattr": get_attribute,
    "getitem": get_item,
}
