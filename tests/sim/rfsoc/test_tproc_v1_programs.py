"""Programs written with QICK's own classes, on the processor of version 1: words, times, passes, shot counts."""

import warnings

import numpy as np
import pytest
from libraries import skip_without

from sim.twins.rfsoc.tproc_v1 import TprocV1

skip_without("qick", reason="its assembler writes the programs; install lightbed[qick]")

from qick import QickConfig
from qick.asm_v1 import QickProgram
from qick.averager_program import (
    AveragerProgram,
    NDAveragerProgram,
    QickSweep,
    RAveragerProgram,
    merge_sweeps,
)

GENERATOR = {
    "type": "axis_signal_gen_v6", "fullpath": "gen", "fs": 6144.0, "fs_mult": 30, "fs_div": 1, "interpolation": 1,
    "f_dds": 6144.0, "fdds_div": 1, "b_dds": 32, "b_phase": 32, "f_fabric": 384.0, "samps_per_clk": 16,
    "maxlen": 65536, "has_mixer": False, "has_dds": True, "complex_env": True, "maxv": 32766, "maxv_scale": 1.0,
    "has_phase": True, "has_gain": True,
}  # fmt: skip
READOUT = {
    "ro_type": "axis_readout_v2", "ro_fullpath": "ro", "avgbuf_type": "axis_avg_buffer", "avgbuf_fullpath": "avg",
    "fs": 3072.0, "fs_mult": 15, "fs_div": 1, "decimation": 8, "f_dds": 3072.0, "fdds_div": 1, "b_dds": 32,
    "b_phase": 32, "f_fabric": 384.0, "f_output": 384.0, "iq_offset": 0.0, "has_outsel": True,
    "has_weights": False, "has_edge_counter": False, "avg_maxlen": 16384, "buf_maxlen": 1024,
    "trigger_type": "output", "trigger_port": 0,
}  # fmt: skip
FIFTH_OF_TURN = 2**32 // 5


@pytest.fixture(scope="module")
def soccfg():
    processor = {
        "type": "axis_tproc64x32_x8", "pmem_size": 8192, "dmem_size": 4096, "f_time": 384.0, "start_pin": None,
        "output_pins": [["output", 0, pin, f"PMOD0_{pin}"] for pin in range(4)],
    }  # fmt: skip
    with warnings.catch_warnings(action="ignore"):  # of another version of the software that wrote it
        return QickConfig(
            {
                "board": "ZCU111",
                "sw_version": "0.2.436",
                "extra_description": [],
                "refclk_freq": 204.8,
                "fw_timestamp": "",
                "tprocs": [processor],
                "gens": [GENERATOR | {"dac": f"0{i}", "tproc_ch": i + 1} for i in range(3)],
                "readouts": [
                    READOUT | {"adc": f"2{2 * i}", "tproc_ch": i, "trigger_bit": 14 + i} for i in range(2)
                ],
                "iqs": [],
                "rf": {"dacs": {}, "adcs": {}, "tiles": {"dac": {}, "adc": {}}},
            }
        )


def run(program, read=lambda *_: 0):
    """Return the run of a program and the processor it ran on."""
    if not getattr(program, "binprog", None):
        program.compile()
    processor = TprocV1(8192, 4096)
    processor.load_bin_program(program.binprog)
    return processor.run(read), processor


def gains(run, port=1):
    """Return the gains of version 6 of the generator: the fourth part of the word."""
    return run.port_writes["words"][run.port_writes["port"] == port][:, 3].tolist()


class Loopback(AveragerProgram):
    """A pulse and a readout, as in QICK's own demonstrations."""

    def initialize(self):
        self.declare_gen(ch=0, nqz=1)
        self.declare_gen(ch=1, nqz=1)
        self.declare_readout(ch=0, length=100, freq=0)
        self.declare_readout(ch=1, length=100, freq=0)
        for ch, gain in ((0, 20000), (1, 10000)):
            self.set_pulse_registers(
                ch=ch, style="const", freq=1 << 30, phase=FIFTH_OF_TURN, gain=gain, length=100, mode="oneshot"
            )
        self.synci(200)

    def body(self):
        self.measure(adcs=[0, 1], pulse_ch=[0, 1], pins=[2], adc_trig_offset=180, wait=True, syncdelay=400)


