"""The decoder: it converts detector levels to a product, or to the sum of two products. Also, the accuracy of products.

Modulators 0 and 1 are in series, and so are 2 and 3; both pairs illuminate one detector. Each modulator
passes floor and slope times its operand v (0..1), so the level above the idle level is

    y = offset + sum_i leak_i v_i + gain_0 v_0 v_1 + gain_1 v_2 v_3 - curvature y^2

The terms linear in the operands come from light that a closed modulator still transmits (its extinction ratio).
The controller knows the operands, so it subtracts these terms. The last term is the compression of detector and
amplifier. All coefficients come from a regression over measured pairs.

When both pairs are lit, the sum of two full products may exceed the converter's range. The first modulator of each
pair then opens less far, so that both products have the same weight and their sum fits. `shared` is the level of one
full product in a sum.

Example: with gains of 20,000 counts, no leak and offset 0, y = 10,000 and v_0 = 1 mean v_0 v_1 = 0.5, or 127.5 of 255.

The accuracy in per cent is 100 - 100 * RMSE, for results normalised to 1. Rounding to eight bits alone causes an
error of 1/sqrt(12) in units of 1/255, so no eight-bit result exceeds 99.887 per cent on average.

>>> round(100 - 100 / 12**0.5 / 255, 3)
99.887
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lightning.kit.calibration.fringe import Floats
from lightning.kit.settings import MAX_VALUE

FULL_VALUE = MAX_VALUE
"""The greatest operand value, and the result of one full product."""


@dataclass(frozen=True, slots=True)
class DecodedLevel:
    """One decoded result, with its flags."""

    value: int
    """The result, rounded and clipped to 0..255 for one product, or 0..510 for the sum of two."""
    analogue_result: float
    """The result before rounding and clipping, in the same unit."""
    is_saturated: bool
    """True if the converter clipped, or the result is far above the range: `value` is then too small."""
    is_dark: bool = False
    """True if no light arrived although the expected product is well above zero."""

    @property
    def residual(self) -> float:
        """The analogue result minus the value. A magnitude above 0.5 means that `value` was clipped."""
        return self.analogue_result - self.value


@dataclass(frozen=True, slots=True)
class Decoder:
    """The coefficients of the equation in the module's docstring, in counts of the readout."""

    offset: float
    leak: tuple[float, float, float, float]
    gain: tuple[float, float]
    curvature: float
    shared: float
    """Counts for one full product of either pair when both pairs are lit."""
    full_scale: float
    """Counts at which the converter clips."""
    residual_rms: float
    """Rms residual of the regression, in units of 1/255 of the first pair's product."""

    def predict(self, operands: npt.ArrayLike) -> Floats:
        """Return the expected levels above idle in counts, (n,), for (n, 4) operands."""
        v = _as_rows(operands)
        linear_level: Floats = (
            self.offset + v @ np.array(self.leak) + _multiply_pairs(v) @ np.array(self.gain)
        )
        if not self.curvature:
            return linear_level
        level: Floats = (np.sqrt(1 + 4 * self.curvature * linear_level) - 1) / (2 * self.curvature)
        return level

    def decode(self, levels: npt.ArrayLike, operands: npt.ArrayLike, is_pair_lit: npt.ArrayLike) -> Floats:
        """Return the analogue results (n,), in units of 1/255, for (n,) levels above idle and (n, 4) operands.

        `is_pair_lit` (n, 2) marks the pairs with a value above 0. A row with one lit pair is divided by the gain of
        this pair, a row with two by `shared`.
        """
        y, v = np.atleast_1d(np.asarray(levels, dtype=float)), _as_rows(operands)
        linear_levels = y + self.curvature * y**2
        is_first_lit, is_second_lit = np.atleast_2d(np.asarray(is_pair_lit, dtype=bool)).T
        product_counts = np.where(
            is_first_lit & is_second_lit, self.shared, np.where(is_second_lit, self.gain[1], self.gain[0])
        )
        analogue_results: Floats = (
            FULL_VALUE * (linear_levels - self.offset - v @ np.array(self.leak)) / product_counts
        )
        return analogue_results


def fit_decoder(
    levels: npt.ArrayLike, operands: npt.ArrayLike, *, shared_gain: float, full_scale: float
) -> Decoder:
    """Return the decoder fitted by regression to (n,) levels, measured at (n, 4) operands.

    Raise `ValueError` for fewer than 32 rows, or if the rows do not determine all coefficients.
    """
    y, v = np.asarray(levels, dtype=float), _as_rows(operands)
    if y.size < 32:
        raise ValueError(f"a decoder needs at least 32 measured rows, not {y.size}")
    scale = float(np.abs(y).max()) or 1.0
    design = np.column_stack([np.ones(y.size), v, _multiply_pairs(v), -scale * (y / scale) ** 2])
    solution, _, rank, _ = np.linalg.lstsq(design, y, rcond=1e-10)
    if rank < design.shape[1]:
        raise ValueError("the measured rows do not separate leakage from products; vary all four operands")
    rms = float(np.sqrt(np.sum((y - design @ solution) ** 2) / max(1, y.size - rank)))
    coefficients = [float(weight) for weight in solution]
    return Decoder(
        offset=coefficients[0],
        leak=(coefficients[1], coefficients[2], coefficients[3], coefficients[4]),
        gain=(coefficients[5], coefficients[6]),
        curvature=coefficients[7] / scale,
        shared=shared_gain,
        full_scale=full_scale,
        residual_rms=FULL_VALUE * rms / max(abs(coefficients[5]), 1e-12),
    )


def round_products(analogue_results: npt.ArrayLike, *, product_count: int = 1) -> npt.NDArray[np.int64]:
    """Return each result rounded to an integer and clipped to 0..255 times `product_count`.

    >>> round_products([-0.7, 19.6, 255.9]).tolist()
    [0, 20, 255]
    """
    integers = np.rint(np.asarray(analogue_results, dtype=float)).astype(np.int64)
    rounded: npt.NDArray[np.int64] = np.clip(integers, 0, FULL_VALUE * product_count)
    return rounded


def _as_rows(operands: npt.ArrayLike) -> Floats:
    return np.atleast_2d(np.asarray(operands, dtype=float))


def _multiply_pairs(v: Floats) -> Floats:
    """Return the products of both pairs, (n, 2): v0 v1 and v2 v3."""
    products: Floats = v[:, 0::2] * v[:, 1::2]
    return products


def compute_accuracy(results: npt.ArrayLike, a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Return the accuracy of results (0..255) against the products of values a and b, in per cent.

    >>> compute_accuracy([255, 0], [255, 0], [255, 9])
    100.0
    """
    return 100.0 - 100.0 * compute_rms_error(results, a, b) / FULL_VALUE


def compute_rms_error(results: npt.ArrayLike, a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Return the root mean square error of results (0..255) against the products of a and b, in units of 1/255."""
    error = np.asarray(results, dtype=float) - compute_true_product(a, b)
    return float(np.sqrt(np.mean(error**2)))


def compute_true_product(a: npt.ArrayLike, b: npt.ArrayLike) -> Floats:
    """Return a*b/255 before rounding.

    >>> compute_true_product(100, 51).item()
    20.0
    """
    product: Floats = np.asarray(a, dtype=float) * np.asarray(b, dtype=float) / FULL_VALUE
    return product
