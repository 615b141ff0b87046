"""Functions of single values, and of values along an axis: what numpy does not bring along."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

ERFC = (
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


def erf(x: Array) -> Array:
    """Return the error function; its complement has a relative error below 1.2e-7.

    >>> [round(float(v), 6) for v in erf(np.array([-1.0, 0.5, 2.0]))]
    [-0.842701, 0.5205, 0.995322]
    """
    size = np.abs(x, dtype=np.float64)
    t = 1 / (1 + size / 2)
    rest = t * np.exp(np.polyval(ERFC, t) - size * size)
    return np.asarray(np.sign(x) * (1 - rest))


def gelu(x: Array, approximate: str = "none") -> Array:
    """Return each value times the normal distribution's probability of less than it, or its approximation by `tanh`.

    >>> gelu(np.array([1.0])).round(4), gelu(np.array([1.0]), "tanh").round(4)
    (array([0.8413]), array([0.8412]))
    """
    if approximate == "tanh":
        return np.asarray(0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3))))
    return np.asarray(0.5 * x * (1 + erf(x * 0.7071067812)))


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x)), by way of tanh, which does not overflow."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))


def softplus(x: Array) -> Array:
    """Return log(1 + exp(x)), without overflow."""
    return np.asarray(np.logaddexp(x, 0))


def leaky_relu(x: Array, alpha: float) -> Array:
    """Negative values times `alpha`."""
    return np.where(x < 0, np.float32(alpha) * x, x)


def elu(x: Array, alpha: float) -> Array:
    """Negative values as alpha * (exp(x) - 1)."""
    return np.where(x < 0, np.float32(alpha) * np.expm1(np.minimum(x, 0)), x)


def hard_sigmoid(x: Array, alpha: float, beta: float) -> Array:
    """Return the values as alpha * x + beta, between 0 and 1."""
    return np.asarray(np.clip(np.float32(alpha) * x + np.float32(beta), 0, 1))


def softmax(x: Array, axis: int) -> Array:
    """Positive, with the sum 1 along `axis`; the largest is taken off first, so that nothing overflows."""
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis=axis, keepdims=True))


def log_softmax(x: Array, axis: int) -> Array:
    """Return the logarithm of `softmax`."""
    lower = x - x.max(axis=axis, keepdims=True)
    return np.asarray(lower - np.log(np.exp(lower).sum(axis=axis, keepdims=True)))
