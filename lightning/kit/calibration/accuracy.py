"""Accuracy of a set of answers, as the published library defines it.

Accuracy in per cent is 100 - 100 * RMSE of the result normalised to 1. Rounding to eight bits alone leaves an
error of 1/sqrt(12) of 1/255, so no eight-bit answer exceeds 99.887 per cent on average.

>>> round(100 - 100 / 12**0.5 / 255, 3)
99.887
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lightning.kit.calibration.decoder import FULL
from lightning.kit.calibration.fringe import Floats


def accuracy(results: npt.ArrayLike, a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Return the accuracy of results (0..255) against the products of values a and b, in per cent.

    >>> accuracy([255, 0], [255, 0], [255, 9])
    100.0
    """
    return 100.0 - 100.0 * rms_error(results, a, b) / FULL


def rms_error(results: npt.ArrayLike, a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Root of the mean square error, in units of 1/255."""
    error = np.asarray(results, dtype=float) - true_product(a, b)
    return float(np.sqrt(np.mean(error**2)))


def true_product(a: npt.ArrayLike, b: npt.ArrayLike) -> Floats:
    """Return a*b/255 before rounding.

    >>> true_product(100, 51).item()
    20.0
    """
    product: Floats = np.asarray(a, dtype=float) * np.asarray(b, dtype=float) / FULL
    return product
