"""Drift: whether a calibration is still valid, and a short recalibration if it is not.

Biases drift with temperature and time. `measure_drift` measures and decodes a few known products. If their error
exceeds a limit, the device needs a new calibration. If only the modulators have drifted, one sweep of each is enough:
the coefficients of detector and extinction remain valid, and the sweeps show how bright the light is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from lightning import errors
from lightning.kit.calibration.decoder import Decoder
from lightning.kit.calibration.document import CALIBRATE_HINT, Calibration, Modulator
from lightning.kit.calibration.encoder import dim_encoder, make_encoder
from lightning.kit.calibration.measurement.pairs import compute_true_sums
from lightning.kit.calibration.measurement.transfer import (
    MAX_RESIDUAL,
    PARTNERS,
    POINT_COUNT,
    RowReader,
    Sweep,
    sweep_modulators,
)

MAX_RMS_ERROR = 1.3
"""Limit of the rms error of the decoded references, in units of 1/255: an accuracy of 99.5 per cent."""
CHECK_INTERVAL_S = 600.0
SHOT_COUNT = 16
_REFERENCE_VALUES = (0, 64, 128, 192, 255)
REFERENCE_ROWS = np.array(
    [[a, b, 0, 0] for a in _REFERENCE_VALUES for b in _REFERENCE_VALUES]
    + [[0, 0, a, b] for a in _REFERENCE_VALUES for b in _REFERENCE_VALUES]
)
"""(50, 4) values whose products are known."""

BRIGHTEST_ROW = np.full((1, 4), 255)
"""The sum of two full products: of all rows it is the first to clip at the converter."""


@dataclass(frozen=True, slots=True)
class Drift:
    """Errors of the reference products, in units of 1/255."""

    rms_error: float
    """Root mean square error."""
    mean_error: float
    max_error: float
    """Largest magnitude of an error."""
    rms_error_limit: float
    """The limit of `rms_error`."""

    @property
    def needs_recalibration(self) -> bool:
        """True if the device needs a new calibration."""
        return self.rms_error > self.rms_error_limit

    def __str__(self) -> str:
        """Return one line for a person."""
        verdict = (
            f"above the limit of {self.rms_error_limit:.2f}: {CALIBRATE_HINT}"
            if self.needs_recalibration
            else "within the limit"
        )
        return (
            f"references are off by {self.rms_error:.2f} of 255 rms (mean {self.mean_error:+.2f}), {verdict}"
        )


def measure_drift(
    reader: RowReader,
    calibration: Calibration,
    *,
    rms_error_limit: float = MAX_RMS_ERROR,
    shots: int = SHOT_COUNT,
) -> Drift:
    """Measure the reference products with this calibration, and return their errors."""
    words = calibration.look_up_words(REFERENCE_ROWS)
    readings = reader.read(words, shots=shots)
    deviations = calibration.decode_table(readings.levels, REFERENCE_ROWS) - compute_true_sums(REFERENCE_ROWS)
    return Drift(
        float(np.sqrt(np.mean(deviations**2))),
        float(deviations.mean()),
        float(np.abs(deviations).max()),
        rms_error_limit,
    )


class Monitor:
    """Periodic check of the reference products while a device is in use.

    Call `inspect` between measurements. It measures at the first call and then every `interval_s`. It raises
    `StaleCalibration` if the device has drifted. `last_drift` is the newest result.
    """

    def __init__(
        self,
        reader: RowReader,
        calibration: Calibration,
        *,
        interval_s: float = CHECK_INTERVAL_S,
        rms_error_limit: float = MAX_RMS_ERROR,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rows = reader
        self.calibration = calibration
        self.interval_s = interval_s
        self.limit = rms_error_limit
        self.last_drift: Drift | None = None
        self._clock = clock
        self._next_check_s = clock()

    def inspect(self) -> Drift | None:
        """Measure if it is time, and return the newest result. Raise `StaleCalibration` if the device has drifted."""
        if self._clock() >= self._next_check_s:
            self.last_drift = measure_drift(self.rows, self.calibration, rms_error_limit=self.limit)
            self._next_check_s = self._clock() + self.interval_s
        if self.last_drift is not None and self.last_drift.needs_recalibration:
            raise errors.StaleCalibration(
                f"the device has drifted: known products come out wrong by {self.last_drift.rms_error:.2f} of 255"
                f" (limit {self.limit:.2f})",
                device=self.calibration.device,
                hint=f"{CALIBRATE_HINT}; if only the biases moved, `recalibrate` needs one sweep per modulator",
            )
        return self.last_drift


def recalibrate(
    reader: RowReader, calibration: Calibration, *, point_count: int = POINT_COUNT, shots: int = 4
) -> Calibration:
    """Sweep each modulator once, and return the calibration with new curves, words and gains.

    Raise `CalibrationError` if a full calibration is needed: a modulator shows no fringe, a curve's residual exceeds
    `MAX_RESIDUAL` (a converter or an amplifier clips), or known products are still wrong afterwards.
    """
    curves = [modulator.curve for modulator in calibration.modulators]
    try:
        sweeps = sweep_modulators(reader, curves, point_count=point_count, shots=shots)
        if dark_modulators := [index for index, sweep in sweeps.items() if not sweep.is_visible]:
            raise ValueError(f"no light responds to modulators {dark_modulators}")
        if (largest_residual := max(sweep.residual for sweep in sweeps.values())) > MAX_RESIDUAL:
            raise ValueError(
                f"a curve misses its points by {largest_residual:.2%} of the swing; the limit is {MAX_RESIDUAL:.1%}"
            )
        modulator_0, modulator_1, modulator_2, modulator_3 = (
            _refresh_modulator(modulator, sweeps, index)
            for index, modulator in enumerate(calibration.modulators)
        )
    except ValueError as error:
        raise errors.CalibrationError(
            f"the sweeps show no clean fringe ({error})", device=calibration.device, hint=CALIBRATE_HINT
        ) from error
    modulators = (modulator_0, modulator_1, modulator_2, modulator_3)
    decoder = _rescale_decoder(calibration, modulators)
    new_calibration = replace(
        calibration, modulators=modulators, decoder=decoder, made=datetime.now(UTC), origin="measured"
    )
    # A reference lights only one pair. The brightest sum, with both pairs lit, shows whether two full products clip.
    drift = measure_drift(reader, new_calibration)
    brightest_readings = reader.read(new_calibration.look_up_words(BRIGHTEST_ROW), shots=SHOT_COUNT)
    missing_sum = float(
        compute_true_sums(BRIGHTEST_ROW)[0]
        - new_calibration.decode_table(brightest_readings.levels, BRIGHTEST_ROW)[0]
    )
    if drift.needs_recalibration or abs(missing_sum) > 2 * drift.rms_error_limit:
        raise errors.CalibrationError(
            (
                f"after new sweeps, known products are still off by {drift.rms_error:.2f} of 255 rms (limit "
                f"{drift.rms_error_limit:.2f}), and the brightest sum lacks {missing_sum:.1f} (limit "
                f"{2 * drift.rms_error_limit:.1f})"
            ),
            device=new_calibration.device,
            hint=CALIBRATE_HINT,
        )
    return new_calibration


def _refresh_modulator(old_modulator: Modulator, sweeps: dict[int, Sweep], index: int) -> Modulator:
    """Return the modulator with the new curve. In sums it opens to the same share of its range as before."""
    sweep, partner = sweeps[index], sweeps[PARTNERS[index]]
    full_encoder = make_encoder(sweep.curve)
    old_encoder, old_shared_encoder = old_modulator.encoder, old_modulator.shared
    shared_range_factor = (old_shared_encoder.top - old_shared_encoder.floor) / (
        old_encoder.top - old_encoder.floor
    )
    shared_encoder = (
        full_encoder
        if shared_range_factor > 1 - 1e-9
        else dim_encoder(sweep.curve, full_encoder, shared_range_factor)
    )
    partner_share = float(partner.curve.compute_share(sweep.partner_word))
    return replace(
        old_modulator,
        curve=sweep.curve,
        encoder=full_encoder,
        shared=shared_encoder,
        partner_share=partner_share,
    )


def _rescale_decoder(calibration: Calibration, new_modulators: tuple[Modulator, ...]) -> Decoder:
    """Return the decoder with gains and leaks scaled to the brightness of the new sweeps."""
    old_modulators, decoder = calibration.modulators, calibration.decoder
    ratios = []
    for pair in (0, 1):
        pair_ratios = [
            _compute_brightness(new_modulators[index]) / _compute_brightness(old_modulators[index])
            for index in (2 * pair, 2 * pair + 1)
        ]
        ratios.append(float(np.mean(pair_ratios)))
    leak = [decoder.leak[index] * ratios[index // 2] for index in range(4)]
    return replace(
        decoder,
        gain=(decoder.gain[0] * ratios[0], decoder.gain[1] * ratios[1]),
        leak=(leak[0], leak[1], leak[2], leak[3]),
        shared=decoder.shared * float(np.mean(ratios)),
    )


def _compute_brightness(modulator: Modulator) -> float:
    """Return the amplitude of this modulator's pair with both modulators fully open, in counts."""
    return modulator.curve.amplitude / max(modulator.partner_share, 1e-6)
