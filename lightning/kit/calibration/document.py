"""The calibration of one device: its data, and the encoding and decoding of values with it.

A `Calibration` is plain numbers in frozen dataclasses; `form` converts it to and from JSON. `Calibration.check` says
which calibration is valid for which device.
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
from lightning.kit.calibration.decoder import FULL, Decoded, Decoder, round_products
from lightning.kit.calibration.encoder import Encoder
from lightning.kit.calibration.fringe import Floats, Fringe
from lightning.kit.calibration.noise import NoiseModel
from lightning.kit.settings import MODULATORS, Settings

MAX_AGE = timedelta(hours=24)
"""A bias drifts by a fraction of V_pi in hours, so a calibration older than a day is not valid."""
CLOCKS_APART = timedelta(minutes=10)
"""Largest accepted difference between the clocks of two machines."""
BEYOND = 10.0
"""Of 255. Noise and the errors of a good calibration leave a result nearer to the range than this."""
WELL_LIT, UNLIT = 16.0, 1.0
"""Of 255. A product of at least the first that is decoded as the second or less got no light: noise is a tenth of the
difference."""
AT_END = 0.999
"""Share of the converter's full scale from which a plateau counts as clipped."""
HINT = "run `lightning calibrate` with this device"


@dataclass(frozen=True, slots=True)
class Modulator:
    """One modulator: its transfer curve, and the gain words of its values."""

    channel: int
    """Generator that drives it."""
    curve: Fringe
    encoder: Encoder
    shared: Encoder
    """Like `encoder`, but opened less far, for rows in which both pairs are lit."""
    partner_share: float
    """How far its partner was open while the curve was swept, 0..1."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Arrival of the light of a pulse, in ticks of the readout (decimated samples) after the pulse's time."""

    arrival: tuple[float, float, float, float]
    """Arrival of each modulator's edge at the readout."""
    tick_ns: float
    offset_trigger: int
    """Trigger offset that `lightning` uses so that a window lies inside the pulses."""

    @property
    def skew_ns(self) -> tuple[float, float]:
        """Return how much later the second modulator of each pair acts than the first, in ns."""
        first, second, third, fourth = self.arrival
        return (second - first) * self.tick_ns, (fourth - third) * self.tick_ns


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one step of the guided run."""

    step: str
    passed: bool
    figure: str
    """The measured value, with its unit."""
    limit: str
    """The value that was required."""
    hint: str
    """What to do if it failed; empty if it passed."""
    skipped: bool = False
    """The instrument is missing; `hint` may say how to do the step by hand."""


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

    def words(self, values: Mapping[int, int]) -> dict[int, int]:
        """Return the gain word per generator for a value (0..255) per generator; generators not named get value 0.

        Raise `OutOfRange` for a value outside 0..255, or for a generator that drives no modulator.
        """
        words = self.word_table(self._row(values))[0]
        return {m.channel: int(word) for m, word in zip(self.modulators, words, strict=True)}

    def word_table(self, values: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the gain words for (n, 4) values of 0..255, in the order of the modulators, (n, 4)."""
        return self._table(values, lambda encoder: encoder.words)

    def operands(self, values: npt.ArrayLike) -> Floats:
        """Return the operands (0..1) that the words of `word_table` give after rounding, (n, 4)."""
        return self._table(values, lambda encoder: encoder.operands)

    def _table(
        self, values: npt.ArrayLike, column: Callable[[Encoder], npt.NDArray[Any]]
    ) -> npt.NDArray[Any]:
        """Return a column of each modulator's encoder at (n, 4) values: the shared one where both pairs are lit."""
        rows = _valid(values)
        both = _lit_pairs(rows).all(axis=1)
        columns = [
            np.where(both, column(m.shared)[rows[:, i]], column(m.encoder)[rows[:, i]])
            for i, m in enumerate(self.modulators)
        ]
        return np.stack(columns, axis=1)

    def decode_table(self, levels: npt.ArrayLike, values: npt.ArrayLike) -> Floats:
        """Return the analogue results in units of 1/255, (n,), for (n,) counts above idle at (n, 4) values."""
        return self.decoder.decode(levels, self.operands(values), _lit_pairs(_valid(values)))

    def decode(self, level: float, values: Mapping[int, int], *, peak: float | None = None) -> Decoded:
        """Return the decoded result of one measurement.

        `level` is peak minus floor in counts of the readout (mean I of the plateau less mean I of the idle
        line), `values` the value per generator, `peak` the plateau itself, which shows saturation (default: `level`).
        """
        row = self._row(values)
        analogue = float(self.decode_table([level], row)[0])
        both = bool(_lit_pairs(row).all())
        return Decoded(
            value=int(round_products(analogue, products=2 if both else 1)),
            analogue=analogue,
            saturated=bool(self.find_saturated([level if peak is None else peak], [analogue], row)[0]),
            dark=bool(self.dark([analogue], row)[0]),
        )

    def find_saturated(
        self, peaks: npt.ArrayLike, analogue: npt.ArrayLike, values: npt.ArrayLike
    ) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows with too much light, (n,): the converter clipped, or the result is out of range.

        `peaks` (n,) are plateaus in counts, idle level included, `analogue` (n,) the results decoded from them, and
        `values` (n, 4) their values.
        """
        at_end = np.abs(np.asarray(peaks, dtype=float)) >= AT_END * self.decoder.full_scale
        products = np.where(_lit_pairs(_valid(values)).all(axis=1), 2, 1)
        beyond = np.asarray(analogue, dtype=float) > products * FULL + BEYOND
        too_bright: npt.NDArray[np.bool_] = at_end | beyond
        return too_bright

    def dark(self, analogue: npt.ArrayLike, values: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows without light, (n,): a result of about 0 where the products are well above 0."""
        v = _valid(values)
        expected = (v[:, 0] * v[:, 1] + v[:, 2] * v[:, 3]) / FULL
        no_light: npt.NDArray[np.bool_] = (expected >= WELL_LIT) & (np.asarray(analogue) <= UNLIT)
        return no_light

    def check(self, device: str, *, now: datetime, max_age: timedelta | None = MAX_AGE) -> None:
        """Raise `ForeignCalibration` if it belongs to another device, `StaleCalibration` if it is too old.

        Raise `CalibrationError` if it is dated more than `CLOCKS_APART` in the future. With `max_age` None its date is
        not checked: a twin starts afresh with every connection, so the calibration that it delivers does not age.
        """
        if device != self.device:
            raise errors.ForeignCalibration(
                f"this calibration is for {self.device}; it is not valid for another device",
                device=device,
                hint=HINT,
            )
        if max_age is not None:
            self._check_time(now, max_age)

    def _check_time(self, now: datetime, max_age: timedelta) -> None:
        age = now - self.made
        if age < -CLOCKS_APART:
            raise errors.CalibrationError(
                (
                    f"this calibration is dated {self.made.isoformat(timespec='seconds')}, in the future, so its "
                    "age is unknown"
                ),
                device=self.device,
                hint=f"set this machine's clock, or {HINT}",
            )
        if age > max_age:
            raise errors.StaleCalibration(
                (
                    f"this calibration is {age / timedelta(hours=1):.1f} h old; it is valid for "
                    f"{max_age / timedelta(hours=1):.1f} h, before the biases drift"
                ),
                device=self.device,
                hint=HINT,
            )

    @property
    def kind(self) -> str:
        """Its origin in words: "factory calibration" or "calibration"."""
        return "factory calibration" if self.origin == "factory" else "calibration"

    def describe(self) -> str:
        """Return one line for a person: origin, device, date, and whether the device is simulated."""
        suffix = " (SIMULATED device)" if self.simulated else ""
        return f"{self.kind} of {self.device}, made {self.made.isoformat(timespec='seconds')}{suffix}"

    def _row(self, values: Mapping[int, int]) -> npt.NDArray[np.int64]:
        """Return the values per generator as a row in the order of the modulators, (1, 4)."""
        row = np.zeros((1, MODULATORS))
        for channel, value in values.items():
            row[0, self._modulator(channel)] = value
        return _valid(row)

    def _modulator(self, channel: int) -> int:
        for index, modulator in enumerate(self.modulators):
            if modulator.channel == channel:
                return index
        known = ", ".join(str(m.channel) for m in self.modulators)
        raise errors.OutOfRange(f"generator {channel} drives no modulator; those that do are {known}")


