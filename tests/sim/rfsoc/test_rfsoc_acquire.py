"""Results of stock program classes on the board: shapes, sums, noise, streaming, and never anything stale."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
from libraries import skip_without

from sim.twins.rfsoc import NotSimulated, ProgramError, connect

skip_without("qick")


def test_decimated_and_accumulated_data_have_qicks_shapes_and_types(loopback, programs):
    soc = loopback()
    program = programs.Averager(soc, {"reps": 3, "readout_length": 50})
    waveform = program.acquire_decimated(soc, progress=False)
    assert [one.shape for one in waveform] == [(3, 2, 50)]
    samples, sums = soc.get_decimated(ch=0, length=150), soc.get_accumulated(ch=0, length=3)
    assert (samples.shape, samples.dtype) == ((150, 2), np.int16)
    assert (sums.shape, sums.dtype) == ((3, 2), np.int32)
    assert sums.tolist() == samples.reshape(3, 50, 2).sum(axis=1, dtype=np.int64).tolist()


def test_noise_differs_between_rounds_and_returns_with_the_seed(loopback, programs):
    def rounds(seed):
        soc = loopback(seed=seed)
        program = programs.Averager(soc, {"reps": 1, "soft_avgs": 3})
        program.acquire_decimated(soc, progress=False)
        return [one[0].ravel().tolist() for one in program.get_rounds()]

    first, again, other = rounds(1), rounds(1), rounds(2)
    assert first == again
    assert first != other
    assert first[0] != first[1] != first[2]


def test_a_changed_gain_word_changes_the_waveform(loopback, programs, complex_trace):
    soc = loopback(noise="off", delay_ns=0)
    seen = [
        np.abs(
            complex_trace(
                programs.Averager(soc, {"reps": 1, "gain": gain}).acquire_decimated(soc, progress=False)
            )
        )[50]
        for gain in (10000, 20000, 10000)
    ]
    assert seen[1] == pytest.approx(2 * seen[0], rel=0.002)
    assert seen[2] == seen[0]


def test_ten_rounds_and_a_thousand_shots_ask_the_plant_once(loopback, programs):
    soc = loopback()
    program = programs.Averager(soc, {"reps": 4, "soft_avgs": 10, "readout_length": 50})
    program.acquire_decimated(soc, progress=False)
    programs.Averager(soc, {"reps": 1000, "readout_length": 50}).acquire(soc, progress=False)
    assert soc._board.readouts[0].traces.plant_call_count == 1


@pytest.mark.long
def test_streaming_reads_a_hundred_thousand_shots_without_overrun(loopback, programs):
    soc = loopback(delay_ns=200, gain=0.5)
    program = programs.Averager(soc, {"reps": 100_000, "readout_length": 20, "offset": 100, "relax": 0.1})
    (real,), _ = program.acquire(soc, progress=False)
    assert program.get_raw()[0].shape == (100_000, 1, 2)
    assert len(program.stats) > 10
    # The mean of 2,000,000 samples of a noise of 1e-3 of full scale: less than 0.02 counts from the level.
    assert real[0] == pytest.approx(30000 / 32768 * 0.5 * 32767 * 270382 / 2**19 / 2, rel=1e-3)


def test_progress_is_seen_while_a_program_runs(loopback, programs):
    soc = loopback()
    program = programs.Averager(soc, {"reps": 2000, "readout_length": 20, "relax": 1.0})
    program.config_all(soc)
    soc.clear_tproc_counter(addr=1)
    soc.start_tproc()
    seen = [soc.get_tproc_counter(addr=1) for _ in range(200)]
    assert seen[0] < 100
    assert seen == sorted(seen)
    assert len(set(seen)) > 50
    assert seen[-1] == 2000


def test_a_program_that_waits_long_is_waited_for_with_few_looks(loopback, programs):
    soc = loopback()
    program = programs.Averager(soc, {"reps": 1, "readout_length": 20, "relax": 1.0})
    program.config_all(soc)
    soc.clear_tproc_counter(addr=1)
    soc.start_tproc()
    looks = next(i for i in range(1000) if soc.get_tproc_counter(addr=1) == 1)
    assert looks < 30


class Mutation:
    """One change between two rounds, made on a twin and recorded to be made on a fresh one."""

    CHOICES = (
        "gain",
        "freq",
        "length",
        "envelope",
        "delay_ns",
        "gain_0_0",
        "phase_deg",
        "adc_bits",
        "filter",
        "none",
    )

    @staticmethod
    def apply(rng, cfg, knobs):
        choice = Mutation.CHOICES[rng.integers(len(Mutation.CHOICES))]
        if choice == "gain":
            cfg["gain"] = int(rng.integers(1000, 32000))
        elif choice == "freq":
            cfg["freq"] = float(rng.choice([0.0, 100.0, 300.0]))
        elif choice == "length":
            cfg["length"] = int(rng.integers(20, 60))
        elif choice == "envelope":
            cfg["style"] = "arb" if cfg.get("style") == "const" else "const"
        elif choice == "adc_bits":
            knobs["adc_bits"] = int(rng.integers(8, 17))
        elif choice == "filter":
            knobs["filter"] = "mean" if knobs.get("filter") == "fir" else "fir"
        elif choice != "none":
            knobs[choice] = float(rng.uniform(0.1, 100 if choice == "delay_ns" else 1))
        return choice


@pytest.mark.long
def test_no_change_between_rounds_is_answered_with_a_trace_of_before(loopback, programs):
    """Random changes of program, envelopes, cables and converter: always what a fresh twin gives."""
    rng = np.random.default_rng(7)
    soc = loopback(noise="off")
    cfg, knobs = {"reps": 2, "readout_length": 60, "length": 40, "style": "const"}, {}
    done = []
    for _ in range(60):
        done.append(Mutation.apply(rng, cfg, knobs))
        fresh = loopback(noise="off")
        for twin in (soc, fresh):
            for name, value in knobs.items():
                twin.set_knob(name, value)
        worn, new = (
            programs.Averager(twin, dict(cfg)).acquire_decimated(twin, progress=False)[0]
            for twin in (soc, fresh)
        )
        assert worn.tolist() == new.tolist(), done
    assert set(done) == set(Mutation.CHOICES)


def test_a_run_of_before_leaves_its_memory_as_the_program_would(loopback, programs):
    soc = loopback()
    program = programs.Averager(soc, {"reps": 5, "soft_avgs": 4})
    program.acquire_decimated(soc, progress=False)
    assert soc.read_mem(2).tolist() == [0, 5]


def test_windows_longer_than_the_memory_are_refused_by_qick(loopback, programs):
    soc = loopback()
    program = programs.Averager(soc, {"reps": 100, "readout_length": 200})
    with pytest.raises(RuntimeError, match="exceeds buffer size"):
        program.acquire_decimated(soc, progress=False)
    with pytest.raises(
        RuntimeError, match="4096 samples at once are too many: the memory has 4096 places, one of"
    ):
        soc.config_buf(ch=0, length=4096)
    with pytest.raises(
        RuntimeError, match="16384 sums at once are too many: the memory has 16384 places, one of which"
    ):
        soc.get_accumulated(ch=0)
    with pytest.raises(RuntimeError, match="does not fit: generator 0 has room for 65536"):
        soc.load_envelope(0, np.zeros((16, 2)), addr=65536)


def test_an_external_start_waits_for_the_pin(loopback, programs):
    soc = loopback()
    program = programs.Averager(soc, {"reps": 3})
    program.config_all(soc)
    soc.clear_tproc_counter(addr=1)
    soc.start_src("external")
    soc.start_tproc()
    assert [soc.get_tproc_counter(addr=1) for _ in range(5)] == [0] * 5
    soc.pulse_start_pin()
    assert max(soc.get_tproc_counter(addr=1) for _ in range(5)) == 3


def test_a_stopped_program_counts_and_stores_no_further(loopback, programs):
    soc = loopback()
    program = programs.Averager(soc, {"reps": 10_000, "relax": 1.0, "readout_length": 20})
    program.config_all(soc)
    program.config_bufs(soc, enable_buf=False)
    soc.clear_tproc_counter(addr=1)
    soc.start_tproc()
    reached = soc.get_tproc_counter(addr=1)
    soc.stop_tproc()
    soc.elapse(1.0)
    after = soc.get_tproc_counter(addr=1)
    assert 0 < reached <= after < 200
    assert not soc.get_accumulated(ch=0, address=300, length=100).any()


def test_a_program_may_read_what_a_readout_summed(loopback, programs):
    """The processor's `read` gets I of the window just ended, and keeps it in data memory."""

    class Reading(programs.Averager):
        def body(self):
            super().body()
            self.read(0, 0, "lower", 5)
            self.memwi(0, 5, 17)
            self.read(0, 0, "upper", 6)
            self.memwi(0, 6, 18)

    soc = loopback()
    program = Reading(soc, {"reps": 1, "offset": 100, "readout_length": 20})
    program.acquire_decimated(soc, progress=False)
    sums = soc.get_accumulated(ch=0, length=1)[0].tolist()
    assert sums[0] > 10000
    assert soc.read_mem(2, addr=17).tolist() == sums


