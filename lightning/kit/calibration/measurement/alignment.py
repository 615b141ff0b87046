"""The first steps of the guided run: the laser, arrival times, light, polarisation, and the biases.

At word 0 the bias alone sets the transmission of a modulator. The kit needs the null there, so that word 0 gives no
light. `find_null` sweeps the supply, fits a fringe in volts to the light, and sets the reachable null nearest to the
present voltage.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lightning.kit.calibration.document import Outcome
from lightning.kit.calibration.fringe import Floats, Fringe, fit_fringe
from lightning.kit.calibration.measurement.batch import (
    DEFAULT_CHANNELS,
    READOUT,
    SETTLE_TICKS,
    to_generator_ticks,
    to_processor_ticks,
)
from lightning.kit.calibration.measurement.bench import Bench, clip_word, make_outcome
from lightning.kit.calibration.measurement.delay import Arrival, locate_pattern, make_pattern
from lightning.kit.calibration.measurement.transfer import (
    GUESS_WORDS,
    PARTNERS,
    RowReader,
    find_coarse_curves,
)
from lightning.optional import require

MIN_CORRELATION = 0.9
"""Minimum correlation at which the received pattern counts as the transmitted one."""
MAX_SPREAD_TICKS = 10 * SETTLE_TICKS
"""Largest spread of arrivals that `Window.for_arrival` may compensate by later starts: 0.6 us, or 125 m of fibre."""
MIN_VISIBILITY = 20.0
"""Minimum ratio of a modulator's swing to the residuals of its curve."""
BRIGHTNESS_RANGE = (0.4, 0.98)
"""Share of the converter's range that one full product should fill. Below, quantisation is visible; above, noise clips.
"""
MAX_NULL_OFFSET = 0.12
"""Largest distance from word 0 to the null, as a share of V_pi. Within it, idle light stays below 4 per cent, and the
words reach both null and peak."""

BIAS_POINT_COUNT = 33
BIAS_SPAN_V = 10.0
"""Range of a bias sweep, inside the supply's limits: about one period of a modulator with V_pi = 5 V."""
GUARD_TICKS = 20
"""Time for which the partner is open before and after the pattern."""
MARGIN_TICKS = 250
"""Extra open time of the partner. The fibre delays of two modulators differ by less."""
START_TICKS = GUARD_TICKS + MARGIN_TICKS
"""Start of the pattern, after the partner opens."""
ROUND_COUNT = 16
FULL_SCALE = 32_766
"""Greatest sample of an envelope."""
MAX_WINDOWS = 4
"""Consecutive windows that the search for the pattern covers, about 2 us each."""
SUFFICIENT_CORRELATION = 0.7
"""Correlation above which the search skips the remaining windows."""
_PulseSpec = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
"""((generator of the modulator, of its partner), (their words), (offset and length of the window in ticks))."""


def switch_laser_on(bench: Bench) -> Outcome:
    """Switch the laser on and check its output power. Skip the step if there is no laser."""
    if bench.instruments.laser is None:
        return Outcome(
            "laser", True, "no laser is connected by VISA", "on", "switch it on by hand", skipped=True
        )
    laser = bench.instruments.laser
    if not laser.is_on():
        laser.turn_on()
    output_dbm, setpoint_dbm = laser.read_output_dbm(), laser.read_power_setpoint_dbm()
    bench.conditions.update(laser_dbm=output_dbm, wavelength_nm=laser.read_wavelength_nm())
    return make_outcome(
        "laser",
        laser.is_on() and output_dbm > setpoint_dbm - 1.0,
        f"{output_dbm:.2f} dBm",
        f"at most 1 dB below the setpoint of {setpoint_dbm:.2f} dBm",
        "check its interlock and its shutter; wait until it has settled",
    )