def _valid(values: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return the values as integers, (n, 4). Raise `OutOfRange` for another shape or values that are not 0..255."""
    table = np.atleast_2d(np.asarray(values))
    whole = table.astype(np.int64)
    if table.shape[1:] != (MODULATORS,):
        raise errors.OutOfRange(f"values must be rows of {MODULATORS}, not of shape {table.shape}")
    if (whole != table).any() or whole.min(initial=0) < 0 or whole.max(initial=0) > 255:
        raise errors.OutOfRange("values must be integers from 0 to 255; scale or round them first")
    return whole


def _lit_pairs(values: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which pairs have a value above 0, (n, 2); if both do, their sum must fit the converter."""
    return np.stack([values[:, :2].any(axis=1), values[:, 2:].any(axis=1)], axis=1)


def check_is_calibration(given: Any) -> None:
    """Raise `ConfigError` if `given` is neither a `Calibration` nor None."""
    if given is not None and not isinstance(given, Calibration):
        raise ConfigError(
            f"{given!r:.60} is not a valid calibration",
            hint=(
                "Pass what lightning.kit.calibration.load(FILE) returns, or omit it to use the calibration "
                "stored for the device"
            ),
        )


def check_calibrated_channels(calibration: Calibration, settings: Settings) -> None:
    """Raise `WrongChannel` if a value goes to another generator than the one its modulator was calibrated with."""
    for index, channel in settings.driven.items():
        measured = calibration.modulators[index].channel
        if settings.values[index] is not None and channel != measured:
            raise WrongChannel(
                (
                    f"modulator {index} is driven by generator {channel}, but was calibrated with generator "
                    f"{measured}"
                ),
                device=calibration.device,
                hint=f"Set channel_{index} to {measured}, or calibrate again if it was rewired",
            )