@pytest.mark.long
def test_version_2_averages_and_streams(loopback, programs):
    soc = loopback(profile="zcu216", delay_ns=100, noise_rms=0.01)
    cfg = {"freq": 300, "offset": 0.2, "readout_length": 0.1}
    program = programs.AveragerV2(soc, reps=3000, final_delay=0.5, cfg=cfg)
    averaged = program.acquire(soc, rounds=2, progress=False)
    assert averaged[0].shape == (1, 2)
    raw = program.get_raw()[0]
    assert raw.shape == (3000, 1, 2)
    # Noise of a sum of 31 outputs: between that of white noise and that of one narrowed to the filter's pass band.
    per_output = 0.01 * 32768 * 0.5 * (270382 / 2**19) * np.sqrt(0.5)
    assert raw[:, 0, 0].std() == pytest.approx(per_output * np.sqrt(31 / 8), rel=0.1)
    waveform = programs.AveragerV2(soc, reps=2, final_delay=0.5, cfg=cfg).acquire_decimated(
        soc, progress=False
    )
    assert waveform[0].shape == (2, 31, 2)


def test_a_program_of_the_other_version_is_refused(loopback, programs):
    one, two = loopback(), loopback(profile="zcu216")
    with pytest.raises(ProgramError):
        one.load_bin_program(programs.AveragerV2(two, reps=1, final_delay=1.0, cfg={}).binprog)
    with pytest.raises(ProgramError):
        two.load_bin_program(programs.Averager(one, {"reps": 1}).binprog)


