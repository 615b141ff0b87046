"""QICK's own programs for tProc v2, unmodified, on the machine: their pulses against their own wave tables."""

import json
from importlib.resources import files

import numpy as np
import pytest
from libraries import skip_without

skip_without("qick", reason="needs QICK: pip install 'lightbed[kit]'")
from qick import QickConfig
from qick.asm_v2 import AsmV2, AveragerProgramV2, QickSpan, QickSweep1D

from sim.twins.rfsoc.processor import Processor
from sim.twins.rfsoc.tproc_v2 import TprocV2

REPS, STEPS = 3, 5
FIELDS = ("freq", "phase", "gain", "length")
WORD = {"freq": 0, "phase": 1, "env": 2, "gain": 3, "length": 4, "conf": 5}


@pytest.fixture(scope="module")
def soccfg():
    """Return the ZCU216 as its twin describes it."""
    return QickConfig(json.loads(files("sim.twins.rfsoc").joinpath("profiles/zcu216.json").read_text()))


@pytest.fixture(scope="module")
def small(soccfg):
    """Return the same board with a program memory that jumps can address directly, for the other half of QICK's
    macros.
    """
    cfg = json.loads(soccfg.dump_cfg())
    cfg["tprocs"][0]["pmem_size"] = 2048
    return QickConfig(cfg)


@pytest.fixture(params=["soccfg", "small"])
def board(request):
    return request.getfixturevalue(request.param)


def carried_out(program, read=lambda port, half, tick: 0):
    processor: Processor = TprocV2.from_config(program.soccfg["tprocs"][0])
    processor.load_bin_program(program.binprog)
    return processor, processor.run(read)


def of_port(run, port):
    return run.port_writes[run.port_writes["port"] == port]


def set_times(run, port):
    """Return the time when a trigger port went high."""
    pins = run.pin_events[(run.pin_events["kind"] == 1) & (run.pin_events["port"] == port)]
    return pins["time"][pins["word"] == 1]


class Shot(AveragerProgramV2):
    """One pulse and one readout; what is swept stands in the configuration."""

    def _initialize(self, cfg):
        self.declare_gen(ch=0, nqz=1)
        self.declare_readout(ch=0, length=100)
        for name, count in cfg.get("loops", {}).items():
            self.add_loop(name, count)
        self.add_readoutconfig(ch=0, name="ro", freq=100, gen_ch=0)
        self.send_readoutconfig(ch=0, name="ro", t=0)
        pulse = {"freq": 100, "phase": 0, "gain": 0.5, "length": 0.2} | cfg.get("pulse", {})
        self.add_pulse(ch=0, name="pulse", style="const", ro_ch=0, **pulse)

    def _body(self, cfg):
        self.pulse(ch=0, name="pulse", t=cfg.get("t", 0))
        self.trigger(ros=[0], pins=[1], t=cfg.get("t_trigger", 0.1), width=cfg.get("width"), tag="trigger")


def swept(cfg):
    return {"loops": {"sweep": STEPS}, **cfg}


def table(program, field, loops):
    """Return what the program's own wave says a field is, over all passes: its start plus steps, as 32 bits."""
    (wave,) = [w for w in program.waves if w.name == "pulse_w0"]
    value = getattr(wave, field)
    if not hasattr(value, "start"):
        return np.full(loops, int(value) % 2**32)
    grid = np.full(loops, value.start)
    for axis, (name, size) in enumerate(zip(("sweep", "other"), loops, strict=False)):
        if name in value.steps:
            shape = [1] * len(loops)
            shape[axis] = size
            grid = grid + value.steps[name]["step"] * np.arange(size).reshape(shape)
    return grid % 2**32


# ---------------------------------------------------------------------------------------------- sweeps
@pytest.mark.parametrize(
    ("field", "ends"),
    [("freq", (50, 350)), ("phase", (0, 270)), ("gain", (-0.9, 0.9)), ("length", (0.1, 0.7))],
)
def test_one_field_is_swept_and_the_others_stand(board, field, ends):
    program = Shot(board, REPS, 0.5, cfg=swept({"pulse": {field: QickSweep1D("sweep", *ends)}}))
    _, run = carried_out(program)
    words = of_port(run, 0)["words"].reshape(REPS, STEPS, 6)
    for name in FIELDS:
        assert (words[:, :, WORD[name]] == table(program, name, (STEPS,))).all(), name
    assert len(np.unique(words[0, :, WORD[field]])) == STEPS
    (wave,) = [w for w in program.waves if w.name == "pulse_w0"]
    assert (words[:, :, WORD["conf"]] == wave.conf).all()


