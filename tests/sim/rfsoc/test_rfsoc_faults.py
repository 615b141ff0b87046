"""Faults of a board are seen as on a real one, and nothing hangs that need not."""

from __future__ import annotations

import numpy as np
import pytest
from libraries import skip_without

from sim.twins.rfsoc.board import COUNTER_READ_DURATION_S, FAULTS, DeviceClock

skip_without("qick")

SHORT = {"reps": 3, "readout_length": 20}


def test_a_dead_board_answers_no_call(loopback, programs):
    soc = loopback(fault="dead_board")
    program = programs.Averager(soc, dict(SHORT))
    with pytest.raises(ConnectionError, match="the board does not answer"):
        program.acquire_decimated(soc, progress=False)
    with pytest.raises(ConnectionError):
        soc.get_tproc_counter(addr=1)
    soc.knobs["fault"] = "none"
    assert program.acquire_decimated(soc, progress=False)[0].shape == (3, 2, 20)


def test_a_board_that_goes_in_the_middle_stays_away(loopback, programs):
    soc = loopback(fault="gone_in_acquisition")
    program = programs.Averager(soc, dict(SHORT))
    program.config_all(soc)
    soc.start_tproc()
    with pytest.raises(ConnectionError):
        soc.get_tproc_counter(addr=1)
    soc.knobs["fault"] = "none"
    with pytest.raises(ConnectionError):
        soc.clocks_locked()


def test_a_board_that_goes_while_sums_are_streamed_ends_the_acquisition(loopback, programs, capsys):
    soc = loopback(fault="gone_in_acquisition")
    program = programs.Averager(soc, {"reps": 1000, "readout_length": 20})
    with pytest.raises(RuntimeError, match="the reader of sums has failed") as raised:
        program.acquire(soc, progress=False)
    assert isinstance(raised.value.__cause__, ConnectionError)


def test_a_stuck_counter_stays_where_it_is_and_goes_on_when_freed(loopback, programs):
    soc = loopback()
    program = programs.Averager(soc, dict(SHORT))
    program.config_all(soc)
    soc.clear_tproc_counter(addr=1)
    soc.knobs["fault"] = "stuck_counter"
    soc.start_tproc()
    assert {soc.get_tproc_counter(addr=1) for _ in range(500)} == {0}
    soc.knobs["fault"] = "none"
    assert soc.get_tproc_counter(addr=1) == 3


@pytest.mark.long
def test_an_overrun_is_told_by_qicks_own_reader(loopback, programs, capsys):
    soc = loopback(fault="overrun")
    program = programs.Averager(soc, {"reps": 100_000, "readout_length": 20, "relax": 0.1})
    with pytest.raises(RuntimeError, match="the reader of sums has failed") as raised:
        program.acquire(soc, progress=False)
    assert "Overflowed the averages buffer" in str(raised.value.__cause__)
    soc.knobs["fault"] = "none"
    few = programs.Averager(soc, {"reps": 100, "readout_length": 20, "relax": 0.1})
    assert few.acquire(soc, progress=False)[0][0].shape == (1,)


def test_a_wrong_clock_is_seen_in_locks_rates_and_times(loopback, programs, complex_trace):
    soc = loopback(noise="off", delay_ns=200)
    program = programs.Averager(soc, {"reps": 1, "freq": 300})
    edges = {}
    for fault in ("none", "wrong_clock"):
        soc.knobs["fault"] = fault
        magnitude = np.abs(complex_trace(program.acquire_decimated(soc, progress=False)))
        edges[fault] = int(np.argmax(magnitude > 900))
        assert soc.clocks_locked() == (fault == "none")
    assert soc.get_sample_rates()["adc"] == {0: pytest.approx(0.95 * 4096)}
    assert soc.get_sample_rates()["dac"][1] == pytest.approx(0.95 * 6144)
    # 200 ns are 5 % fewer samples of a clock that is 5 % slow.
    assert edges["none"] - edges["wrong_clock"] == pytest.approx(0.05 * 102.4, abs=1.0)


def test_there_is_no_other_fault(loopback):
    soc = loopback()
    with pytest.raises(ValueError, match="unknown fault 'gremlins'; known"):
        soc.knobs["fault"] = "gremlins"
    assert {*FAULTS} == {
        "none",
        "dead_board",
        "gone_in_acquisition",
        "stuck_counter",
        "overrun",
        "wrong_clock",
    }


def test_looks_in_vain_take_longer_and_never_pass_the_news_by_more_than_one():
    clock = DeviceClock()
    looks = 0
    while clock.now_s < 1.0:
        clock.spend_read_time(1.0)
        looks += 1
    assert looks < 20
    assert clock.now_s <= 1.0 + COUNTER_READ_DURATION_S
    clock.reset_read_time()
    before = clock.now_s
    clock.spend_read_time(None)
    assert clock.now_s - before == pytest.approx(COUNTER_READ_DURATION_S)


def test_time_that_passed_is_accounted_for_once():
    clock = DeviceClock()
    clock.spend_time(0.25)
    clock.spend_time(0.5)
    assert (clock.account_for_time(), clock.account_for_time(), clock.now_s) == (0.75, 0.0, 0.75)
