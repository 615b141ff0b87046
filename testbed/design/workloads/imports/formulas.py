"""Floating-point operations of single computations, from shapes; a multiply and an add are two."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

Dims = Sequence[int]


def product_flops(left: Dims, right: Dims) -> float:
    """Return a (batched) matrix product: 2 m n k for each matrix of the batch, which may be broadcast.

    >>> product_flops((10, 3, 4), (4, 5))
    1200.0
    """
    rows = left[-2] if len(left) > 1 else 1
    columns = right[-1] if len(right) > 1 else 1
    return 2.0 * _broadcast(left[:-2], right[:-2]) * rows * left[-1] * columns


def convolution_flops(output: Dims, weight: Dims) -> float:
    """Sum over the kernel and the inputs of a group; weight is (c_out, c_in / groups, *kernel).

    >>> convolution_flops((1, 64, 112, 112), (64, 3, 7, 7))
    236027904.0
    """
    return 2.0 * prod(output) * prod(weight[1:])


def transposed_flops(inputs: Dims, weight: Dims) -> float:
    """Return a transposed convolution: each input number is spread; weight is (c_in, c_out / groups, *kernel)."""
    return 2.0 * prod(inputs) * prod(weight[1:])


def attention_flops(queries: Dims, keys: Dims, values: Dims) -> float:
    """Return scores and weighted sum of (..., heads, tokens, width) tensors: 2 s t (d + e) for each head."""
    return 2.0 * prod(queries[:-1]) * keys[-2] * (queries[-1] + values[-1])


def recurrent_flops(steps: int, samples: int, weights: int) -> float:
    """Return every weight of a recurrent layer is used once a step and sample."""
    return 2.0 * steps * samples * weights


def einsum_flops(equation: str, shapes: Sequence[Dims]) -> float:
    """Return two operations for each combination of indices; none where nothing is multiplied. Ellipses count once.

    >>> einsum_flops("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)])
    240.0
    """
    if len(shapes) < 2:
        return 0.0
    sizes: dict[str, int] = {}
    for term, shape in zip(equation.replace(" ", "").partition("->")[0].split(","), shapes, strict=True):
        named = term.replace("...", "")
        before, _, after = term.partition("...")
        hidden = len(shape) - len(named)
        middle = shape[len(before) : len(before) + hidden]
        sizes["..."] = max(sizes.get("...", 1), prod(middle))
        sizes |= dict(
            zip(before + after, (*shape[: len(before)], *shape[len(before) + hidden :]), strict=True)
        )
    return 2.0 * prod(sizes.values())


def _broadcast(left: Dims, right: Dims) -> int:
    width = max(len(left), len(right))
    padded = ((1,) * (width - len(dims)) + tuple(dims) for dims in (left, right))
    return prod(max(pair) for pair in zip(*padded, strict=True))