def test_a_sweep_in_two_dimensions(board):
    gain = QickSpan("sweep", 0.4) + QickSpan("other", 0.3) + 0.1
    freq = QickSweep1D("other", 100, 200)
    program = Shot(
        board, REPS, 0.5, cfg={"loops": {"sweep": STEPS, "other": 4}, "pulse": {"gain": gain, "freq": freq}}
    )
    _, run = carried_out(program)
    words = of_port(run, 0)["words"].reshape(REPS, STEPS, 4, 6)
    for name in FIELDS:
        assert (words[..., WORD[name]] == table(program, name, (STEPS, 4))).all(), name


def test_the_wave_memory_is_as_before_after_the_sweeps(board):
    program = Shot(board, REPS, 0.5, cfg=swept({"pulse": {"gain": QickSweep1D("sweep", 0, 1)}}))
    processor, _ = carried_out(program)
    before = processor.version
    processor.reload_mem()
    assert processor.version == before
    waves = len(program.binprog["wmem"])
    expected = np.array([w.compile()[:6] for w in program.waves])
    assert np.array_equal(processor.read_mem("wmem", waves), expected)


def test_a_time_is_swept(soccfg):
    # The delay after a shot must cover the sweep: QICK waits for its latest readout, but delays by each one's own.
    program = Shot(soccfg, REPS, 2.0, cfg=swept({"t_trigger": QickSweep1D("sweep", 0.2, 1.2)}))
    _, run = carried_out(program)
    delays = (set_times(run, 10) - of_port(run, 0)["time"]).reshape(REPS, STEPS)
    ticks = np.asarray(program.get_time_param("trigger", "t", as_array=True)) * soccfg["tprocs"][0]["f_time"]
    assert (delays == np.round(ticks).astype(int)).all()


def test_a_pulse_at_a_swept_time(soccfg):
    program = Shot(soccfg, REPS, 0.5, cfg=swept({"t": QickSweep1D("sweep", 0.0, 1.0)}))
    _, run = carried_out(program)
    delays = np.diff((of_port(run, 0)["time"] - set_times(run, 10)).reshape(REPS, STEPS), axis=1)
    assert (delays == delays[0, 0]).all()
    assert delays[0, 0] == int(430.08 / (STEPS - 1))


# ------------------------------------------------------------------------------------ triggers and time
def test_triggers_last_as_long_as_asked(board):
    _, run = carried_out(Shot(board, REPS, 0.5, cfg={"width": 0.5}))
    for port in (1, 10):
        pins = run.pin_events[run.pin_events["port"] == port]
        assert pins["word"].tolist() == [1, 0] * REPS
        assert (pins["time"][1::2] - pins["time"][::2] == int(0.5 * 430.08)).all()


def test_a_trigger_comes_after_its_pulse_as_asked(board):
    _, run = carried_out(Shot(board, REPS, 0.5, cfg={"t_trigger": 0.75}))
    assert (set_times(run, 10) - of_port(run, 0)["time"] == round(0.75 * 430.08)).all()


def test_shots_follow_at_the_length_of_the_readout_and_the_delay(soccfg):
    _, run = carried_out(Shot(soccfg, 10, 2.0, cfg={}))
    # 100 us of readout from 0.1 us on, then 2 us: QICK counts in whole ticks of its readout and of the processor.
    assert set(np.diff(set_times(run, 10)).tolist()) == {int((100.1 + 2.0) * 430.08)}


def test_shots_are_counted_after_their_readout(board):
    _, run = carried_out(Shot(board, REPS, 0.5, cfg=swept({})))
    assert run.counter_events["address"].tolist() == [1] * (REPS * STEPS + 1)
    assert run.counter_events["value"].tolist() == list(range(REPS * STEPS + 1))
    readouts = set_times(run, 10) + int(100 * 430.08)
    assert (run.counter_events["time"][1:] >= readouts - 10).all()
    assert (run.counter_events["time"][1:] <= readouts + 200).all()
    assert run.end_tick >= run.counter_events["time"][-1]


def test_the_readout_gets_its_configuration_first(board):
    program = Shot(board, REPS, 0.5, cfg={})
    _, run = carried_out(program)
    (wave,) = [w for w in program.waves if w.name == "ro_w0"]
    (sent,) = of_port(run, 4)
    assert sent["words"].tolist() == wave.compile()[:6].view(np.uint32).tolist()
    assert sent["time"] < of_port(run, 0)["time"][0]


def test_without_waits_the_core_runs_ahead_until_a_queue_is_full(soccfg):
    """`final_wait=None`: the counter is no longer in step with the shots, and lags by a queue at most."""
    program = Shot(soccfg, 2000, 0.5, final_wait=None, cfg={})
    _, run = carried_out(program)
    pulses = of_port(run, 0)["time"]
    done = run.counter_events["time"][1:]
    assert done[100] < pulses[5]
    depth = soccfg["tprocs"][0]["fifo_depth"]
    lead = np.searchsorted(pulses, done)
    assert (np.arange(2000) - lead).max() <= depth
    assert (np.diff(pulses) == pulses[1] - pulses[0]).all()


