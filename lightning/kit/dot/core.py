"""`VectorCore`: dot products, matrix times vector, matrix times matrix, by light."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lightning.errors import OutOfRange, warn_of_darkness
from lightning.kit.calibration import store
from lightning.kit.calibration.decoder import FULL
from lightning.kit.calibration.document import Calibration
from lightning.kit.calibration.fringe import Floats
from lightning.kit.dot.packing import Integers, Packed, operands, pack
from lightning.kit.dot.program import TileReader
from lightning.kit.dot.symbol import Symbol
from lightning.kit.dot.tuning import WORST_RESIDUAL, Tiles, Tuning, play, tune

SHOTS = 4
WHOLE_SYMBOLS = 4
"""Tile lengths are rounded up to a multiple of this, so that fewer programs are compiled."""
UNLIT = 0.1
"""Share of the expected light below which a tile counts as dark: leaks of closed modulators are less."""


class VectorCore:
    """Dot products of vectors on one kit.

    `device` is the result of `lightning.connect`. `calibration` defaults to the one stored for it. The first product
    tunes the core (`tune`, about a second). Raise `NotCalibrated`, `ForeignCalibration` or `StaleCalibration` as
    `LightningCompute` does, and `ProgramError` for firmware that cannot play vectors.
    """

    def __init__(
        self,
        device: Any,
        calibration: Calibration | None = None,
        *,
        symbol: Symbol | None = None,
        seed: int = 0,
        tiles: Tiles | None = None,
    ) -> None:
        self.calibration = store.get_fitting(device, calibration)
        self.symbol = symbol or Symbol()
        self.tiles = tiles or TileReader(device, self.calibration)
        self._rng = np.random.default_rng(seed)
        self._tuning: Tuning | None = None

    @property
    def tuning(self) -> Tuning:
        """The result of `tune`, which runs on first access."""
        return self._tuning or self.tune()

    def tune(self) -> Tuning:
        """Measure the gates and the decoder of tiles; call it again if the device has drifted.

        Raise `CalibrationError` if the device does not agree with its calibration.
        """
        self._tuning = tune(self.tiles, self.calibration, self.symbol, self._rng)
        return self._tuning

    def dot(self, weights: npt.ArrayLike, inputs: npt.ArrayLike, *, shots: int = SHOTS) -> Any:
        """Return sum_k weights_k inputs_k / 255 over the last axis, rounded: an int for two vectors, else an array.

        Values are integers from -255 to 255; leading axes broadcast. The result is the mean of `shots` measurements.
        Raise `OutOfRange` for other values, lengths that differ, or less than one shot. Warn with `DarkWarning` if
        light was expected and none arrived.
        """
        answers = np.rint(self.analogue(weights, inputs, shots=shots)).astype(np.int64)
        return answers if answers.ndim else int(answers)

    def matvec(self, matrix: npt.ArrayLike, vector: npt.ArrayLike, *, shots: int = SHOTS) -> Integers:
        """Return the dot products of the rows of an (m, n) matrix with a vector (n,), (m,). Raises as `dot`."""
        rows, column = np.asarray(matrix), np.asarray(vector)
        if rows.ndim != 2 or column.ndim != 1:
            raise OutOfRange(f"expected a matrix and a vector, not shapes {rows.shape} and {column.shape}")
        answers: Integers = self.dot(rows, column[None, :], shots=shots)
        return answers

    def matmul(self, left: npt.ArrayLike, right: npt.ArrayLike, *, shots: int = SHOTS) -> Integers:
        """Return the products of (m, n) and (n, p) matrices over 255, (m, p). Raises as `dot`."""
        one, other = np.asarray(left), np.asarray(right)
        if one.ndim != 2 or other.ndim != 2:
            raise OutOfRange(f"expected two matrices, not shapes {one.shape} and {other.shape}")
        answers: Integers = self.dot(one[:, None, :], other.T[None, :, :], shots=shots)
        return answers

    def analogue(self, weights: npt.ArrayLike, inputs: npt.ArrayLike, *, shots: int = SHOTS) -> Floats:
        """Return the result of `dot` before rounding, in units of 1/255."""
        first, second = operands(weights, inputs)
        if isinstance(shots, bool) or shots != int(shots) or shots < 1:
            raise OutOfRange(f"shots must be an integer of 1 or more, not {shots}")
        length = first.shape[-1]
        most = self.tiles.most_symbols(self.symbol) // WHOLE_SYMBOLS * WHOLE_SYMBOLS
        packed = pack(first.reshape(-1, length), second.reshape(-1, length), most)
        totals = np.zeros(first.size // length)
        if packed.row.size:
            np.add.at(totals, packed.row, packed.sign * self._tile_values(packed, int(shots)))
        return totals.reshape(first.shape[:-1])

    def _tile_values(self, packed: Packed, shots: int) -> Floats:
        """Return the sums of products in units of 1/255, (tiles,)."""
        tuning = self.tuning
        # Dark symbols fill the tiles to whole lengths.
        values = np.pad(packed.values, ((0, 0), (0, -packed.values.shape[1] % WHOLE_SYMBOLS), (0, 0)))
        levels = play(
            self.tiles, tuning.coding.words(values), tuning.coding.dark, self.symbol, shots=shots
        ).mean(axis=1)
        answers = tuning.decoder.decode(levels, tuning.coding.operands(values).sum(axis=1))
        if (dark := _find_unlit(answers, values)).any():
            warn_of_darkness(self.calibration.device, int(dark.sum()))
        return answers


def _find_unlit(answers: Floats, values: Integers) -> npt.NDArray[np.bool_]:
    """Return a mask of the tiles, (tiles,), with far less light than their values (tiles, symbols, 4) give."""
    expected = (values[..., 0::2] * values[..., 1::2]).sum(axis=(1, 2)) / FULL
    noise = WORST_RESIDUAL * np.sqrt(values.shape[1])
    unlit: npt.NDArray[np.bool_] = (expected >= 10 * noise) & (answers <= UNLIT * expected)
    return unlit
