"""The calibration of one device: its data, and the encoding and decoding of values with it.

A `Calibration` consists of frozen dataclasses of plain numbers. The module `form` converts it to and from JSON.
`Calibration.check` raises an error if the calibration is not valid for a device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from lightning import errors
from lightning.errors import ConfigError, WrongChannel
from lightning.kit.calibration.decoder import FULL_VALUE, DecodedLevel, Decoder, round_products
from lightning.kit.calibration.encoder import Encoder
from lightning.kit.calibration.fringe import Floats, Fringe
from lightning.kit.calibration.noise import NoiseModel
from lightning.kit.settings import MODULATOR_COUNT, Settings

MAX_AGE = timedelta(hours=24)
"""A bias drifts by a fraction of V_pi in hours, so a calibration older than a day is not valid."""
MAX_CLOCK_DIFFERENCE = timedelta(minutes=10)
"""Largest accepted difference between the clocks of two machines."""
RANGE_MARGIN = 10.0
"""A result this far above its range is saturated, in units of 1/255. Noise and calibration errors are smaller."""
WELL_LIT_PRODUCT, UNLIT_RESULT = 16.0, 1.0
"""A product of at least `WELL_LIT_PRODUCT` that decodes to `UNLIT_RESULT` or less received no light. Both are in units
of 1/255. Noise is a tenth of the difference."""
CLIPPING_SHARE = 0.999
"""A plateau of at least this share of the converter's full scale counts as clipped."""
CALIBRATE_HINT = "run `lightning calibrate` with this device"