def measure_delay(bench: Bench) -> Outcome:
    """Measure the arrival of each modulator's light by correlation with a pattern."""
    arrivals: list[Arrival] = []
    for index in range(4):
        arrivals.append(_measure_arrival(bench, index))
        if arrivals[-1].correlation < MIN_CORRELATION:
            break
    lowest_correlation = min(arrival.correlation for arrival in arrivals)
    arrival_spread_ticks = float(np.ptp([arrival.ticks for arrival in arrivals]))
    is_passed = lowest_correlation >= MIN_CORRELATION and arrival_spread_ticks <= MAX_SPREAD_TICKS
    bench.arrivals = tuple(arrivals) if is_passed else ()
    return make_outcome(
        "delay",
        is_passed,
        f"correlation {lowest_correlation:.3f}, arrivals {arrival_spread_ticks:.2f} ticks apart",
        f"correlation of {MIN_CORRELATION} or more, arrivals within {MAX_SPREAD_TICKS} ticks",
        "check that the laser is on, the fibres are connected, and each generator drives its modulator;"
        " `lightning scope` shows the waveform",
    )


def measure_light(bench: Bench) -> Outcome:
    """Measure a rough curve of every modulator. Only the arrival times must be known before."""
    bench.rough_curves = find_coarse_curves(bench.make_reader())
    least_visibility = min(curve.amplitude / max(curve.rms, 1e-9) for curve in bench.rough_curves)
    return make_outcome(
        "light",
        least_visibility >= MIN_VISIBILITY,
        f"the least visible modulator swings {least_visibility:.0f} times the residuals of its curve",
        f"{MIN_VISIBILITY:.0f} times or more",
        "check that the laser is on, each modulator has its bias, and its partner opens",
    )


def check_polarisation(bench: Bench) -> Outcome:
    """Call `turn_paddles` to maximise the light, then measure it with both modulators of the first pair open."""
    words = np.array([[*(clip_word(bench.rough_curves[i].peak) for i in (0, 1)), 0, 0]])
    reader = bench.make_reader()

    def read_brightness() -> float:
        return float(reader.read(words, shots=bench.shots).levels[0]) / bench.full_scale

    if bench.turn_paddles is not None:
        bench.turn_paddles(read_brightness)
    brightness = read_brightness()
    bench.conditions["brightness"] = brightness
    if bench.instruments.meter is not None:
        bench.conditions["meter_dbm"] = bench.instruments.meter.read_power_dbm()
    return make_outcome(
        "polarisation",
        brightness >= BRIGHTNESS_RANGE[0],
        f"a full product fills {brightness:.1%} of the converter",
        f"{BRIGHTNESS_RANGE[0]:.0%} or more",
        "turn the paddles of the polarisation controller until this is greatest (`lightning scope` shows it);"
        " then raise the laser's power or the amplifier's gain",
    )


def set_bias_points(bench: Bench) -> Outcome:
    """Bias every modulator to its null at word 0 if there is a supply, then check the nulls of the rough curves."""
    if bench.instruments.bias is not None:
        bias_points = [find_null(bench.make_reader(), bench.instruments.bias, index) for index in range(4)]
        for index, point in enumerate(bias_points):
            bench.conditions[f"bias_{index}_v"] = point.null_v
            bench.conditions[f"half_wave_{index}_v"] = point.half_wave_v
        bench.rough_curves = find_coarse_curves(bench.make_reader())
    null_offsets = [curve.null / curve.half_wave for curve in bench.rough_curves]
    largest_offset = max(null_offsets, key=abs)
    offsets_text = ", ".join(f"{offset:+.1%}" for offset in null_offsets)
    return Outcome(
        "bias",
        abs(largest_offset) <= MAX_NULL_OFFSET,
        f"nulls lie {offsets_text} of V_pi from word 0",
        f"within {MAX_NULL_OFFSET:.0%}",
        ""
        if abs(largest_offset) <= MAX_NULL_OFFSET
        else "move each bias by its measured share of V_pi, or connect the supply",
        skipped=bench.instruments.bias is None and abs(largest_offset) <= MAX_NULL_OFFSET,
    )


def _measure_arrival(bench: Bench, index: int) -> Arrival:
    """Try words for both modulators until the correlation is good, and return the arrival with the best correlation."""
    best_arrival = Arrival(0.0, 0.0, 0.0)
    for partner_word in GUESS_WORDS:
        for own_word in GUESS_WORDS[:2]:
            candidate = find_arrival(
                bench.soc, index, (own_word, partner_word), channels=bench.channels, readout=bench.readout
            )
            best_arrival = max(best_arrival, candidate, key=lambda arrival: arrival.correlation)
            if best_arrival.correlation >= MIN_CORRELATION:
                return best_arrival
    return best_arrival