@pytest.mark.parametrize("profile", ["lightning-zcu111", "zcu111", "rfsoc4x2"])
def test_the_same_program_runs_on_every_board_of_version_1(loopback, programs, complex_trace, profile):
    soc = loopback(profile=profile, delay_ns=0, noise="off")
    program = programs.Averager(soc, {"reps": 2, "freq": 300, "length": 200})
    trace = np.abs(complex_trace(program.acquire_decimated(soc, progress=False)))
    assert trace[60] == pytest.approx(30000 / 32768 * 0.5 * 32767 * 270382 / 2**19 / 4, rel=0.01)


def test_the_kit_answers_through_the_same_board(programs, complex_trace):
    soc = connect("sim://kit?noise=off")
    assert (soc.identity, soc.simulated) == ("sim-kit-0001", True)
    program = programs.Averager(soc, {"gen": 0, "ro": 1, "gain": 20000, "reps": 1, "readout_length": 250})
    trace = complex_trace(program.acquire_decimated(soc, progress=False))
    assert np.abs(trace).max() < 500  # the second modulator is dark


def test_edges_are_not_counted(loopback):
    soc = loopback()
    with pytest.raises(NotSimulated, match="counting of edges"):
        soc.config_avg(0, length=10, edge_counting=True)


def test_a_memory_enabled_while_a_program_runs_takes_what_comes_from_then_on(loopback, programs):
    soc = loopback(noise="off")
    program = programs.Averager(soc, {"reps": 100, "relax": 1.0, "readout_length": 20, "offset": 110})
    program.config_all(soc)
    soc.start_tproc()
    soc.config_avg(0, length=20)
    soc.enable_buf(0, enable_avg=True, enable_buf=False)
    soc.elapse(1.0)
    stored = soc.get_accumulated(0, length=101)[:, 0]
    assert 20 < np.count_nonzero(stored) < 98  # the first shots had passed
    assert len(set(stored[stored > 0].tolist())) == 1


def test_a_window_that_was_opened_before_a_stop_is_filled(loopback, programs):
    soc = loopback(profile="zcu216", noise="off", delay_ns=0)
    cfg = {"readout_length": 10.0, "length": 20.0}
    program = programs.AveragerV2(soc, reps=1, final_delay=1.0, cfg=cfg)
    program.config_all(soc)
    program.config_bufs(soc)
    soc.clear_tproc_counter(addr=1)
    soc.start_tproc()
    soc.elapse(5e-6)
    soc.stop_tproc()
    count = program.ro_chs[0]["length"]
    samples = soc.get_decimated(0, length=count)
    assert np.count_nonzero(samples[:, 0]) > 0.99 * count


