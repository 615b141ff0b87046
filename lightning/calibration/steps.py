"""The guided first run: one step after the other, each with pass or fail, the figure, the limit and the cure.

A step is a function of the `Bench`, which carries what the steps before have found. What a step needs an instrument
for, and the instrument is not there, is skipped and says how to do it by hand; what fails ends the run where the
later steps would have nothing to stand on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from lightning.calibration import bias, pairs, probe
from lightning.calibration.accuracy import accuracy
from lightning.calibration.batch import SETTLE_TICKS
from lightning.calibration.bench import Bench
from lightning.calibration.decoder import rounded
from lightning.calibration.delay import Arrival
from lightning.calibration.document import Outcome
from lightning.calibration.noise import measured_noise
from lightning.calibration.transfer import GUESSES, coarse_peaks, sweep_all

__all__ = ["NEEDED", "STEPS", "Bench", "Step"]

FOUND = 0.9
"""Correlation of the received pattern with the one that was sent."""
APART_TICKS = 10 * SETTLE_TICKS
"""Arrivals that `Window.after` may still bring together by later starts: 0.6 us, or 125 m of fibre."""
VISIBLE = 20.0
"""Swing of a modulator's curve against its residuals."""
BRIGHT = (0.4, 0.98)
"""Share of the converter's range that one full product should fill: below, its steps count; above, noise clips."""
NULL_OFFSET = 0.12
"""Of V_pi, from word 0 to the null: idle light stays below 4 per cent, and words of either sign reach both ends."""
RESIDUAL = 0.005
"""Of the swing, that a curve leaves unexplained: 1.3 of 255."""
ADDITIVE = 0.01
"""By which the sum of two products may fall short before the converter is taken to clip."""
HELD_OUT = 99.7
"""Accuracy in per cent on products that the decoder has not seen."""
NOISY = 4.0
"""Of 255, rms of one decimated sample."""

Step = Callable[[Bench], Outcome]


def laser(bench: Bench) -> Outcome:
    """Switch the laser on, and see that it says so."""
    if bench.instruments.laser is None:
        return Outcome(
            "laser", True, "no laser is connected by VISA", "on", "switch it on by hand", skipped=True
        )
    source = bench.instruments.laser
    if not source.is_on():
        source.turn_on()
    output, wanted = source.output_dbm(), source.power_dbm()
    bench.conditions.update(laser_dbm=output, wavelength_nm=source.wavelength_nm())
    return _judged(
        "laser",
        source.is_on() and output > wanted - 1.0,
        f"{output:.2f} dBm",
        f"within 1 dB of the {wanted:.2f} dBm that are set",
        "see its interlock and its shutter; wait until it has settled",
    )


def delay(bench: Bench) -> Outcome:
    """When light answers to each generator, by the correlation of a pattern."""
    arrivals: list[Arrival] = []
    for index in range(4):
        arrivals.append(_arrival(bench, index))
        if arrivals[-1].quality < FOUND:
            break
    worst = min(arrival.quality for arrival in arrivals)
    spread = float(np.ptp([arrival.ticks for arrival in arrivals]))
    passed = worst >= FOUND and spread <= APART_TICKS
    bench.arrivals = tuple(arrivals) if passed else ()
    return _judged(
        "delay",
        passed,
        f"correlation {worst:.3f}, arrivals {spread:.2f} ticks apart",
        f"correlation of {FOUND} or more, arrivals within {APART_TICKS} ticks",
        "see that the laser is on, the fibres are joined, and each generator drives its modulator;"
        " `lightning scope` shows the waveform",
    )


def light(bench: Bench) -> Outcome:
    """A rough curve of every modulator, with nothing known but when the light comes."""
    bench.rough = coarse_peaks(bench.reader())
    visible = min(curve.amplitude / max(curve.rms, 1e-9) for curve in bench.rough)
    return _judged(
        "light",
        visible >= VISIBLE,
        f"the least visible modulator swings {visible:.0f} times the residuals of its curve",
        f"{VISIBLE:.0f} times or more",
        "see that the laser is on, each modulator has its bias, and its partner opens",
    )


def polarisation(bench: Bench) -> Outcome:
    """Brightness with both modulators of the first pair open; turned to its peak by hand where asked."""
    words = np.array([[*(_word(bench.rough[i].peak) for i in (0, 1)), 0, 0]])
    rows = bench.reader()

    def brightness() -> float:
        return float(rows.read(words, shots=bench.shots).levels[0]) / bench.full_scale

    if bench.turn_paddles is not None:
        bench.turn_paddles(brightness)
    found = brightness()
    bench.conditions["brightness"] = found
    if bench.instruments.meter is not None:
        bench.conditions["meter_dbm"] = bench.instruments.meter.power_dbm()
    return _judged(
        "polarisation",
        found >= BRIGHT[0],
        f"a full product fills {found:.1%} of the converter",
        f"{BRIGHT[0]:.0%} or more",
        "turn the paddles of the polarisation controller until this is greatest (`lightning scope` shows it);"
        " then raise the laser's power or the amplifier's gain",
    )


