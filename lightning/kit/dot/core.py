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
"""Tiles are made longer to a multiple of this: fewer programs are compiled."""
UNLIT = 0.1
"""Share of the expected light below which there was none: leaks of shut modulators are less."""


class VectorCore:
    """Computes with vectors on one kit.

    `device` is what `lightning.connect` gives. `calibration` is the one kept for it unless another is given.
    The first product tunes the core (`tune`, about a second). Raises `NotCalibrated`, `ForeignCalibration` and
    `StaleCalibration` as `LightningCompute` does, and `ProgramError` for firmware that cannot play vectors.
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
        self.calibration = store.fitting(device, calibration)
        self.symbol = symbol or Symbol()
        self.tiles = tiles or TileReader(device, self.calibration)
        self._rng = np.random.default_rng(seed)
        self._tuning: Tuning | None = None

    @property
    def tuning(self) -> Tuning:
        """As found by `tune`, which is done when it is first asked for."""
        return self._tuning or self.tune()

    def tune(self) -> Tuning:
        """Measure the gates and the decoder of tiles; again when the device has drifted.

        Raises `CalibrationError` when the device does not answer as its calibration says.
        """
        self._tuning = tune(self.tiles, self.calibration, self.symbol, self._rng)
        return self._tuning

    def dot(self, weights: npt.ArrayLike, inputs: npt.ArrayLike, *, shots: int = SHOTS) -> Any:
        """Return sum_k weights_k inputs_k / 255 over the last axis, rounded: an int for two vectors, else an array.

        Values are whole numbers of -255 to 255; leading axes broadcast. Each of the `shots` plays all vectors, and
        their mean is taken. Raises `OutOfRange` for other values, lengths that differ, or no shot. Warns with
        `DarkWarning` when no light came where it should.
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
        """Return the product as `dot` does, before rounding."""
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
        if (dark := _unlit(answers, values)).any():
            warn_of_darkness(self.calibration.device, int(dark.sum()))
        return answers


def _unlit(answers: Floats, values: Integers) -> npt.NDArray[np.bool_]:
    """Return the tiles, (tiles,), that brought next to nothing where values (tiles, symbols, 4) mean far more."""
    expected = (values[..., 0::2] * values[..., 1::2]).sum(axis=(1, 2)) / FULL
    noise = WORST_RESIDUAL * np.sqrt(values.shape[1])
    unlit: npt.NDArray[np.bool_] = (expected >= 10 * noise) & (answers <= UNLIT * expected)
    return unlit
