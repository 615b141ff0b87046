"""The kit on the simulated board, under QICK's own program class."""

from __future__ import annotations

import json

import numpy as np
import pytest

qick = pytest.importorskip("qick", reason="programs for the board are compiled by QICK")

from sim.twins.rfsoc import connect
from sim.twins.rfsoc.kit import make_kit
from sim.twins.rfsoc.kit import plant as kit_plant

TICK_NS = 1e9 / 384e6
OFFSET = 100
LENGTH = 100


class Pulses(qick.AveragerProgram):
    """A rectangle on each generator, `gains` high and 100 ticks long; readout 1 from tick 100 on."""

    def initialize(self):
        for channel, gain in enumerate(self.cfg["gains"]):
            self.declare_gen(ch=channel, nqz=1)
            self.set_pulse_registers(ch=channel, style="const", freq=0, phase=0, gain=gain, length=LENGTH)
        self.declare_readout(ch=1, length=250, freq=0, gen_ch=0)
        self.synci(200)

    def body(self):
        for channel in range(3):
            self.pulse(ch=channel)
        self.measure(pulse_ch=3, adcs=[1], adc_trig_offset=OFFSET, wait=True, syncdelay=self.us2cycles(1))


def waveform(soc, *gains):
    """Return (250,) counts of one shot's mean."""
    program = Pulses(soc, {"reps": 1, "soft_avgs": 4, "gains": gains})
    return np.asarray(program.acquire_decimated(soc, progress=False)[0], dtype=float).reshape(2, -1)[0]


def bright(trace):
    """Return first and last sample above the middle."""
    places = np.flatnonzero(trace > (trace.max() + np.median(trace[:20])) / 2)
    return int(places[0]), int(places[-1])


@pytest.fixture
def soc():
    made = []

    def make(options=""):
        made.append(connect(f"sim://kit?noise=off&drift=off{options}"))
        return made[-1]

    yield make
    for one in made:
        one._plant.close()


def test_two_open_modulators_give_a_rectangle_as_long_as_the_pulses(soc):
    first, last = bright(waveform(soc(), 20000, 20000, 0, 0))
    assert last - first + 1 == pytest.approx(LENGTH, abs=1)


def test_light_comes_later_by_the_delay_that_is_set(soc):
    """100 ns of fibre are 38.4 ticks."""
    one = soc()
    before = bright(waveform(one, 20000, 20000, 0, 0))[0]
    one.knobs["delay_ns"] = float(one.knobs["delay_ns"]) + 100.0
    assert bright(waveform(one, 20000, 20000, 0, 0))[0] - before == pytest.approx(100 / TICK_NS, abs=1)


def test_a_changed_gain_word_a_bias_and_a_laser_change_the_waveform_and_back(soc):
    one = soc()
    first = waveform(one, 20000, 20000, 0, 0)
    assert np.ptp(waveform(one, 20000, 10000, 0, 0)) == pytest.approx(np.ptp(first) / 2, rel=0.02)
    one.knobs["bias_v_1"] = 5.5
    assert not np.array_equal(waveform(one, 20000, 20000, 0, 0), first)
    del one.knobs["bias_v_1"]
    one.knobs["laser_dropped"] = "on"
    assert np.ptp(waveform(one, 20000, 20000, 0, 0)) == 0
    one.knobs["laser_dropped"] = "off"
    assert np.array_equal(waveform(one, 20000, 20000, 0, 0), first)


def test_products_of_both_pairs_add(soc):
    one = soc("&adc_bits=16")
    dark = np.median(waveform(one, 0, 0, 0, 0))
    heights = [
        np.median(trace[bright(trace)[0] + 10 : bright(trace)[1] - 10]) - dark
        for trace in (
            waveform(one, 15000, 12000, 0, 0),
            waveform(one, 0, 0, 9000, 18000),
            waveform(one, 15000, 12000, 9000, 18000),
        )
    ]
    assert heights[2] == pytest.approx(heights[0] + heights[1], abs=2)


def test_noise_differs_between_rounds_and_not_between_equal_seeds():
    traces = []
    for seed in (3, 3, 4):
        one = connect(f"sim://kit?seed={seed}")
        traces += [waveform(one, 20000, 20000, 0, 0) for _ in range(2)]
        one._plant.close()
    assert not np.array_equal(traces[0], traces[1])
    assert np.array_equal(traces[0], traces[2])
    assert np.array_equal(traces[1], traces[3])
    assert not np.array_equal(traces[0], traces[4])


def test_a_factory_calibration_is_given_as_it_lies_there(monkeypatch, tmp_path):
    kit = make_kit({})
    monkeypatch.setattr(kit_plant.resources, "files", lambda _: tmp_path)
    assert kit.factory_calibration() is None
    document = {"version": 1, "device": "sim-kit-0001"}
    (tmp_path / "factory_calibration.json").write_text(json.dumps(document))
    assert kit.factory_calibration() == document
    assert make_kit({"vary": "yes"}).factory_calibration() is None
