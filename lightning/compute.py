"""Products by light: single, summed in pairs, signed, and in batches.

    compute = LightningCompute(soc)                # with the calibration of this device
    compute.multiply(100, 50)                      # 20, which is 100 * 50 / 255 rounded
    compute.multiply([[1, 2], [3, 4]], 255)        # arrays go through in one batch
    compute.multiply_accumulate([[200, -30]], [[10, 40]])

Values are whole numbers of -255 to 255. Light has no sign: magnitudes are sent, signs are kept by the controller.
A product takes one row of light. The sum of two products takes one row when both have the same sign, because the
detector adds them; with different signs it takes two rows, one for what is added and one for what is subtracted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lightning import errors
from lightning.calibration import store
from lightning.calibration.batch import Reader, Window
from lightning.calibration.decoder import FULL, Decoded
from lightning.calibration.document import MODULATORS, Calibration
from lightning.calibration.fringe import Floats
from lightning.calibration.transfer import Rows

Integers = npt.NDArray[np.int64]

SHOTS = 4


class LightningCompute:
    """Computes with one kit.

    `device` is what `lightning.connect` gives, or an address for it. `calibration` is the one kept for this device
    unless another is given. Raises `NotCalibrated` where there is none, `ForeignCalibration` for one of another
    device, `StaleCalibration` for one that is too old.
    """

    def __init__(
        self,
        device: Any,
        calibration: Calibration | None = None,
        *,
        shots: int = SHOTS,
        window: int | None = None,
        rows: Rows | None = None,
    ) -> None:
        self.device = _connected(device)
        self.calibration = _fitting(self.device, calibration)
        self.shots = shots
        self.rows = rows or _reader(self.device, self.calibration, window)

    def multiply(self, a: npt.ArrayLike, b: npt.ArrayLike, *, shots: int | None = None) -> Any:
        """The product a*b/255, rounded: an int for two numbers, an array of int64 for arrays (which broadcast).

        Raises `OutOfRange` for anything but whole numbers of -255 to 255.
        """
        first, second = np.broadcast_arrays(_signed(a), _signed(b))
        answers = np.rint(self.analogue_product(first, second, shots=shots)).astype(np.int64)
        return _like(np.clip(answers, -FULL, FULL), first.shape)

    def analogue_product(self, a: npt.ArrayLike, b: npt.ArrayLike, *, shots: int | None = None) -> Floats:
        """As `multiply`, before rounding, in units of 1/255; shaped as the operands."""
        first, second = np.broadcast_arrays(_signed(a), _signed(b))
        values = np.zeros((first.size, MODULATORS), dtype=np.int64)
        values[:, 0], values[:, 1] = np.abs(first).ravel(), np.abs(second).ravel()
        sign = np.sign(first) * np.sign(second)
        product: Floats = sign * self.measure(values, shots=shots).reshape(first.shape)
        return product

    def multiply_accumulate(self, a: npt.ArrayLike, b: npt.ArrayLike, *, shots: int | None = None) -> Any:
        """The sum a[..., 0]*b[..., 0] + a[..., 1]*b[..., 1] over 255, rounded: -510 to 510.

        An int for two pairs, an array of int64 for more. Raises `OutOfRange` for other shapes or values.
        """
        sums = self.analogue_sum(a, b, shots=shots)
        answers = np.clip(np.rint(sums).astype(np.int64), -2 * FULL, 2 * FULL)
        return _like(answers, sums.shape)

    def analogue_sum(self, a: npt.ArrayLike, b: npt.ArrayLike, *, shots: int | None = None) -> Floats:
        """As `multiply_accumulate`, before rounding, in units of 1/255."""
        first, second = np.broadcast_arrays(_signed(a), _signed(b))
        if not first.ndim or first.shape[-1] != 2:
            raise errors.OutOfRange(
                f"sums are of two products, so operands end in an axis of 2; these have the shape {first.shape}"
            )
        pairs = np.stack([first, second], axis=-1).reshape(-1, 2, 2)
        sign = np.sign(pairs).prod(axis=2)
        added = self._lit_where(pairs, sign > 0, shots)
        subtracted = self._lit_where(pairs, sign < 0, shots)
        total: Floats = (added - subtracted).reshape(first.shape[:-1])
        return total

    def measure(self, values: npt.ArrayLike, *, shots: int | None = None) -> Floats:
        """(n,) analogue answers in units of 1/255 for (n, 4) values of 0..255: v0*v1 + v2*v3.

        Raises `OutOfRange` for other values.
        """
        words = self.calibration.word_table(values)
        readings = self.rows.read(words, shots=self.shots if shots is None else shots)
        return self.calibration.decode_table(readings.levels, values)

    def decode(self, level: float, values: dict[int, int], *, peak: float | None = None) -> Decoded:
        """The answer that a level above idle means, in counts, when generators were given these values."""
        return self.calibration.decode(level, values, peak=peak)

    def _lit_where(self, pairs: Integers, wanted: npt.NDArray[np.bool_], shots: int | None) -> Floats:
        """(n,) sums of the wanted products (n, 2) of (n, 2, 2) operands; rows with none are not measured."""
        values = (np.abs(pairs) * wanted[:, :, None]).reshape(-1, MODULATORS)
        rows = wanted.any(axis=1)
        total = np.zeros(len(pairs))
        if rows.any():
            total[rows] = self.measure(values[rows], shots=shots)
        return total


def _connected(device: Any) -> Any:
    if not isinstance(device, str):
        return device
    from lightning.devices import connect

    return connect(device)


def _fitting(device: Any, calibration: Calibration | None) -> Calibration:
    if calibration is None:
        return store.require(device)
    store.check(calibration, device)
    return calibration


def _reader(device: Any, calibration: Calibration, window: int | None) -> Reader:
    one, two, three, four = (modulator.channel for modulator in calibration.modulators)
    length = Window().length if window is None else window
    return Reader(
        device,
        channels=(one, two, three, four),
        readout=calibration.readout,
        window=Window.after(calibration.timing.arrival, length=length),
    )


def _signed(values: npt.ArrayLike) -> Integers:
    given = np.asarray(values)
    whole = given.astype(np.int64)
    if (whole != given).any() or np.abs(whole).max(initial=0) > FULL:
        raise errors.OutOfRange("operands are whole numbers of -255 to 255; scale or round them first")
    return whole


def _like(answers: Integers, shape: tuple[int, ...]) -> Any:
    """A plain int for plain numbers."""
    return int(answers.reshape(-1)[0]) if shape == () else answers