# ------------------------------------------------------------------------------------ other instructions
class Branching(Shot):
    """Reads its readout and plays the pulse again when I reaches a threshold; keeps what it saw in data memory."""

    def _initialize(self, cfg):
        super()._initialize(cfg)
        self.add_reg(name="seen")
        self.add_reg(name="place")
        self.write_reg(dst="place", src=3)

    def _body(self, cfg):
        super()._body(cfg)
        self.wait_auto(0.2)
        self.read_and_jump(ro_ch=0, component="I", threshold=cfg["threshold"], test="<", label="SKIP_PULSE")
        self.pulse(ch=0, name="pulse", t=110)
        self.label("SKIP_PULSE")
        self.write_reg(dst="seen", src="s_port_l")
        self.write_dmem(addr="place", src="seen")
        self.inc_reg(dst="place", src=1)
        self.delay(120)


def test_programs_branch_on_what_they_read(board):
    answers = iter([-5, 7, 2000, 99, 100, 101])
    asked = []

    def read(port, half, tick):
        if half == 0:
            asked.append((port, tick))
            return next(answers)
        return 0

    processor, run = carried_out(Branching(board, 6, 0.5, cfg={"threshold": 100}), read)
    assert len(of_port(run, 0)) == 6 + 3
    assert processor.read_mem("dmem", 6, addr=3).tolist() == [-5, 7, 2000, 99, 100, 101]
    assert [port for port, _ in asked] == [0] * 6
    assert (np.array([tick for _, tick in asked]) > set_times(run, 10) + int(100 * 430.08)).all()


class Subroutine(Shot):
    """Calls its pulse, and plays it from a loop of its own."""

    def _initialize(self, cfg):
        super()._initialize(cfg)
        play = AsmV2()
        play.pulse(ch=0, name="pulse", t=0)
        play.delay(0.5)
        self.add_subroutine("play", play)

    def _body(self, cfg):
        self.trigger(ros=[0], t=0.0)
        self.open_loop(4, name="again")
        self.call("play")
        self.close_loop()


def test_subroutines_and_loops_of_ones_own(board):
    _, run = carried_out(Subroutine(board, REPS, 0.5, cfg={}))
    times = of_port(run, 0)["time"].reshape(REPS, 4)
    assert (np.diff(times, axis=1) == int(0.5 * 430.08)).all()


class Resynchronised(Shot):
    def _body(self, cfg):
        super()._body(cfg)
        self.wait_auto(0)
        self.resync(0.1)
        self.pulse(ch=0, name="pulse", t=1)


def test_resync_sets_the_reference_behind_the_core(soccfg):
    _, run = carried_out(Resynchronised(soccfg, 1, 0.5, cfg={}))
    first, second = of_port(run, 0)["time"]
    waited = int((100.1 + 0.1 + 1) * 430.08)
    assert waited - 20 <= second - first <= waited + 20


class Loaded(Shot):
    def compile_datamem(self):
        return np.array([11, -22, 33])

    def _body(self, cfg):
        super()._body(cfg)
        self.read_dmem(dst="s_core_w2", addr=1)


def test_data_memory_comes_with_the_program(board):
    _, run = carried_out(Loaded(board, 2, 0.5, cfg={}))
    second = run.counter_events[run.counter_events["address"] == 2]
    assert second["value"].tolist() == [2**32 - 22] * 2


class Shaped(Shot):
    """A flat top is three waves for one time; their order is that of the pulse."""

    def _initialize(self, cfg):
        super()._initialize(cfg)
        self.add_gauss(ch=0, name="ramp", sigma=0.02, length=0.1, even_length=True)
        self.add_pulse(
            ch=0, name="pulse2", style="flat_top", envelope="ramp", freq=100, phase=0, gain=0.5, length=0.2
        )

    def _body(self, cfg):
        self.pulse(ch=0, name="pulse2", t=0.1)
        self.trigger(ros=[0], t=0)


def test_the_waves_of_a_flat_top_leave_in_their_order(board):
    program = Shaped(board, REPS, 0.5, cfg={})
    _, run = carried_out(program)
    names = program.list_pulse_waveforms("pulse2", exclude_special=False)
    table = {w.name: w.compile()[:6].view(np.uint32).tolist() for w in program.waves}
    sent = of_port(run, 0)
    assert sent["words"].tolist() == [table[name] for name in names] * REPS
    times = sent["time"].reshape(REPS, len(names))
    assert (np.diff(times, axis=1) == 3).all()


def test_waits_of_milliseconds_cost_nothing(soccfg):
    """The core would spin ten million times; the machine goes on at the time waited for."""
    program = Shot(soccfg, 20, 50_000, final_wait=49_000, cfg={})
    _, run = carried_out(program)
    assert run.end_tick > 19 * int(50_000 * 430.08)
    assert len(of_port(run, 0)) == 20
