"""`VectorCore`: products of vectors and matrices, computed by light."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import OutOfRange, warn_of_darkness
from lightning.kit.calibration import store
from lightning.kit.calibration.decoder import FULL_VALUE
from lightning.kit.calibration.document import Calibration
from lightning.kit.calibration.fringe import Floats
from lightning.kit.dot.packing import Integers, PackedRows, check_operands, pack_products
from lightning.kit.dot.program import TileReader
from lightning.kit.dot.symbol import Symbol
from lightning.kit.dot.tuning import MAX_TILE_RESIDUAL, TileMeter, Tuning, measure_tiles, tune

SHOT_COUNT = 4
LENGTH_STEP = 4
"""Tile lengths are multiples of this number of symbols, so that fewer programs must be compiled."""
MIN_LIGHT_SHARE = 0.1
"""A tile with less than this share of the expected light counts as dark. Closed modulators leak a smaller share."""


class VectorCore:
    """Dot products of vectors on one kit.

    `device` is the result of `lightning.connect`. `calibration` defaults to its stored calibration. The first product
    tunes the core (`tune`, about a second). Raise `NotCalibrated`, `ForeignCalibration` or `StaleCalibration` like
    `LightningCompute`, and `ProgramError` for firmware that cannot play vectors.
    """

    def __init__(
        self,
        device: Any,
        calibration: Calibration | None = None,
        *,
        symbol: Symbol | None = None,
        seed: int = 0,
        tile_reader: TileMeter | None = None,
    ) -> None:
        self.calibration = store.choose_calibration(device, calibration)
        self.symbol = symbol or Symbol()
        self.tile_reader = tile_reader or TileReader(device, self.calibration)
        self._rng = np.random.default_rng(seed)
        self._tuning: Tuning | None = None

    @property
    def tuning(self) -> Tuning:
        """The result of `tune`, which runs at the first access."""
        return self._tuning or self.tune()

    def tune(self) -> Tuning:
        """Measure the gates' curves and fit the decoder of tiles. Call it again if the device has drifted.

        Raise `CalibrationError` if the device does not agree with its calibration.
        """
        self._tuning = tune(self.tile_reader, self.calibration, self.symbol, self._rng)
        return self._tuning

    def dot(self, weights: npt.ArrayLike, inputs: npt.ArrayLike, *, shots: int = SHOT_COUNT) -> Any:
        """Return dot products of the last axes, divided by 255 and rounded: an int for two vectors, else an array.

        Values are integers from -255 to 255. Leading axes broadcast. The result is the mean of `shots` measurements.
        Raise `OutOfRange` for other values, different lengths, or less than one shot. Warn with `DarkWarning` if light
        was expected and none arrived.
        """
        results = np.rint(self.analogue_dot(weights, inputs, shots=shots)).astype(np.int64)
        return results if results.ndim else int(results)

    def matvec(self, matrix: npt.ArrayLike, vector: npt.ArrayLike, *, shots: int = SHOT_COUNT) -> Integers:
        """Return the dot products (m,) of an (m, n) matrix's rows with an (n,) vector. Raise the errors of `dot`."""
        rows, column = np.asarray(matrix), np.asarray(vector)
        if rows.ndim != 2 or column.ndim != 1:
            raise OutOfRange(f"expected a matrix and a vector, not shapes {rows.shape} and {column.shape}")
        products: Integers = self.dot(rows, column[None, :], shots=shots)
        return products

    def matmul(self, left: npt.ArrayLike, right: npt.ArrayLike, *, shots: int = SHOT_COUNT) -> Integers:
        """Return the product (m, p) of (m, n) and (n, p) matrices, divided by 255. Raise the errors of `dot`."""
        left_array, right_array = np.asarray(left), np.asarray(right)
        if left_array.ndim != 2 or right_array.ndim != 2:
            raise OutOfRange(f"expected two matrices, not shapes {left_array.shape} and {right_array.shape}")
        products: Integers = self.dot(left_array[:, None, :], right_array.T[None, :, :], shots=shots)
        return products

    def analogue_dot(
        self, weights: npt.ArrayLike, inputs: npt.ArrayLike, *, shots: int = SHOT_COUNT
    ) -> Floats:
        """Return the result of `dot` before rounding."""
        weight_array, input_array = check_operands(weights, inputs)
        if isinstance(shots, bool) or shots != int(shots) or shots < 1:
            raise OutOfRange(f"shots must be an integer of 1 or more, not {shots}")
        length = weight_array.shape[-1]
        max_symbol_count = self.tile_reader.count_max_symbols(self.symbol) // LENGTH_STEP * LENGTH_STEP
        packed_rows = pack_products(
            weight_array.reshape(-1, length), input_array.reshape(-1, length), max_symbol_count
        )
        totals = np.zeros(weight_array.size // length)
        if packed_rows.row_indices.size:
            np.add.at(
                totals,
                packed_rows.row_indices,
                packed_rows.signs * self._measure_tiles(packed_rows, int(shots)),
            )
        return totals.reshape(weight_array.shape[:-1])

    def _measure_tiles(self, packed_rows: PackedRows, shots: int) -> Floats:
        """Measure the tiles and return the sum of products of each, divided by 255 and without sign, (tiles,)."""
        tuning = self.tuning
        # Dark symbols pad the tiles.
        values = np.pad(packed_rows.values, ((0, 0), (0, -packed_rows.values.shape[1] % LENGTH_STEP), (0, 0)))
        levels = measure_tiles(
            self.tile_reader, tuning.coding.encode(values), tuning.coding.dark_words, self.symbol, shots=shots
        ).mean(axis=1)
        sums = tuning.decoder.decode(levels, tuning.coding.compute_operands(values).sum(axis=1))
        if (is_unlit := _find_unlit(sums, values)).any():
            warn_of_darkness(self.calibration.device, int(is_unlit.sum()))
        return sums


def _find_unlit(sums: Floats, values: Integers) -> npt.NDArray[np.bool_]:
    """Return a mask (tiles,) of the tiles with far less light than expected for their values (tiles, symbols, 4)."""
    expected_sums = (values[..., 0::2] * values[..., 1::2]).sum(axis=(1, 2)) / FULL_VALUE
    noise = MAX_TILE_RESIDUAL * np.sqrt(values.shape[1])
    is_unlit: npt.NDArray[np.bool_] = (expected_sums >= 10 * noise) & (
        sums <= MIN_LIGHT_SHARE * expected_sums
    )
    return is_unlit
