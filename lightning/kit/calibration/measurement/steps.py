"""The steps of the guided run. Each returns pass or fail, the measured figure, the limit and a hint.

A step is a function of the `Bench`, which holds the results of earlier steps. If its instrument is missing, a step is
skipped, and its hint says how to do it by hand. A failed step ends the run if later steps depend on its result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from lightning.kit.calibration.decoder import compute_accuracy, round_products
from lightning.kit.calibration.document import Outcome
from lightning.kit.calibration.measurement import pairs
from lightning.kit.calibration.measurement.alignment import (
    BRIGHTNESS_RANGE,
    check_polarisation,
    measure_delay,
    measure_light,
    set_bias_points,
    switch_laser_on,
)
from lightning.kit.calibration.measurement.bench import Bench, clip_word, make_outcome
from lightning.kit.calibration.measurement.transfer import MAX_RESIDUAL, RowReader, sweep_modulators
from lightning.kit.calibration.noise import NoiseModel, fit_noise

__all__ = ["REQUIRED_STEPS", "STEPS", "Bench", "Step", "measure_delay", "measure_light"]

MAX_SUM_LOSS = 0.01
"""If the sum of two products falls short by more than this share, the converter clips."""
MIN_ACCURACY_PERCENT = 99.7
"""Minimum accuracy on products outside the training data."""
MAX_NOISE = 4.0
"""Greatest rms noise of one decimated sample, in units of 1/255."""

Step = Callable[[Bench], Outcome]

REQUIRED_STEPS = frozenset({"delay", "light", "transfer", "gain", "decoder"})
"""Steps whose results later steps depend on."""
LEVEL_COUNT = 24
READING_COUNT = 199
"""Readings per level. Not a multiple of four, so that no dither adds to the noise."""


def measure_transfer(bench: Bench) -> Outcome:
    """Measure the curve of every modulator at 256 points, and compare it with polynomials through the same points."""
    bench.sweeps = sweep_modulators(bench.make_reader(), bench.rough_curves, shots=bench.shots)
    for index, sweep in bench.sweeps.items():
        bench.raw_data[f"sweep_{index}_words"] = sweep.words
        bench.raw_data[f"sweep_{index}_levels"] = sweep.levels
    largest_residual = max(sweep.residual for sweep in bench.sweeps.values())
    polynomial_residual = max(sweep.polynomial_residual() for sweep in bench.sweeps.values())
    chebyshev_residual = max(sweep.chebyshev_residual() for sweep in bench.sweeps.values())
    return make_outcome(
        "transfer",
        largest_residual <= MAX_RESIDUAL,
        f"residuals {largest_residual:.3%} of the swing (polynomial of degree 2: {polynomial_residual:.2%},"
        f" Chebyshev of degree 3: {chebyshev_residual:.2%})",
        f"{MAX_RESIDUAL:.1%} or less",
        "check that no amplifier clips and nobody touches the fibres; raise the number of shots",
    )


def measure_saturation(bench: Bench) -> Outcome:
    """Measure the converter's full scale, and check that the levels of two products add up below it."""
    peaks = [clip_word(sweep.curve.peak) for _, sweep in sorted(bench.sweeps.items())]
    nulls = [clip_word(sweep.curve.null) for _, sweep in sorted(bench.sweeps.items())]
    words = np.array([[*peaks[:2], *nulls[2:]], [*nulls[:2], *peaks[2:]], peaks, nulls])
    readings = bench.make_reader().read(words, shots=4 * bench.shots)
    first_pair, second_pair, both_pairs, no_pair = (float(level) for level in readings.levels)
    bench.idle_level = readings.idle_level
    missing_share = 1 - (both_pairs - no_pair) / (first_pair + second_pair - 2 * no_pair)
    if missing_share > MAX_SUM_LOSS:
        bench.full_scale = min(bench.full_scale, both_pairs + readings.idle_level)
    max_filled_share = (max(first_pair, second_pair) + readings.idle_level) / bench.full_scale
    return make_outcome(
        "saturation",
        max_filled_share <= BRIGHTNESS_RANGE[1],
        f"a full product fills {max_filled_share:.1%} of the range;"
        f" the sum of both lacks {max(missing_share, 0.0):.1%}",
        f"one product within {BRIGHTNESS_RANGE[1]:.0%} (sums that exceed the range are dimmed)",
        "lower the laser's power or the amplifier's gain",
    )


