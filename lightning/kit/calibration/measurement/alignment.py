"""The first steps of the guided run: light, when it comes, its polarisation, and the biases."""

from __future__ import annotations

import numpy as np

from lightning.kit.calibration.document import Outcome
from lightning.kit.calibration.measurement import bias, probe
from lightning.kit.calibration.measurement.batch import SETTLE_TICKS
from lightning.kit.calibration.measurement.bench import Bench, judged, word
from lightning.kit.calibration.measurement.delay import Arrival
from lightning.kit.calibration.measurement.transfer import GUESSES, coarse_peaks

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
    return judged(
        "laser",
        source.is_on() and output > wanted - 1.0,
        f"{output:.2f} dBm",
        f"within 1 dB of the {wanted:.2f} dBm that are set",
        "see its interlock and its shutter; wait until it has settled",
    )


def delay(bench: Bench) -> Outcome:
    """Measure when light answers to each generator, by the correlation of a pattern."""
    arrivals: list[Arrival] = []
    for index in range(4):
        arrivals.append(_arrival(bench, index))
        if arrivals[-1].quality < FOUND:
            break
    worst = min(arrival.quality for arrival in arrivals)
    spread = float(np.ptp([arrival.ticks for arrival in arrivals]))
    passed = worst >= FOUND and spread <= APART_TICKS
    bench.arrivals = tuple(arrivals) if passed else ()
    return judged(
        "delay",
        passed,
        f"correlation {worst:.3f}, arrivals {spread:.2f} ticks apart",
        f"correlation of {FOUND} or more, arrivals within {APART_TICKS} ticks",
        "see that the laser is on, the fibres are joined, and each generator drives its modulator;"
        " `lightning scope` shows the waveform",
    )


def light(bench: Bench) -> Outcome:
    """Measure a rough curve of every modulator, with nothing known but when the light comes."""
    bench.rough = coarse_peaks(bench.reader())
    visible = min(curve.amplitude / max(curve.rms, 1e-9) for curve in bench.rough)
    return judged(
        "light",
        visible >= VISIBLE,
        f"the least visible modulator swings {visible:.0f} times the residuals of its curve",
        f"{VISIBLE:.0f} times or more",
        "see that the laser is on, each modulator has its bias, and its partner opens",
    )


def polarisation(bench: Bench) -> Outcome:
    """Measure the brightness with both modulators of the first pair open; turned to its peak by hand where asked."""
    words = np.array([[*(word(bench.rough[i].peak) for i in (0, 1)), 0, 0]])
    rows = bench.reader()

    def brightness() -> float:
        return float(rows.read(words, shots=bench.shots).levels[0]) / bench.full_scale

    if bench.turn_paddles is not None:
        bench.turn_paddles(brightness)
    found = brightness()
    bench.conditions["brightness"] = found
    if bench.instruments.meter is not None:
        bench.conditions["meter_dbm"] = bench.instruments.meter.power_dbm()
    return judged(
        "polarisation",
        found >= BRIGHT[0],
        f"a full product fills {found:.1%} of the converter",
        f"{BRIGHT[0]:.0%} or more",
        "turn the paddles of the polarisation controller until this is greatest (`lightning scope` shows it);"
        " then raise the laser's power or the amplifier's gain",
    )


def bias_point(bench: Bench) -> Outcome:
    """Set every modulator to its null with no word: by the supply, or seen from the curves and left to a person."""
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


def _arrival(bench: Bench, index: int) -> Arrival:
    """Find the pattern through one modulator; with other words for its partner and itself while it is not found."""
    best = Arrival(0.0, 0.0, 0.0)
    for partner in GUESSES:
        for own in GUESSES[:2]:
            found = probe.arrival(
                bench.soc, index, (own, partner), channels=bench.channels, readout=bench.readout
            )
            best = max(best, found, key=lambda arrival: arrival.quality)
            if best.quality >= FOUND:
                return best
    return best