@dataclass(frozen=True, slots=True)
class Modulator:
    """One modulator: its transfer curve, and the gain words of its values."""

    channel: int
    """Generator that drives it."""
    curve: Fringe
    encoder: Encoder
    shared: Encoder
    """Encoder for rows in which both pairs of modulators are lit. Its words open the modulator less far."""
    partner_share: float
    """How far the partner was open while the curve was measured, 0..1."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Arrival of the light of a pulse, in ticks of the readout (decimated samples) after the pulse's time."""

    arrival: tuple[float, float, float, float]
    """Arrival of each modulator's edge at the readout."""
    tick_ns: float
    offset_trigger: int
    """Trigger offset that places a window inside the pulses."""

    @property
    def skew_ns(self) -> tuple[float, float]:
        """For each pair, the delay of the second modulator's light relative to the first's, in ns."""
        first_a, first_b, second_a, second_b = self.arrival
        return (first_b - first_a) * self.tick_ns, (second_b - second_a) * self.tick_ns


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one step of the guided run."""

    step: str
    passed: bool
    figure: str
    """The measured value, with its unit."""
    limit: str
    """The required value."""
    hint: str
    """What to do if the step failed; empty if it passed."""
    skipped: bool = False
    """True if the instrument is missing; `hint` may say how to do the step by hand."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The measured properties of one device."""

    device: str
    """Identity of the device."""
    made: datetime
    """Time of the measurement, with its time zone."""
    origin: str
    """"measured" by `lightning calibrate`, or "factory": measured on a nominal device and delivered with a twin."""
    simulated: bool
    readout: int
    modulators: tuple[Modulator, Modulator, Modulator, Modulator]
    decoder: Decoder
    noise: NoiseModel
    timing: Timing
    conditions: Mapping[str, float | str] = field(default_factory=dict)
    outcomes: tuple[Outcome, ...] = ()
    raw: str = ""
    """Name of the raw data file next to the document; empty if there is none."""

    def encode(self, values: Mapping[int, int]) -> dict[int, int]:
        """Return a gain word for each modulator's generator. `values` maps generators to 0..255; the others get 0.

        Raise `OutOfRange` for a value outside 0..255, or for a generator that drives no modulator.
        """
        words = self.look_up_words(self._make_row(values))[0]
        return {modulator.channel: int(word) for modulator, word in zip(self.modulators, words, strict=True)}

    def look_up_words(self, values: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the gain words for (n, 4) values of 0..255, in the order of the modulators, (n, 4)."""
        return self._look_up(values, lambda encoder: encoder.words)

    def compute_operands(self, values: npt.ArrayLike) -> Floats:
        """Return the operands (0..1) that the rounded words of `look_up_words` produce, (n, 4)."""
        return self._look_up(values, lambda encoder: encoder.operands)

    def _look_up(
        self, values: npt.ArrayLike, read_column: Callable[[Encoder], npt.NDArray[Any]]
    ) -> npt.NDArray[Any]:
        """Return one column of the encoders for (n, 4) values, (n, 4). Rows with both pairs lit use `shared`."""
        rows = _check_values(values)
        is_both_lit = _find_lit_pairs(rows).all(axis=1)
        columns = [
            np.where(
                is_both_lit,
                read_column(modulator.shared)[rows[:, index]],
                read_column(modulator.encoder)[rows[:, index]],
            )
            for index, modulator in enumerate(self.modulators)
        ]
        return np.stack(columns, axis=1)

    def decode_table(self, levels: npt.ArrayLike, values: npt.ArrayLike) -> Floats:
        """Return the analogue results in units of 1/255, (n,), for (n,) counts above idle at (n, 4) values."""
        return self.decoder.decode(
            levels, self.compute_operands(values), _find_lit_pairs(_check_values(values))
        )

    def decode(self, level: float, values: Mapping[int, int], *, peak: float | None = None) -> DecodedLevel:
        """Return the decoded result of one measurement.

        `level` is the mean of I (the in-phase samples) over the plateau minus their mean over the idle line, in counts
        of the readout. `values` maps generators to values. `peak` is the plateau including the idle level; it shows
        saturation (default: `level`).
        """
        row = self._make_row(values)
        analogue = float(self.decode_table([level], row)[0])
        is_both_lit = bool(_find_lit_pairs(row).all())
        return DecodedLevel(
            value=int(round_products(analogue, product_count=2 if is_both_lit else 1)),
            analogue_result=analogue,
            is_saturated=bool(self.find_saturated([level if peak is None else peak], [analogue], row)[0]),
            is_dark=bool(self.find_dark([analogue], row)[0]),
        )

    def find_saturated(
        self, peaks: npt.ArrayLike, analogue_results: npt.ArrayLike, values: npt.ArrayLike
    ) -> npt.NDArray[np.bool_]:
        """Return a mask (n,) of the rows with too much light: the converter clipped, or the result is out of range.

        `peaks` (n,) are plateaus in counts, including the idle level. `analogue_results` (n,) are the decoded results,
        and `values` (n, 4) the values sent.
        """
        is_clipped = np.abs(np.asarray(peaks, dtype=float)) >= CLIPPING_SHARE * self.decoder.full_scale
        product_counts = np.where(_find_lit_pairs(_check_values(values)).all(axis=1), 2, 1)
        is_above_range = (
            np.asarray(analogue_results, dtype=float) > product_counts * FULL_VALUE + RANGE_MARGIN
        )
        is_saturated: npt.NDArray[np.bool_] = is_clipped | is_above_range
        return is_saturated

    def find_dark(self, analogue_results: npt.ArrayLike, values: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Return a mask (n,) of the rows without light: the result is about 0, but the products are well above 0."""
        v = _check_values(values)
        expected_results = (v[:, 0] * v[:, 1] + v[:, 2] * v[:, 3]) / FULL_VALUE
        is_dark: npt.NDArray[np.bool_] = (expected_results >= WELL_LIT_PRODUCT) & (
            np.asarray(analogue_results) <= UNLIT_RESULT
        )
        return is_dark

    def check(self, device: str, *, now: datetime, max_age: timedelta | None = MAX_AGE) -> None:
        """Raise `ForeignCalibration` for another device, `StaleCalibration` if the calibration is too old.

        Raise `CalibrationError` if it is dated more than `MAX_CLOCK_DIFFERENCE` in the future. `max_age` None skips
        the date check: a twin starts afresh with every connection, so its own calibration does not age.
        """
        if device != self.device:
            raise errors.ForeignCalibration(
                f"this calibration is for {self.device}; it is not valid for another device",
                device=device,
                hint=CALIBRATE_HINT,
            )
        if max_age is not None:
            self._check_time(now, max_age)

    def _check_time(self, now: datetime, max_age: timedelta) -> None:
        age = now - self.made
        if age < -MAX_CLOCK_DIFFERENCE:
            raise errors.CalibrationError(
                (
                    f"this calibration is dated {self.made.isoformat(timespec='seconds')}, in the future, so its "
                    "age is unknown"
                ),
                device=self.device,
                hint=f"set this machine's clock, or {CALIBRATE_HINT}",
            )
        if age > max_age:
            raise errors.StaleCalibration(
                (
                    f"this calibration is {age / timedelta(hours=1):.1f} h old; it is valid for "
                    f"{max_age / timedelta(hours=1):.1f} h, because the biases drift"
                ),
                device=self.device,
                hint=CALIBRATE_HINT,
            )

    @property
    def kind(self) -> str:
        """The origin in words: "factory calibration" or "calibration"."""
        return "factory calibration" if self.origin == "factory" else "calibration"

    def describe(self) -> str:
        """Return one line for a person: origin, device, date, and whether the device is simulated."""
        suffix = " (SIMULATED device)" if self.simulated else ""
        return f"{self.kind} of {self.device}, made {self.made.isoformat(timespec='seconds')}{suffix}"

    def _make_row(self, values: Mapping[int, int]) -> npt.NDArray[np.int64]:
        """Return the values per generator as a row in the order of the modulators, (1, 4)."""
        row = np.zeros((1, MODULATOR_COUNT))
        for channel, value in values.items():
            row[0, self._find_modulator(channel)] = value
        return _check_values(row)

    def _find_modulator(self, channel: int) -> int:
        for index, modulator in enumerate(self.modulators):
            if modulator.channel == channel:
                return index
        known_channels = ", ".join(str(modulator.channel) for modulator in self.modulators)
        raise errors.OutOfRange(
            f"generator {channel} drives no modulator; those that do are {known_channels}"
        )


def _check_values(values: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return the values as integers, (n, 4). Raise `OutOfRange` for another shape, or values outside 0..255."""
    table = np.atleast_2d(np.asarray(values))
    integers = table.astype(np.int64)
    if table.shape[1:] != (MODULATOR_COUNT,):
        raise errors.OutOfRange(f"values must be rows of {MODULATOR_COUNT}, not of shape {table.shape}")
    if (integers != table).any() or integers.min(initial=0) < 0 or integers.max(initial=0) > 255:
        raise errors.OutOfRange("values must be integers from 0 to 255; scale or round them first")
    return integers


def _find_lit_pairs(values: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return a mask (n, 2) of the pairs with a value above 0. If both are lit, their sum must fit the converter."""
    return np.stack([values[:, :2].any(axis=1), values[:, 2:].any(axis=1)], axis=1)


def check_is_calibration(value: Any) -> None:
    """Raise `ConfigError` if `value` is neither a `Calibration` nor None."""
    if value is not None and not isinstance(value, Calibration):
        raise ConfigError(
            f"{value!r:.60} is not a valid calibration",
            hint=(
                "Pass what lightning.kit.calibration.load(FILE) returns, or omit it to use the calibration "
                "stored for the device"
            ),
        )


def check_calibrated_channels(calibration: Calibration, settings: Settings) -> None:
    """Raise `WrongChannel` if a modulator with a value has another generator than during calibration."""
    for index, channel in settings.channel_by_modulator.items():
        measured_channel = calibration.modulators[index].channel
        if settings.values[index] is not None and channel != measured_channel:
            raise WrongChannel(
                (
                    f"modulator {index} is driven by generator {channel}, but was calibrated with generator "
                    f"{measured_channel}"
                ),
                device=calibration.device,
                hint=f"Set channel_{index} to {measured_channel}, or calibrate again if it was rewired",
            )