def bias_point(bench: Bench) -> Outcome:
    """Every modulator at its null with no word: by the supply, or seen from the curves and left to a person."""
    if bench.instruments.bias is not None:
        found = [bias.search(bench.reader(), bench.instruments.bias, index) for index in range(4)]
        for index, point in enumerate(found):
            bench.conditions[f"bias_{index}_v"] = point.null_v
            bench.conditions[f"half_wave_{index}_v"] = point.half_wave_v
        bench.rough = coarse_peaks(bench.reader())
    offsets = [curve.null / curve.half_wave for curve in bench.rough]
    worst = max(offsets, key=abs)
    listed = ", ".join(f"{offset:+.1%}" for offset in offsets)
    return Outcome(
        "bias",
        abs(worst) <= NULL_OFFSET,
        f"nulls lie {listed} of V_pi from word 0",
        f"within {NULL_OFFSET:.0%}",
        ""
        if abs(worst) <= NULL_OFFSET
        else "move each bias by the figure times its V_pi, or connect the supply",
        skipped=bench.instruments.bias is None and abs(worst) <= NULL_OFFSET,
    )


def transfer(bench: Bench) -> Outcome:
    """The curve of every modulator from 256 points, against polynomials through the same points."""
    bench.sweeps = sweep_all(bench.reader(), bench.rough, shots=bench.shots)
    for index, sweep in bench.sweeps.items():
        bench.raw[f"sweep_{index}_words"] = sweep.words
        bench.raw[f"sweep_{index}_levels"] = sweep.levels
    worst = max(sweep.residual for sweep in bench.sweeps.values())
    second = max(sweep.polynomial_residual() for sweep in bench.sweeps.values())
    third = max(sweep.chebyshev_residual() for sweep in bench.sweeps.values())
    return _judged(
        "transfer",
        worst <= RESIDUAL,
        f"residuals {worst:.3%} of the swing (polynomial of degree 2: {second:.2%},"
        f" Chebyshev of degree 3: {third:.2%})",
        f"{RESIDUAL:.1%} or less",
        "see that no amplifier clips and nobody touches the fibres; raise the number of shots",
    )


def saturation(bench: Bench) -> Outcome:
    """Where the converter ends, and that what it sees below that adds up."""
    peaks = [_word(sweep.curve.peak) for _, sweep in sorted(bench.sweeps.items())]
    nulls = [_word(sweep.curve.null) for _, sweep in sorted(bench.sweeps.items())]
    rows = np.array([[*peaks[:2], *nulls[2:]], [*nulls[:2], *peaks[2:]], peaks, nulls])
    readings = bench.reader().read(rows, shots=4 * bench.shots)
    one, other, both, none = (float(level) for level in readings.levels)
    bench.idle = readings.idle
    missing = 1 - (both - none) / (one + other - 2 * none)
    if missing > ADDITIVE:
        bench.full_scale = min(bench.full_scale, both + readings.idle)
    fullest = (max(one, other) + readings.idle) / bench.full_scale
    return _judged(
        "saturation",
        fullest <= BRIGHT[1],
        f"a full product fills {fullest:.1%} of the range; the sum of both lacks {max(missing, 0.0):.1%}",
        f"one product within {BRIGHT[1]:.0%} (where the sum of both is too much, sums are dimmed)",
        "lower the laser's power or the amplifier's gain",
    )


def gain(bench: Bench) -> Outcome:
    """Words for all values; in sums both products get the same weight."""
    bench.coded = pairs.encoders(bench.sweeps, full_scale=bench.full_scale, idle=bench.idle)
    strength = [pairs.pair_strength(bench.sweeps, pair) for pair in (0, 1)]
    least = min(bench.coded.factors)
    return _judged(
        "gain",
        least >= 0.2,
        f"full products bring {strength[0]:.0f} and {strength[1]:.0f} counts; in sums they are dimmed to"
        f" {bench.coded.factors[0]:.1%} and {bench.coded.factors[1]:.1%}",
        "no product dimmed below 20 %",
        "make both pairs equally bright: see connectors, and the power of both wavelengths",
    )


def decoder(bench: Bench) -> Outcome:
    """The decoder from random pairs, judged on pairs that it has not seen."""
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
    found = accuracy(rounded(answers), fresh[:, 0], fresh[:, 1])
    bench.raw.update(held_values=fresh, held_levels=held.levels)
    bench.conditions["mean_error"] = float(np.mean(answers - pairs.sum_truth(fresh)))
    return _judged(
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
    bench.noise = measured_noise(bench.reader(length=1), coded.word_table, mean=mean)
    dark, full = bench.noise.sigma([0.0, bench.decoder.gain[0]]) * 255 / bench.decoder.gain[0]
    return _judged(
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

NEEDED = frozenset({"delay", "light", "transfer", "gain", "decoder"})
"""Without these there is nothing for the later steps to stand on."""


def _arrival(bench: Bench, index: int) -> Arrival:
    """The pattern through one modulator; other words for its partner and itself while it is not found."""
    best = Arrival(0.0, 0.0, 0.0)
    for partner in GUESSES:
        for word in GUESSES[:2]:
            found = probe.arrival(
                bench.soc, index, (word, partner), channels=bench.channels, readout=bench.readout
            )
            best = max(best, found, key=lambda arrival: arrival.quality)
            if best.quality >= FOUND:
                return best
    return best


def _word(setting: float) -> int:
    return round(min(max(setting, -32766), 32763))


def _judged(step: str, passed: bool, figure: str, limit: str, cure: str) -> Outcome:
    return Outcome(step, bool(passed), figure, limit, "" if passed else cure)