def test_averager_sends_pulses_triggers_and_counts_its_shots(soccfg):
    result, processor = run(Loopback(soccfg, {"reps": 5}))
    period = 280 + 400  # the readout ends last, at 180 + 100
    starts = [200 + period * shot for shot in range(5)]
    assert result.port_writes["port"].tolist() == [1, 2] * 5
    assert result.port_writes["time"].tolist() == np.repeat(starts, 2).tolist()
    mode = 0b01001 << 16 | 100  # no phase reset, back to zero, once, of the oscillator
    assert result.port_writes["words"][0].tolist() == [1 << 30, FIFTH_OF_TURN, 0, 20000, mode, 0]
    assert gains(result, port=2) == [10000] * 5
    assert result.pin_events["time"].tolist() == [s + t for s in starts for t in (180, 190)]
    assert result.pin_events["word"].tolist() == [0b11 << 14 | 1 << 2, 0] * 5
    assert result.counter_events["value"].tolist() == [1, 2, 3, 4, 5]
    assert set(result.counter_events["address"].tolist()) == {1}
    assert (result.counter_events["time"] > [s + 280 for s in starts]).all()
    assert (result.counter_events["time"] < [s + 300 for s in starts]).all()
    assert processor.read_mem("dmem", 1, 1).tolist() == [5]


class TooClose(Loopback):
    def body(self):
        self.measure(adcs=[0], pulse_ch=0, adc_trig_offset=180, wait=True, syncdelay=5)


def test_pulses_for_which_there_is_no_time_come_late(soccfg):
    """Between two shots the loop takes longer than the delay of 5 ticks: the second pulse is behind its time."""
    result, _ = run(TooClose(soccfg, {"reps": 4}))
    planned = [200 + 285 * shot for shot in range(4)]
    late = result.port_writes["time"] - planned
    assert late[0] == 0
    assert (late[1:] > 0).all()
    assert (late < 60).all()
    triggers = result.pin_events["time"][result.pin_events["word"] != 0]
    assert (triggers - planned).tolist() == [180] * 4  # these have time enough


class Ramp(RAveragerProgram):
    def initialize(self):
        self.declare_gen(ch=0, nqz=1)
        self.declare_readout(ch=0, length=50, freq=0)
        self.set_pulse_registers(ch=0, style="const", freq=0, phase=0, gain=self.cfg["start"], length=40)
        self.synci(200)

    def body(self):
        self.measure(adcs=[0], pulse_ch=0, wait=True, syncdelay=500)

    def update(self):
        self.mathi(self.ch_page(0), self.sreg(0, "gain"), self.sreg(0, "gain"), "+", self.cfg["step"])


def test_raverager_sweeps_in_its_outer_loop(soccfg):
    cfg = {"reps": 3, "expts": 4, "start": 5000, "step": -1500}
    program = Ramp(soccfg, cfg)
    result, _ = run(program)
    assert (
        gains(result)
        == np.repeat(program.get_expt_pts(), 3).tolist()
        == [5000] * 3 + [3500] * 3 + [2000] * 3 + [500] * 3
    )
    assert result.counter_events["value"].tolist() == list(range(1, 13))
    assert np.diff(result.port_writes["time"]).tolist() == [270 + 50 + 500] * 11


class Plane(NDAveragerProgram):
    """Gain inside, phase outside."""

    def initialize(self):
        self.declare_gen(ch=0, nqz=1)
        self.declare_readout(ch=0, length=50, freq=0)
        self.set_pulse_registers(ch=0, style="const", freq=0, phase=0, gain=0, length=40)
        gain, phase = self.get_gen_reg(0, "gain"), self.get_gen_reg(0, "phase")
        self.add_sweep(QickSweep(self, gain, 1000, 4000, 4))
        self.add_sweep(merge_sweeps([QickSweep(self, phase, 0, 90, 3)]))
        self.synci(200)

    def body(self):
        self.measure(adcs=[0], pulse_ch=0, wait=True, syncdelay=500)


