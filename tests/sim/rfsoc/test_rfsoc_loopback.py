"""Ordinary QICK programs on `sim://loopback` measure what the cables were set to."""

from __future__ import annotations

import numpy as np
import pytest
from libraries import skip_without

from sim.twins.rfsoc.signals.decimation import GAIN

skip_without("qick")

FULL = 32767 / 32768


def amplitude(word_fraction: float, cable_gain: float, *, carrier: bool) -> float:
    """Return the counts at the end of the chain: the mixer halves, a carrier gives half its amplitude."""
    return word_fraction * cable_gain * 32767 * FULL * GAIN / (4 if carrier else 2)


def edge(trace, plateau):
    """Return where the magnitude goes through half of its plateau, between samples."""
    magnitude = np.abs(trace)
    above = int(np.argmax(magnitude > plateau / 2))
    before, after = magnitude[above - 1], magnitude[above]
    return above - 1 + (plateau / 2 - before) / (after - before)


@pytest.mark.parametrize("delay_ns", [35.5, 123.4, 260.0])
@pytest.mark.parametrize("freq", [0, 300, 1200])
def test_time_of_flight_amplitude_and_phase_with_version_1(loopback, programs, complex_trace, delay_ns, freq):
    soc = loopback(delay_ns=delay_ns, gain=0.4, phase_deg=30 if freq else 0, noise="off")
    program = programs.Averager(soc, {"freq": freq, "reps": 1, "soft_avgs": 2, "gain": 30000})
    trace = complex_trace(program.acquire_decimated(soc, progress=False))
    expected = amplitude(30000 / 32768, 0.4, carrier=bool(freq))
    samples_late = delay_ns * 1e-3 * soc["readouts"][0]["f_output"]
    inside = trace[int(samples_late) + 20 : int(samples_late) + 100]
    assert np.abs(inside).mean() == pytest.approx(expected, rel=0.01)
    assert edge(trace, expected) == pytest.approx(samples_late, abs=1.0)
    on_grid = soc.roundfreq(freq, [soc["gens"][0], soc["readouts"][0]])
    turns = (30 / 360 if freq else 0) - on_grid * delay_ns * 1e-3
    # Version 1 mixes with a turning of the same sign as the carrier's, so phases come out negative.
    assert np.angle(inside.mean() * np.exp(2j * np.pi * turns)) == pytest.approx(0.0, abs=2 * np.pi * 0.01)


@pytest.mark.parametrize("delay_ns", [35.5, 210.0])
@pytest.mark.parametrize("freq", [0, 333, 1000])
def test_time_of_flight_amplitude_and_phase_with_version_2(loopback, programs, complex_trace, delay_ns, freq):
    soc = loopback(profile="zcu216", delay_ns=delay_ns, gain=0.4, noise="off")
    program = programs.AveragerV2(
        soc, reps=1, final_delay=1.0, cfg={"freq": freq, "phase": 40 if freq else 0, "gain": 0.8}
    )
    trace = complex_trace(program.acquire_decimated(soc, rounds=2, progress=False))
    expected = amplitude(0.8 * 32766 / 32768, 0.4, carrier=bool(freq))
    samples_late = delay_ns * 1e-3 * soc["readouts"][0]["f_output"]
    inside = trace[int(samples_late) + 20 : int(samples_late) + 80]
    assert np.abs(inside).mean() == pytest.approx(expected, rel=0.01)
    assert edge(trace, expected) == pytest.approx(samples_late, abs=1.0)
    on_grid = soc.roundfreq(freq, [soc["gens"][0], soc["readouts"][0]])
    turns = (40 / 360 if freq else 0) - on_grid * delay_ns * 1e-3
    assert np.angle(inside.mean() * np.exp(-2j * np.pi * turns)) == pytest.approx(0.0, abs=2 * np.pi * 0.01)


def test_the_trigger_offset_moves_the_window(loopback, programs, complex_trace):
    soc = loopback(delay_ns=300.0, noise="off")
    edges = []
    for offset in (0, 60):
        program = programs.Averager(soc, {"reps": 1, "offset": offset})
        trace = complex_trace(program.acquire_decimated(soc, progress=False))
        edges.append(edge(trace, amplitude(30000 / 32768, 0.5, carrier=False)))
    assert edges[0] - edges[1] == pytest.approx(60 * 512 / 384, abs=0.1)


def test_a_gain_sweep_in_one_program_is_a_line(loopback, programs):
    soc = loopback(noise="off", gain=0.5, delay_ns=200)
    cfg = {
        "freq": 300,
        "start": 0,
        "step": 3000,
        "expts": 10,
        "reps": 20,
        "offset": 110,
        "readout_length": 60,
    }
    gains, real, imaginary = programs.GainSweep(soc, cfg).acquire(soc, progress=False)
    expected = [amplitude(gain / 32768, 0.5, carrier=True) for gain in gains]
    assert np.hypot(real[0][0], imaginary[0][0]) == pytest.approx(expected, rel=0.01, abs=0.5)
    assert gains[-1] == 27000