def compute_gain_words(bench: Bench) -> Outcome:
    """Compute the gain words for all values. In sums both products get the same weight."""
    bench.encoders = pairs.make_encoders(
        bench.sweeps, full_scale=bench.full_scale, idle_level=bench.idle_level
    )
    full_product_levels = [pairs.compute_pair_strength(bench.sweeps, pair) for pair in (0, 1)]
    smallest_range_share = min(bench.encoders.range_shares)
    return make_outcome(
        "gain",
        smallest_range_share >= 0.2,
        f"full products bring {full_product_levels[0]:.0f} and {full_product_levels[1]:.0f} counts; in sums they"
        " are dimmed to"
        f" {bench.encoders.range_shares[0]:.1%} and {bench.encoders.range_shares[1]:.1%}",
        "no product dimmed below 20 %",
        "make both pairs equally bright: check the connectors, and the power of both wavelengths",
    )


def train_decoder(bench: Bench) -> Outcome:
    """Fit the decoder to random pairs, and validate it on 256 other pairs of the first product."""
    assert bench.encoders is not None
    reader = bench.make_reader()
    bench.decoder, training_rows = pairs.train_decoder(
        reader, bench.encoders, full_scale=bench.full_scale, rng=bench.rng, shots=2 * bench.shots
    )
    bench.raw_data.update(pairs_values=training_rows.values, pairs_levels=training_rows.levels)
    validation_values = np.zeros((256, 4), dtype=np.int64)
    validation_values[:, :2] = bench.rng.integers(0, 256, (256, 2))
    validation_rows = pairs.measure_rows(reader, bench.encoders, validation_values, shots=2 * bench.shots)
    results = bench.decoder.decode(
        validation_rows.levels, validation_rows.operands, validation_rows.is_pair_lit
    )
    accuracy_percent = compute_accuracy(
        round_products(results), validation_values[:, 0], validation_values[:, 1]
    )
    bench.raw_data.update(held_values=validation_values, held_levels=validation_rows.levels)
    bench.conditions["mean_error"] = float(np.mean(results - pairs.compute_true_sums(validation_values)))
    return make_outcome(
        "decoder",
        accuracy_percent >= MIN_ACCURACY_PERCENT,
        f"accuracy {accuracy_percent:.3f} % on 256 products that it was not fitted to",
        f"{MIN_ACCURACY_PERCENT} % or more",
        "check the earlier steps; a device that drifts during the run needs a temperature-controlled bias",
    )


def run_noise_step(bench: Bench) -> Outcome:
    """Measure constant, shot and relative intensity noise from one-sample readings at several levels."""
    assert bench.encoders is not None
    assert bench.decoder is not None
    encoders, mean_error = bench.encoders, float(bench.conditions.get("mean_error", 0.0))
    bench.noise = measure_noise(bench.make_reader(length=1), encoders.look_up_words, mean=mean_error)
    dark_sigma, full_sigma = (
        bench.noise.compute_sigma([0.0, bench.decoder.gain[0]]) * 255 / bench.decoder.gain[0]
    )
    return make_outcome(
        "noise",
        full_sigma <= MAX_NOISE,
        f"one decimated sample: {dark_sigma:.2f} of 255 in the dark, {full_sigma:.2f} at a full product; mean error"
        f" {mean_error:+.2f}",
        f"{MAX_NOISE} of 255 or less",
        "check the laser's RIN and power, and the receiver's supply; average more shots",
    )


STEPS: Mapping[str, Step] = {
    "laser": switch_laser_on,
    "delay": measure_delay,
    "light": measure_light,
    "polarisation": check_polarisation,
    "bias": set_bias_points,
    "transfer": measure_transfer,
    "saturation": measure_saturation,
    "gain": compute_gain_words,
    "decoder": train_decoder,
    "noise": run_noise_step,
}
"""All steps, in the order of the run."""


def measure_noise(
    reader: RowReader, look_up_words: Callable[[npt.ArrayLike], npt.NDArray[np.int64]], *, mean: float = 0.0
) -> NoiseModel:
    """Measure readings at levels from dark to a full product of the first pair; return the noise model.

    `reader` should read windows of one sample. `look_up_words` encodes (n, 4) values.
    """
    values = np.zeros((LEVEL_COUNT, 4), dtype=np.int64)
    values[:, 0], values[:, 1] = np.linspace(0, 255, LEVEL_COUNT).round(), 255
    readings = reader.read(look_up_words(values), shots=READING_COUNT)
    return fit_noise(readings.levels, readings.single_readings.var(axis=1, ddof=1), READING_COUNT, mean=mean)
