"""Weights rounded for products that lose their lowest 8 bits.

A product (a * w) >> 8 is too small by 0 .. 255/256, and by nothing where a is 0: the loss depends on a, so a bias takes
only its mean away. What remains is least where w is rounded not to the nearest whole number, but to the one whose
products differ least from the true ones, on the average over the activations that the layer meets:

    choose w' for v so that Var_a[((a * w') >> 8) - a * v / 256] is least

It is worth most where many activations are 0 and others are not, together, as in images: their losses add up.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lightning.compiler.model import FULL

Doubles = npt.NDArray[np.float64]
Small = npt.NDArray[np.int16]

_FINER = 8
"""Steps of the table for one step of a weight."""
_REACH = 16
"""How far from the nearest whole number a weight may be rounded."""


def rounding_table(activations: Small) -> Small:
    """Return the magnitude for every eighth of a step, for activations like these; 0 stays 0, (255 * 8 + 1,)."""
    magnitudes = np.abs(activations).ravel()
    share = np.bincount(magnitudes, minlength=FULL + 1) / max(magnitudes.size, 1)
    values = np.arange(FULL + 1, dtype=np.float64)
    products = np.floor(np.outer(values, values) / 256)  # [w', a]
    means = products @ share
    variance = products**2 @ share - means**2
    covariance = (products * values) @ share / 256 - means * (values @ share) / 256
    wanted = np.arange(FULL * _FINER + 1) / _FINER
    loss = variance - 2 * wanted[:, None] * covariance
    loss[np.abs(wanted[:, None] - values) > _REACH] = np.inf
    nearest = np.rint(wanted).astype(np.int64)
    worse = loss[np.arange(len(wanted)), nearest] > loss.min(axis=1) + 1e-12
    found = np.where(worse, loss.argmin(axis=1), nearest)
    found[: _FINER // 2 + 1] = 0
    return np.asarray(found, np.int16)


def rounded_by(table: Small, steps: Doubles) -> Small:
    """Return the weights in steps of their scales (any sign, up to 255) as whole numbers."""
    places = np.rint(np.minimum(np.abs(steps), FULL) * _FINER).astype(np.int64)
    return np.asarray(np.sign(steps).astype(np.int16) * table[places])