def test_ndaverager_sweeps_a_plane(soccfg):
    result, _ = run(Plane(soccfg, {"reps": 2}))
    assert gains(result) == [1000, 2000, 3000, 4000] * 3 * 2
    turns = result.port_writes["words"][:, 1] / 2**32
    assert turns == pytest.approx(np.tile(np.repeat([0, 1 / 8, 1 / 4], 4), 2), abs=1e-6)
    assert result.counter_events["value"].tolist() == list(range(1, 25))


class Segments(QickProgram):
    def __init__(self, soccfg):
        super().__init__(soccfg)
        self.declare_gen(ch=2, nqz=1)
        self.add_gauss(ch=2, name="ramp", sigma=16, length=64)
        self.set_pulse_registers(
            ch=2, style="flat_top", freq=0, phase=0, gain=30000, length=80, waveform="ramp"
        )
        self.pulse(ch=2, t=600)
        self.end()


def test_segments_of_a_flat_top_follow_each_other_for_the_generator_to_join(soccfg):
    result, _ = run(Segments(soccfg))
    assert result.port_writes["port"].tolist() == [3, 3, 3]
    assert result.port_writes["time"].tolist() == [600, 603, 606]
    words = result.port_writes["words"]
    assert words[:, 2].tolist() == [0, 0, 32]  # address of the envelope: up, none, down
    assert words[:, 3].tolist() == [30000, 15000, 30000]
    assert (words[:, 4] & 0xFFFF).tolist() == [32, 80, 32]


class EveryInstruction(QickProgram):
    """All instructions that QICK's assembler compiles to what the processor takes them for."""

    def __init__(self, soccfg):
        super().__init__(soccfg)
        self.safe_regwi(0, 1, 2**31 + 5)  # too large for one instruction
        self.memwi(0, 1, 10)
        self.regwi(0, 2, 12)
        self.bitw(0, 3, 1, "&", 2)
        self.memw(0, 3, 2)
        self.memr(0, 4, 2)
        self.memri(0, 5, 12)
        self.math(0, 6, 4, "+", 5)
        self.memwi(0, 6, 13)
        self.pushi(0, 7, 2, 99)  # puts register 2 on the stack, and 99 into register 7
        self.popi(0, 8)
        self.memwi(0, 7, 14)
        self.memwi(0, 8, 15)
        self.read(1, 0, "upper", 9)
        self.read(1, 0, "lower", 10)
        self.condj(0, 9, ">", 10, "LARGER")
        self.regwi(0, 11, 1)
        self.label("LARGER")
        self.memwi(0, 11, 16)
        self.regwi(0, 12, 300)
        self.sync(0, 12)
        self.wait(0, 0, 12)
        self.set(1, 0, 1, 2, 3, 4, 5, 12)
        self.end()


def test_the_assembler_and_the_processor_mean_the_same(soccfg):
    result, _ = run(EveryInstruction(soccfg), read=lambda port, half, tick: [7, 9][half] * port)
    stored = dict(
        zip(result.counter_events["address"].tolist(), result.counter_events["value"].tolist(), strict=True)
    )
    assert stored == {10: -(2**31) + 5, 12: 4, 13: 8, 14: 99, 15: 12, 16: 0}
    assert result.port_writes["words"][0].tolist() == [2**31 + 5, 12, 4, 4, 4, 0]
    assert result.port_writes["time"].tolist() == [600 + 3 + 2 + 2]  # after the wait, which lasts until 600


def test_a_changed_gain_changes_the_words(soccfg):
    one, _ = run(Ramp(soccfg, {"reps": 1, "expts": 1, "start": 100, "step": 0}))
    other, _ = run(Ramp(soccfg, {"reps": 1, "expts": 1, "start": 101, "step": 0}))
    assert gains(one) == [100]
    assert gains(other) == [101]
    assert one.end_tick == other.end_tick