def test_a_sweep_in_two_dimensions_turns_and_grows(loopback, programs):
    soc = loopback(noise="off", gain=0.5, delay_ns=200)
    sweeps = [("gain", 10000, 30000, 3), ("phase", 0, 180, 4)]
    cfg = {"freq": 300, "sweeps": sweeps, "reps": 5, "offset": 110, "readout_length": 60}
    points, real, imaginary = programs.GainPhaseSweep(soc, cfg).acquire(soc, progress=False)
    seen = np.squeeze(np.asarray(real) + 1j * np.asarray(imaginary))
    seen = seen if seen.shape == (3, 4) else seen.T
    assert np.abs(seen).mean(axis=1) == pytest.approx(
        [amplitude(gain / 32768, 0.5, carrier=True) for gain in (10000, 20000, 30000)], rel=0.01
    )
    # Steps of 90 degrees would not fit into the 31 bits of an immediate; QICK does not say so.
    steps = np.angle(seen[:, 1:] / seen[:, :-1], deg=True)
    assert steps == pytest.approx(np.full((3, 3), -60.0), abs=1.0)
    assert len(points) == 2


def test_a_sweep_of_version_2_over_gain(loopback, programs):
    from qick.asm_v2 import QickSweep1D

    soc = loopback(profile="zcu216", noise="off", gain=0.5, delay_ns=100)
    cfg = {
        "freq": 333, "loops": [("gain", 5)], "gain": QickSweep1D("gain", 0, 0.8),
        "offset": 0.2, "readout_length": 0.15,
    }  # fmt: skip
    program = programs.AveragerV2(soc, reps=10, final_delay=1.0, cfg=cfg)
    points = program.acquire(soc, rounds=1, progress=False)
    expected = [amplitude(gain * 32766 / 32768, 0.5, carrier=True) for gain in (0, 0.2, 0.4, 0.6, 0.8)]
    assert np.abs(points[0][0] @ [1, 1j]) == pytest.approx(expected, rel=0.01, abs=0.5)


def test_cables_have_values_of_their_own(loopback, programs, complex_trace):
    soc = loopback(noise="off", delay_ns=0, gain=0.5, gain_3_1=0.25, gain_2_1=0)
    seen = {}
    for gen in (0, 2, 3):
        program = programs.Averager(soc, {"gen": gen, "ro": 1, "reps": 1})
        seen[gen] = np.abs(complex_trace(program.acquire_decimated(soc, progress=False))[20:80]).mean()
    assert seen[3] / seen[0] == pytest.approx(0.5, abs=0.002)
    assert seen[2] == 0
    assert soc.knobs["gain_3_1"] == 0.25
    del soc.knobs["gain_3_1"]
    assert soc.knobs["gain_3_1"] == 0.5


def test_an_envelope_has_its_shape_and_half_the_height_of_a_constant_pulse(loopback, programs, complex_trace):
    soc = loopback(noise="off", delay_ns=100, gain=0.5)
    program = programs.Averager(soc, {"style": "arb", "freq": 300, "reps": 1, "length": 100})
    trace = np.abs(complex_trace(program.acquire_decimated(soc, progress=False)))
    highest = int(np.argmax(trace))
    # 100 ticks at 384 MHz are 260.4 ns: the middle of the bell comes 130.2 ns behind its start.
    middle = (np.arange(200) * trace**2).sum() / (trace**2).sum()
    assert middle == pytest.approx((100 + 130.2) * 0.512, abs=1.0)
    assert trace[highest] == pytest.approx(amplitude(30000 / 32768, 0.5, carrier=True) / 2, rel=0.01)
    late = np.arange(200) - middle
    inside = np.abs(late) < 60
    sigma = 25 / 384 * 512  # of QICK, whose bell is exp(-(t / sigma)^2)
    expected = trace[highest] * np.exp(-((late / sigma) ** 2))
    assert trace[inside] == pytest.approx(expected[inside], abs=0.02 * trace[highest])


def test_a_flat_top_is_as_high_inside_as_at_the_tops_of_its_ramps(loopback, programs, complex_trace):
    soc = loopback(noise="off", delay_ns=0, gain=0.5)
    program = programs.Averager(soc, {"style": "flat_top", "freq": 300, "reps": 1, "length": 60, "offset": 0})
    trace = np.abs(complex_trace(program.acquire_decimated(soc, progress=False)))
    middle = trace[60:100]
    assert middle == pytest.approx(np.full(40, amplitude(15000 / 32768, 0.5, carrier=True)), rel=0.02)
    assert trace[180:].max() < 2


def test_a_held_level_stands_until_the_generators_are_reset(loopback, programs, complex_trace):
    soc = loopback(noise="off", delay_ns=0, gain=0.5)
    held = programs.Averager(soc, {"reps": 1, "stdysel": "last"})
    plateau = np.abs(complex_trace(held.acquire_decimated(soc, progress=False)))
    assert plateau[30:] == pytest.approx(np.full(170, plateau[60]), abs=1)
    other = programs.Averager(soc, {"gen": 1, "gain": 0, "reps": 1})
    assert np.abs(complex_trace(other.acquire_decimated(soc, progress=False)))[20] == pytest.approx(
        plateau[60], abs=1
    )
    soc.reset_gens()
    assert np.abs(complex_trace(other.acquire_decimated(soc, progress=False))).max() == 0


def test_a_periodic_pulse_goes_on(loopback, programs, complex_trace):
    soc = loopback(noise="off", delay_ns=0, gain=0.5)
    program = programs.Averager(soc, {"reps": 1, "mode": "periodic", "length": 30, "freq": 300})
    trace = np.abs(complex_trace(program.acquire_decimated(soc, progress=False)))
    assert trace[20:] == pytest.approx(np.full(180, amplitude(30000 / 32768, 0.5, carrier=True)), rel=0.02)