class Supply(Protocol):
    """The methods of `lightning.kit.instruments.BiasSupply` that the guided run needs. Outputs count from 1."""

    @property
    def limit_v(self) -> float:
        """The highest allowed voltage."""
        ...

    def set_voltage_v(self, output: int, voltage_v: float) -> None:
        """Set the voltage of an output."""
        ...

    def read_voltage_v(self, output: int) -> float:
        """Return the voltage at an output."""
        ...


@dataclass(frozen=True, slots=True)
class BiasPoint:
    """The bias of one modulator, in volts."""

    null_v: float
    quadrature_v: float
    peak_v: float
    half_wave_v: float
    initial_v: float
    """The voltage before the sweep."""
    visibility: float
    """Ratio of the swing of the light over the sweep to the residuals of its fit."""


def find_null(reader: RowReader, supply: Supply, index: int, *, shots: int = 4) -> BiasPoint:
    """Sweep the bias of modulator `index`, set it to the null, and return the bias point.

    The sweep tries several words for the partner and uses the word with the greatest swing. Restore the old voltage
    and raise `ValueError` if there is no fringe, or no null that the supply can reach.
    """
    output = index + 1
    start_v = supply.read_voltage_v(output)
    low = min(max(0.0, start_v - BIAS_SPAN_V / 2), max(0.0, supply.limit_v - BIAS_SPAN_V))
    volts = np.linspace(low, min(supply.limit_v, low + BIAS_SPAN_V), BIAS_POINT_COUNT)
    try:
        levels = _sweep_bias(reader, supply, index, volts, shots)
        curve = fit_fringe(volts - start_v, levels[:, int(np.argmax(np.ptp(levels, axis=0)))])
        point = _make_bias_point(curve, start_v, supply.limit_v)
    except ValueError:
        supply.set_voltage_v(output, start_v)
        raise
    supply.set_voltage_v(output, point.null_v)
    return point


def _sweep_bias(reader: RowReader, supply: Supply, index: int, volts: Floats, shots: int) -> Floats:
    """Return the detector counts (volts, words of the partner) with the modulator at word 0, idle level included."""
    table = np.zeros((len(GUESS_WORDS), 4), dtype=np.int64)
    table[:, PARTNERS[index]] = GUESS_WORDS
    levels = np.empty((volts.size, len(GUESS_WORDS)))
    for row, voltage in enumerate(volts):
        supply.set_voltage_v(index + 1, float(voltage))
        readings = reader.read(table, shots=shots)
        levels[row] = readings.levels + readings.idle_level
    return levels


def _make_bias_point(curve: Fringe, start_v: float, limit_v: float) -> BiasPoint:
    """Return the bias point of a fringe in volts relative to `start_v`.

    Raise `ValueError` if the sweep shows no fringe, or no null lies between 0 V and `limit_v`.
    """
    visibility = curve.amplitude / max(curve.rms, 1e-12)
    if visibility < 10:
        raise ValueError(
            f"the light does not follow the bias (its swing is only {visibility:.1f} times the residuals)"
        )
    period = 2 * curve.half_wave
    nulls = [start_v + curve.null + n * period for n in (-1, 0, 1)]
    reachable_nulls = [null for null in nulls if 0.0 <= null <= limit_v]
    if not reachable_nulls:
        raise ValueError(f"there is no null between 0 V and {limit_v:.1f} V")
    null = min(reachable_nulls, key=lambda candidate: abs(candidate - start_v))
    half_wave = curve.half_wave
    return BiasPoint(null, null + half_wave / 2, null + half_wave, half_wave, start_v, visibility)


