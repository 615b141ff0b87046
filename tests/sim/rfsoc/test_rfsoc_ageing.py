"""Whatever drifts moves while a program runs, and each window sees it as it was then."""

from __future__ import annotations

import numpy as np
import pytest
from libraries import skip_without

skip_without("qick", reason="programs for the board are compiled by QICK")

from sim.twins.rfsoc import connect


def drifting(programs, *, shots, seconds, noise="off"):
    """Return a kit that drifts fast, and a program of so many shots, so many seconds apart."""
    soc = connect(f"sim://kit?noise={noise}&drift_time_s=50&drift_v_pi=0.05&bias_v_1=8&adc_bits=16")
    cfg = {"ro": 1, "gain": 10000, "length": 400, "readout_length": 50, "offset": 250}
    return soc, programs.Averager(soc, cfg | {"reps": shots, "relax": seconds * 1e6})


def sums(program):
    return np.asarray(program.get_raw()[0]).reshape(-1, 2)[:, 0].astype(float)


def test_a_hundred_shots_a_second_apart_see_a_hundred_states_of_a_drifting_kit(programs):
    soc, program = drifting(programs, shots=100, seconds=1.0)
    program.acquire(soc, progress=False)
    seen = sums(program)
    assert len(set(seen)) >= 90
    assert 95 <= soc._plant.version <= 101
    # neighbours differ less than what lies a correlation time apart: it is drift, not a jump at every look
    assert np.diff(seen).std() < 0.5 * (seen[50:] - seen[:-50]).std()


def test_within_a_second_the_kit_stands_still_and_is_asked_once(programs):
    soc, program = drifting(programs, shots=400, seconds=1e-3)
    program.acquire(soc, progress=False)
    assert len(set(sums(program))) == 1
    assert soc._plant.version == 0
    assert soc._board.readouts[1].traces.plant_call_count <= 2


@pytest.mark.parametrize(("shots", "seconds"), [(40, 0.4), (15, 1.0), (12, 2.5)])
def test_what_was_received_by_then_is_stored_before_the_kit_moves(programs, monkeypatch, shots, seconds):
    soc, program = drifting(programs, shots=shots, seconds=seconds)
    plant, readout, stored = soc._plant, soc._board.readouts[1], []
    elapse = plant.elapse

    def watched(passed_s):
        stored.append((passed_s, readout._stored_count))
        elapse(passed_s)

    monkeypatch.setattr(plant, "elapse", watched)
    program.config_all(soc)
    program.config_bufs(soc, enable_avg=True, enable_buf=False)
    soc.start_tproc()
    begun_s = soc._board.clock.accounted_s
    stored.clear()
    soc.elapse(shots * seconds + 5.0)
    assert readout._stored_count == shots
    ends_s = begun_s + (readout._window_starts + 50) / (readout.cfg["f_output"] * 1e6)
    moment_s = begun_s
    for passed_s, done in stored[:-1]:
        moment_s += passed_s
        assert passed_s == pytest.approx(round(passed_s))
        before_s = moment_s - passed_s
        assert np.searchsorted(ends_s, before_s) <= done <= np.searchsorted(ends_s, moment_s + 1e-4)
        assert done == np.searchsorted(ends_s, moment_s) or abs(ends_s - moment_s).min() < 1e-4
    assert sum(passed_s for passed_s, _ in stored) == pytest.approx(soc._board.clock.now_s - begun_s)


def test_long_pauses_pass_in_one_step_each(programs, monkeypatch):
    soc, program = drifting(programs, shots=5, seconds=5.0)
    plant, steps = soc._plant, []
    elapse = plant.elapse
    monkeypatch.setattr(plant, "elapse", lambda seconds: steps.append(seconds) or elapse(seconds))
    program.config_all(soc)
    program.config_bufs(soc, enable_avg=True, enable_buf=False)
    soc.start_tproc()
    soc.elapse(1e7)
    assert len(steps) <= 12
    assert sum(steps) == pytest.approx(1e7, rel=1e-6)


def test_the_same_calls_drift_alike(programs):
    found = []
    for _ in range(2):
        soc, program = drifting(programs, shots=30, seconds=0.7, noise="on")
        program.acquire(soc, progress=False)
        found.append(sums(program))
    assert np.array_equal(*found)


def test_only_the_detectors_readout_sees_light_and_only_it_has_the_lasers_noise():
    soc = connect("sim://kit?drift=off")
    from qick import AveragerProgram

    class Both(AveragerProgram):
        def initialize(self):
            for gen in (0, 1):
                self.declare_gen(ch=gen, nqz=1)
                self.set_pulse_registers(ch=gen, style="const", freq=0, phase=0, gain=20000, length=600)
            for ro in (0, 1):
                self.declare_readout(ch=ro, length=400, freq=0, gen_ch=0)
            self.synci(200)

        def body(self):
            self.pulse(ch=0, t=0)
            self.pulse(ch=1, t=0)
            self.trigger(adcs=[0, 1], adc_trig_offset=200)
            self.wait_all()
            self.sync_all(self.us2cycles(1))

    other, detector = (
        np.asarray(one, dtype=float).reshape(2, -1)[0]
        for one in Both(soc, {"reps": 1, "soft_avgs": 1}).acquire_decimated(soc, progress=False)
    )
    assert detector.mean() > 7000
    assert abs(other.mean()) < 2
    assert 0 < other.std() < 0.25 * detector.std()