def test_a_stopped_generator_stands_as_it_was_when_it_was_stopped(loopback, programs, complex_trace):
    """The first of two held pulses stands when the program is stopped before the second."""
    from qick.asm_v2 import AveragerProgramV2

    class TwoHeld(AveragerProgramV2):
        def _initialize(self, cfg):
            self.declare_gen(ch=0, nqz=1)
            for name, gain in (("high", 0.8), ("low", 0.2)):
                self.add_pulse(
                    ch=0, name=name, style="const", length=0.1, freq=0, phase=0, gain=gain, stdysel="last"
                )

        def _body(self, cfg):
            self.pulse(ch=0, name="high", t=0)
            self.pulse(ch=0, name="low", t=1000)

    soc = loopback(profile="zcu216", noise="off", delay_ns=0)
    silent = programs.AveragerV2(soc, reps=1, final_delay=1.0, cfg={"gen": 1, "gain": 0})
    levels = []
    for waited in (100e-6, 2e-3):
        TwoHeld(soc, reps=1, final_delay=1.0, cfg={}).config_all(soc)
        soc.start_tproc()
        soc.elapse(waited)
        soc.stop_tproc()
        levels.append(abs(complex_trace(silent.acquire_decimated(soc, progress=False))[100]))
    assert levels[0] / levels[1] == pytest.approx(4.0, rel=0.01)


def test_an_envelope_written_between_rounds_is_played(loopback, programs, complex_trace):
    soc = loopback(noise="off", delay_ns=0)
    program = programs.Averager(soc, {"reps": 1, "style": "arb", "freq": 300})
    before = np.abs(complex_trace(program.acquire_decimated(soc, progress=False)))
    soc.load_envelope(0, np.zeros((1600, 2)), addr=0)
    after = np.abs(complex_trace(program.acquire_decimated(soc, load_pulses=False, progress=False)))
    assert before.max() > 500
    assert after.max() == 0


@pytest.mark.parametrize(
    "address", ["sim://kit?profile=zcu216&noise=off", "sim://kit?profile=rfsoc4x2&noise=off"]
)
def test_the_kit_runs_behind_every_board(programs, address):
    soc = connect(address)
    if soc.TPROC_VERSION == 2:
        program = programs.AveragerV2(soc, reps=1, final_delay=1.0, cfg={"gain": 0.5, "ro": 1})
    else:
        program = programs.Averager(soc, {"ro": 1, "reps": 1, "gain": 20000})
    (waveform,) = program.acquire_decimated(soc, progress=False)
    assert 0 < np.abs(waveform).max() < 1000


@pytest.mark.slow
def test_streamed_sums_return_with_the_seed(loopback, programs):
    def streamed(seed):
        soc = loopback(seed=seed, noise_rms=0.01)
        program = programs.Averager(soc, {"reps": 5000, "readout_length": 20, "offset": 110, "relax": 0.1})
        program.acquire(soc, progress=False)
        return program.get_raw()[0].tolist()

    first, again, other = streamed(3), streamed(3), streamed(4)
    assert first == again
    assert first != other


@pytest.mark.slow
def test_the_streaming_thread_ends_with_its_twin(loopback, programs):
    def streamers():
        return {thread for thread in threading.enumerate() if "_run_readout" in thread.name}

    before = streamers()
    soc = loopback()
    programs.Averager(soc, {"reps": 50, "readout_length": 20}).acquire(soc, progress=False)
    (mine,) = streamers() - before
    del soc
    gc.collect()
    mine.join(timeout=10)
    assert not mine.is_alive()


def test_a_streaming_thread_at_work_ends_with_its_twin_in_silence(loopback, programs, capsys):
    before = set(threading.enumerate())
    soc = loopback(fault="stuck_counter")
    program = programs.Averager(soc, {"reps": 50, "readout_length": 20})
    program.config_all(soc)
    soc.start_readout(50, counter_addr=1, ch_list=[0], reads_per_shot=[1])
    (mine,) = (thread for thread in set(threading.enumerate()) - before if "_run_readout" in thread.name)
    del soc, program
    gc.collect()
    mine.join(timeout=10)
    assert not mine.is_alive()
    assert capsys.readouterr().out == ""


def test_a_start_has_no_effect_while_a_program_of_version_1_is_under_way(loopback, programs):
    soc = loopback(noise="off")
    program = programs.Averager(soc, {"reps": 100, "relax": 1000})
    program.config_all(soc)
    program.config_bufs(soc, enable_avg=True, enable_buf=False)
    soc.start_tproc()
    soc.elapse(0.05)
    so_far = soc.get_tproc_counter(1)
    assert 40 < so_far < 60
    soc.start_tproc()
    assert so_far <= soc.get_tproc_counter(1) <= so_far + 2
    soc.elapse(0.06)
    assert soc.get_tproc_counter(1) == 100
    soc.start_tproc()  # it has come to its end: from the beginning
    assert soc.get_tproc_counter(1) < 2
    soc.stop_tproc()
    soc.start_tproc()  # stopped: likewise
    assert soc.get_tproc_counter(1) < 2
    again = programs.Averager(soc, {"reps": 5})  # a program that is loaded ends the one under way
    again.acquire(soc, progress=False)
    assert soc.get_tproc_counter(1) == 5