def find_arrival(
    soc: Any,
    index: int,
    words: tuple[int, int],
    *,
    channels: tuple[int, int, int, int] = DEFAULT_CHANNELS,
    readout: int = READOUT,
) -> Arrival:
    """Return the arrival of light through modulator `index`, in ticks after the generator's pulse.

    `words` open the modulator and its partner. If no window shows the pattern, the quality of the result is low.
    """
    from lightning.kit.devices.guard import guard_soc

    soc = guard_soc(soc)
    length = int(soc["readouts"][readout]["buf_maxlen"]) - 24
    window_step = length - make_pattern().size - GUARD_TICKS
    best_arrival = Arrival(0.0, 0.0, 0.0)
    for window_number in range(MAX_WINDOWS):
        offset = window_number * window_step
        pulse_spec = ((channels[index], channels[PARTNERS[index]]), words, (offset, length))
        program = _load_program_class()(soc, {"reps": 1, "rounds": ROUND_COUNT}, pulse_spec, readout)
        # Mean counts of all rounds: first I, then Q.
        samples = np.asarray(program.acquire_decimated(soc, progress=False)[0], dtype=float)
        trace: Floats = samples.reshape(2, -1)[0]
        arrival = locate_pattern(trace)
        if arrival.correlation > best_arrival.correlation:
            start = _round_time(soc, readout, offset + MARGIN_TICKS) - _round_time(soc, readout, START_TICKS)
            best_arrival = Arrival(arrival.ticks + start, arrival.swing, arrival.correlation)
        if best_arrival.correlation > SUFFICIENT_CORRELATION:
            break
    return best_arrival


def _round_time(soccfg: Any, readout: int, ticks: float) -> float:
    """Return a time in ticks of the readout, rounded to whole ticks of the timed processor."""
    ratio = float(soccfg["readouts"][readout]["f_output"]) / float(soccfg["tprocs"][0]["f_time"])
    return to_processor_ticks(soccfg, readout, ticks) * ratio


def make_envelope(soccfg: Any, readout: int, channel: int) -> npt.NDArray[np.int64]:
    """Return the pattern as samples of this generator, with edges at the nearest sample, padded to whole ticks."""
    samples_per_tick = int(soccfg["gens"][channel]["samps_per_clk"])
    samples_per_chip = (
        float(soccfg["gens"][channel]["f_fabric"])
        * samples_per_tick
        / float(soccfg["readouts"][readout]["f_output"])
    )
    edges = np.rint(np.arange(make_pattern().size + 1) * samples_per_chip).astype(np.int64)
    samples = np.repeat(make_pattern(), np.diff(edges)) * FULL_SCALE
    return np.pad(samples, (0, -samples.size % samples_per_tick))


@lru_cache(maxsize=1)
def _load_program_class() -> Any:
    """Return a subclass of QICK's averaging program that plays the pattern. Imports QICK only here: it is optional."""
    qick = require("qick", "to compile programs for the board")

    class PatternProgram(qick.AveragerProgram):  # type: ignore[misc, name-defined]  # QICK has no types
        """One generator plays the pattern while its partner holds a modulator open."""

        def __init__(self, soccfg: Any, cfg: dict[str, Any], pulse_spec: _PulseSpec, readout: int) -> None:
            self.played, self.words, (self.offset, self.length) = pulse_spec
            self.readout = readout
            super().__init__(soccfg, cfg)

        def initialize(self) -> None:
            for channel in self.played:
                self.declare_gen(ch=channel, nqz=1)
            self.declare_readout(ch=self.readout, length=self.length, freq=0)
            pattern_channel, partner = self.played
            samples = make_envelope(self.soccfg, self.readout, pattern_channel)
            open_ticks = to_generator_ticks(
                self.soccfg, self.readout, partner, make_pattern().size + 2 * START_TICKS
            )
            pulse_options = {"freq": 0, "phase": 0}
            self.add_envelope(ch=pattern_channel, name="pattern", idata=samples, qdata=np.zeros_like(samples))
            self.set_pulse_registers(
                ch=pattern_channel, style="arb", waveform="pattern", gain=self.words[0], **pulse_options
            )
            self.set_pulse_registers(
                ch=partner, style="const", length=open_ticks, gain=self.words[1], **pulse_options
            )
            self.synci(200)

        def body(self) -> None:
            pattern_channel, partner = self.played
            self.pulse(ch=partner, t=0)
            self.pulse(ch=pattern_channel, t=to_processor_ticks(self.soccfg, self.readout, START_TICKS))
            offset = to_processor_ticks(self.soccfg, self.readout, self.offset + MARGIN_TICKS)
            self.trigger(adcs=[self.readout], adc_trig_offset=offset, t=0)
            self.wait_all()
            self.sync_all(self.us2cycles(1.0))

    return PatternProgram
