"""Products computed by light: single products, sums of two, and dot products, with signs.

    compute = LightningCompute(soc)                # with the calibration of this device
    compute.multiply(100, 50)                      # 20, which is 100 * 50 / 255 rounded
    compute.multiply([[1, 2], [3, 4]], 255)        # an array is measured in one batch
    compute.multiply_accumulate([[200, -30]], [[10, 40]])
    compute.dot([200, -30, 7], [10, 40, 90])       # any length, sent as a waveform: see `lightning.kit.dot`

Values are integers from -255 to 255. Light has no sign: the kit multiplies magnitudes; the controller applies signs.
A product takes one row of light. The sum of two products takes one row if both have the same sign, because the
detector adds them; with different signs it takes two rows, one for each sign.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lightning import errors
from lightning.kit.calibration import store
from lightning.kit.calibration.decoder import FULL_VALUE, DecodedLevel
from lightning.kit.calibration.document import Calibration, check_is_calibration
from lightning.kit.calibration.fringe import Floats
from lightning.kit.calibration.measurement.batch import TableReader, Window
from lightning.kit.calibration.measurement.transfer import RowReader
from lightning.kit.settings import MODULATOR_COUNT

if TYPE_CHECKING:
    from lightning.kit.dot.core import VectorCore

Integers = npt.NDArray[np.int64]

SHOT_COUNT = 4


class LightningCompute:
    """Multiplication with one kit.

    `device` is the result of `lightning.connect`, or an address. `calibration` defaults to the stored calibration of
    this device. Raise `NotCalibrated` if there is none, `ForeignCalibration` if it belongs to another device,
    `StaleCalibration` if it is too old.
    """

    def __init__(
        self,
        device: Any,
        calibration: Calibration | None = None,
        *,
        shots: int = SHOT_COUNT,
        window: int | None = None,
        rows: RowReader | None = None,
    ) -> None:
        self.device = _connect(device)
        check_is_calibration(calibration)
        self.calibration = store.choose_calibration(self.device, calibration)
        self.shots = shots
        self.rows = rows or _make_reader(self.device, self.calibration, window)
        self._vectors: VectorCore | None = None

    def multiply(self, a: npt.ArrayLike, b: npt.ArrayLike, *, shots: int | None = None) -> Any:
        """Return the rounded product a*b/255: an int for two numbers, otherwise an int64 array of the broadcast shape.

        The result is clipped to 0 to 255, or to -255 to 0 if the signs differ. Raise `OutOfRange` unless the operands
        are integers from -255 to 255 and their shapes broadcast.
        """
        left, right = self._broadcast(a, b)
        answers = np.rint(self.analogue_product(left, right, shots=shots)).astype(np.int64)
        sign = np.sign(left) * np.sign(right)
        return _shape_like(
            np.clip(answers, FULL_VALUE * np.minimum(sign, 0), FULL_VALUE * np.maximum(sign, 0)), left.shape
        )

    def analogue_product(self, a: npt.ArrayLike, b: npt.ArrayLike, *, shots: int | None = None) -> Floats:
        """Return the product of `multiply` before rounding and clipping, in units of 1/255.

        Noise may push it out of range.
        """
        left, right = self._broadcast(a, b)
        values = np.zeros((left.size, MODULATOR_COUNT), dtype=np.int64)
        values[:, 0], values[:, 1] = np.abs(left).ravel(), np.abs(right).ravel()
        sign = np.sign(left) * np.sign(right)
        product: Floats = sign * self.measure(values, shots=shots).reshape(left.shape)
        return product

    def multiply_accumulate(self, a: npt.ArrayLike, b: npt.ArrayLike, *, shots: int | None = None) -> Any:
        """Return (a[..., 0]*b[..., 0] + a[..., 1]*b[..., 1]) / 255, rounded, from -510 to 510.

        The result is an int for one sum, an int64 array for several. Raise `OutOfRange` for other shapes or values.
        """
        sums = self.analogue_sum(a, b, shots=shots)
        answers = np.clip(np.rint(sums).astype(np.int64), -2 * FULL_VALUE, 2 * FULL_VALUE)
        return _shape_like(answers, sums.shape)

    def analogue_sum(self, a: npt.ArrayLike, b: npt.ArrayLike, *, shots: int | None = None) -> Floats:
        """Return the sum of `multiply_accumulate` before rounding, in units of 1/255."""
        left, right = self._broadcast(a, b)
        if not left.ndim or left.shape[-1] != 2:
            raise errors.OutOfRange(
                "sums are of two products, so operands must end in an axis of 2; these have the shape "
                f"{left.shape}"
            )
        pairs = np.stack([left, right], axis=-1).reshape(-1, 2, 2)
        sign = np.sign(pairs).prod(axis=2)
        positive = self._measure_masked(pairs, sign > 0, shots)
        negative = self._measure_masked(pairs, sign < 0, shots)
        total: Floats = (positive - negative).reshape(left.shape[:-1])
        return total

    @property
    def vectors(self) -> VectorCore:
        """The vector core on the same device and calibration, cached so that it is tuned only once."""
        from lightning.kit.dot.core import VectorCore

        if self._vectors is None or self._vectors.calibration is not self.calibration:
            self._vectors = VectorCore(self.device, self.calibration)
        return self._vectors

    def dot(self, weights: npt.ArrayLike, inputs: npt.ArrayLike, *, shots: int | None = None) -> Any:
        """Return the dot product of two vectors, divided by 255. See `VectorCore.dot`."""
        return self.vectors.dot(weights, inputs, shots=self.shots if shots is None else shots)

    def matvec(self, matrix: npt.ArrayLike, vector: npt.ArrayLike, *, shots: int | None = None) -> Integers:
        """Return matrix (m, n) times vector (n,), divided by 255, (m,). See `VectorCore.matvec`."""
        return self.vectors.matvec(matrix, vector, shots=self.shots if shots is None else shots)

    def measure(self, values: npt.ArrayLike, *, shots: int | None = None) -> Floats:
        """Return v0*v1 + v2*v3 in units of 1/255, (n,), unrounded, for (n, 4) values of 0..255.

        Like all methods that measure, warn with `SaturationWarning` if there was too much light, and with `DarkWarning`
        if light was expected and none arrived. Raise `OutOfRange` for other values.
        """
        if not len(np.atleast_1d(values)):
            return np.zeros(0)
        words = self.calibration.look_up_words(values)
        readings = self.rows.read(words, shots=self.shots if shots is None else shots)
        answers = self.calibration.decode_table(readings.levels, values)
        is_saturated = self.calibration.find_saturated(readings.levels + readings.idle_level, answers, values)
        if is_saturated.any():
            errors.warn_of_saturation(self.calibration.device, int(is_saturated.sum()))
        if (is_dark := self.calibration.find_dark(answers, values)).any():
            errors.warn_of_darkness(self.calibration.device, int(is_dark.sum()))
        return answers

    def decode(self, level: float, values: dict[int, int], *, peak: float | None = None) -> DecodedLevel:
        """Return the result of a level in counts above idle, for these values per generator."""
        return self.calibration.decode(level, values, peak=peak)

    def _broadcast(self, a: npt.ArrayLike, b: npt.ArrayLike) -> tuple[Integers, Integers]:
        """Return both operands as integers, broadcast to one shape. Raise `OutOfRange` if that fails."""
        device = self.calibration.device
        left, right = _check_operands(a, device), _check_operands(b, device)
        try:
            broadcast_left, broadcast_right = np.broadcast_arrays(left, right)
        except ValueError:
            raise errors.OutOfRange(
                f"operands of shapes {left.shape} and {right.shape} do not match",
                device=device,
                hint="Give equally many of both, or a single number",
            ) from None
        return broadcast_left, broadcast_right

    def _measure_masked(self, pairs: Integers, mask: npt.NDArray[np.bool_], shots: int | None) -> Floats:
        """Return the sums (n,) of those products of (n, 2, 2) operands that `mask` (n, 2) selects."""
        values = (np.abs(pairs) * mask[:, :, None]).reshape(-1, MODULATOR_COUNT)
        has_product = mask.any(axis=1)
        sums = np.zeros(len(pairs))
        if has_product.any():
            sums[has_product] = self.measure(values[has_product], shots=shots)
        return sums


def _connect(device: Any) -> Any:
    if not isinstance(device, str):
        return device
    from lightning.kit.connection import connect

    return connect(device)


def _make_reader(device: Any, calibration: Calibration, window_length: int | None) -> TableReader:
    channel_0, channel_1, channel_2, channel_3 = (modulator.channel for modulator in calibration.modulators)
    length = Window().length if window_length is None else window_length
    return TableReader(
        device,
        channels=(channel_0, channel_1, channel_2, channel_3),
        readout=calibration.readout,
        window=Window.for_arrival(calibration.timing.arrival, length=length),
    )


def _check_operands(values: npt.ArrayLike, device: str) -> Integers:
    """Return the operands as integers. Raise `OutOfRange` with the first invalid operand."""
    try:
        array = np.asarray(values)
    except ValueError:  # rows of unequal lengths
        raise _make_operand_error(values, device) from None
    if not array.size:
        return np.zeros(array.shape, dtype=np.int64)
    if array.dtype.kind not in "biuf":
        raise _make_operand_error(
            next(
                (number for number in array.flat if not isinstance(number, int) or abs(number) > FULL_VALUE),
                values,
            ),
            device,
        )
    invalid_mask = ~((np.abs(array.astype(float)) <= FULL_VALUE) & (array == np.rint(array.astype(float))))
    if invalid_mask.any():
        raise _make_operand_error(array[invalid_mask][0], device)
    return array.astype(np.int64)


def _make_operand_error(value: Any, device: str) -> errors.OutOfRange:
    plain_value = value.item() if isinstance(value, np.generic) else value
    return errors.OutOfRange(
        f"{plain_value!r:.60} is not a valid operand: these are whole numbers of -255 to 255",
        device=device,
        hint="Scale or round it first",
    )


def _shape_like(answers: Integers, shape: tuple[int, ...]) -> Any:
    """Return an int if the operands were plain numbers, otherwise the array."""
    return int(answers.reshape(-1)[0]) if shape == () else answers
