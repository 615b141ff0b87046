"""The guided first run: one step after the other, each with pass or fail, the figure, the limit and the hint.

A step is a function of the `Bench`, which carries what the steps before have found. What a step needs an instrument
for, and the instrument is not there, is skipped and says how to do it by hand; what fails ends the run where the
later steps would have nothing to stand on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from lightning.kit.calibration.decoder import accuracy, round_products
from lightning.kit.calibration.document import Outcome
from lightning.kit.calibration.measurement import pairs
from lightning.kit.calibration.measurement.alignment import (
    BRIGHT,
    bias_point,
    delay,
    laser,
    light,
    polarisation,
)
from lightning.kit.calibration.measurement.bench import Bench, judge, word
from lightning.kit.calibration.measurement.transfer import RESIDUAL, Rows, sweep_all
from lightning.kit.calibration.noise import NoiseModel, fit_noise

__all__ = ["NEEDED", "STEPS", "Bench", "Step", "delay", "light"]

ADDITIVE = 0.01
"""By which the sum of two products may fall short before the converter is taken to clip."""
HELD_OUT = 99.7
"""Accuracy in per cent on products that the decoder has not seen."""
NOISY = 4.0
"""Of 255, rms of one decimated sample."""

Step = Callable[[Bench], Outcome]

NEEDED = frozenset({"delay", "light", "transfer", "gain", "decoder"})
"""Without these there is nothing for the later steps to stand on."""
LEVELS = 24
READINGS = 199
"""Per level; no multiple of four, so that no dither adds to the noise."""


def transfer(bench: Bench) -> Outcome:
    """Measure the curve of every modulator from 256 points, against polynomials through the same points."""
    bench.sweeps = sweep_all(bench.reader(), bench.rough, shots=bench.shots)
    for index, sweep in bench.sweeps.items():
        bench.raw[f"sweep_{index}_words"] = sweep.words
        bench.raw[f"sweep_{index}_levels"] = sweep.levels
    worst = max(sweep.residual for sweep in bench.sweeps.values())
    second = max(sweep.polynomial_residual() for sweep in bench.sweeps.values())
    third = max(sweep.chebyshev_residual() for sweep in bench.sweeps.values())
    return judge(
        "transfer",
        worst <= RESIDUAL,
        f"residuals {worst:.3%} of the swing (polynomial of degree 2: {second:.2%},"
        f" Chebyshev of degree 3: {third:.2%})",
        f"{RESIDUAL:.1%} or less",
        "see that no amplifier clips and nobody touches the fibres; raise the number of shots",
    )


def saturation(bench: Bench) -> Outcome:
    """Measure where the converter ends, and that what it sees below that adds up."""
    peaks = [word(sweep.curve.peak) for _, sweep in sorted(bench.sweeps.items())]
    nulls = [word(sweep.curve.null) for _, sweep in sorted(bench.sweeps.items())]
    rows = np.array([[*peaks[:2], *nulls[2:]], [*nulls[:2], *peaks[2:]], peaks, nulls])
    readings = bench.reader().read(rows, shots=4 * bench.shots)
    one, other, both, none = (float(level) for level in readings.levels)
    bench.idle = readings.idle
    missing = 1 - (both - none) / (one + other - 2 * none)
    if missing > ADDITIVE:
        bench.full_scale = min(bench.full_scale, both + readings.idle)
    fullest = (max(one, other) + readings.idle) / bench.full_scale
    return judge(
        "saturation",
        fullest <= BRIGHT[1],
        f"a full product fills {fullest:.1%} of the range; the sum of both lacks {max(missing, 0.0):.1%}",
        f"one product within {BRIGHT[1]:.0%} (where the sum of both is too much, sums are dimmed)",
        "lower the laser's power or the amplifier's gain",
    )


def gain(bench: Bench) -> Outcome:
    """Set the words for all values; in sums both products get the same weight."""
    bench.coded = pairs.encoders(bench.sweeps, full_scale=bench.full_scale, idle=bench.idle)
    strength = [pairs.pair_strength(bench.sweeps, pair) for pair in (0, 1)]
    least = min(bench.coded.factors)
    return judge(
        "gain",
        least >= 0.2,
        f"full products bring {strength[0]:.0f} and {strength[1]:.0f} counts; in sums they are dimmed to"
        f" {bench.coded.factors[0]:.1%} and {bench.coded.factors[1]:.1%}",
        "no product dimmed below 20 %",
        "make both pairs equally bright: see connectors, and the power of both wavelengths",
    )


def decoder(bench: Bench) -> Outcome:
    """Fit the decoder to random pairs, judged on pairs that it has not seen."""
    assert bench.coded is not None
    rows = bench.reader()
    bench.decoder, seen = pairs.train(
        rows, bench.coded, full_scale=bench.full_scale, rng=bench.rng, shots=2 * bench.shots
    )
    bench.raw.update(pairs_values=seen.values, pairs_levels=seen.levels)
    fresh = np.zeros((256, 4), dtype=np.int64)
    fresh[:, :2] = bench.rng.integers(0, 256, (256, 2))
    held = pairs.measure(rows, bench.coded, fresh, shots=2 * bench.shots)
    answers = bench.decoder.decode(held.levels, held.operands, held.lit)
    found = accuracy(round_products(answers), fresh[:, 0], fresh[:, 1])
    bench.raw.update(held_values=fresh, held_levels=held.levels)
    bench.conditions["mean_error"] = float(np.mean(answers - pairs.sum_truth(fresh)))
    return judge(
        "decoder",
        found >= HELD_OUT,
        f"accuracy {found:.3f} % on 256 products that it has not seen",
        f"{HELD_OUT} % or more",
        "see the steps before; a device that drifts meanwhile wants a temperature-controlled bias",
    )


def noise(bench: Bench) -> Outcome:
    """Constant, shot and relative intensity noise, from single readings of one sample at several levels."""
    assert bench.coded is not None
    assert bench.decoder is not None
    coded, mean = bench.coded, float(bench.conditions.get("mean_error", 0.0))
    bench.noise = measure_noise(bench.reader(length=1), coded.word_table, mean=mean)
    dark, full = bench.noise.sigma([0.0, bench.decoder.gain[0]]) * 255 / bench.decoder.gain[0]
    return judge(
        "noise",
        full <= NOISY,
        f"one decimated sample: {dark:.2f} of 255 in the dark, {full:.2f} at a full product; mean error {mean:+.2f}",
        f"{NOISY} of 255 or less",
        "see the laser's RIN and power, and the receiver's supply; average more shots",
    )


STEPS: Mapping[str, Step] = {
    "laser": laser,
    "delay": delay,
    "light": light,
    "polarisation": polarisation,
    "bias": bias_point,
    "transfer": transfer,
    "saturation": saturation,
    "gain": gain,
    "decoder": decoder,
    "noise": noise,
}
"""In the order of the run."""


def measure_noise(
    rows: Rows, word_table: Callable[[npt.ArrayLike], npt.NDArray[np.int64]], *, mean: float = 0.0
) -> NoiseModel:
    """Return the noise of single readings on a device, at levels from dark to a full product of the first pair.

    `rows` should read windows of one sample; `word_table` encodes (n, 4) values.
    """
    values = np.zeros((LEVELS, 4), dtype=np.int64)
    values[:, 0], values[:, 1] = np.linspace(0, 255, LEVELS).round(), 255
    readings = rows.read(word_table(values), shots=READINGS)
    return fit_noise(readings.levels, readings.singles.var(axis=1, ddof=1), READINGS, mean=mean)
