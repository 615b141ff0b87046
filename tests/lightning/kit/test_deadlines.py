import gc
import threading

import pytest

from lightning import errors
from lightning.kit import profiles
from lightning.kit.config import Configuration
from lightning.kit.devices.deadline import Patience, Progress
from lightning.kit.devices.guard import Worker
from lightning.kit.programs import count_ticks


class Board:
    """The least that QICK asks of a board for one run of a decimated acquisition; `counts` is what it counts."""

    identity = "board-7"
    simulated = False

    def __init__(self, clock, counts, step_s, start_s=0.0):
        self.soccfg = profiles.load("lightning-zcu111").make_soccfg()
        self.clock, self.counts, self.step_s, self.start_s = clock, iter(counts), step_s, start_s
        self.stream = []
        self.asked = []

    def get_cfg(self):
        return self.soccfg.get_cfg()

    def load_bin_program(self, binprog, load_mem=True):
        self.binprog = binprog

    def start_src(self, src):
        self.src = src

    def start_tproc(self):
        self.clock.wait(self.start_s)

    def start_readout(self, *args):
        pass

    def poll_data(self, totaltime=0.1, timeout=None):
        self.asked.append(timeout)
        self.clock.wait(self.step_s)
        return self.stream.pop(0) if self.stream else []

    def get_tproc_counter(self, addr):
        self.clock.wait(self.step_s)
        return next(self.counts)


@pytest.fixture
def guard(clock):
    pytest.importorskip("qick", reason="the guard is a QickConfig: pip install 'lightbed[kit]'")
    from lightning.kit.devices.guard import GuardedSoc

    def make(counts, *, step_s=1.0, **more):
        board = Board(clock, counts, step_s, **more)
        return GuardedSoc(board, clock=clock), board

    return make


def _until(guarded, count):
    seen = 0
    while seen < count:
        seen = guarded.get_tproc_counter(1)
    return seen


def forever(first, last):
    yield from first
    while True:
        yield last


def test_a_counter_that_stands_still_is_stuck_after_five_seconds(guard, clock):
    guarded, _ = guard(forever([1, 2], 2))
    guarded.start_tproc()
    with pytest.raises(
        errors.DeviceStuck, match=r"board-7.*has not moved for 6.0 s, in run 1, after 2 shots"
    ):
        _until(guarded, 4)
    assert clock.now == 2.0 + 6.0


def test_progress_within_five_seconds_is_waited_for(guard, clock):
    guarded, _ = guard([1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3])
    guarded.start_tproc()
    assert _until(guarded, 3) == 3
    assert clock.now == 11.0


def test_a_run_far_over_its_compiled_length_is_stuck_although_it_counts(guard, clock):
    guarded, board = guard(range(1, 1000))
    regwi, synci, loopnz = (
        (0x19 << 56) | (14 << 41) | 9,
        (0x14 << 56) | 38_400_000,
        (0x30 << 56) | (14 << 41) | 1,
    )
    guarded.load_bin_program([regwi, synci, loopnz, 0x3F << 56])
    assert board.binprog[0] == regwi
    guarded.start_tproc()
    # Ten rounds of 0.1 s are 1 s; 5 s and ten times that are 15 s.
    with pytest.raises(errors.DeviceStuck, match=r"the run has taken 16\.0 s; the limit is 15\.0 s"):
        _until(guarded, 900)
    assert clock.now == 16.0


def test_a_twin_may_reckon_for_long_where_a_board_would_be_stuck(guard, clock, monkeypatch):
    """A busy computer makes a twin slow: 100 s for ten shots of a millisecond."""
    for simulated in (False, True):
        monkeypatch.setattr(Board, "simulated", simulated)
        guarded, _ = guard([10], step_s=100.0)
        guarded.expect_duration(0.001)
        guarded.load_bin_program({"pmem": []})
        guarded.start_tproc()
        if simulated:
            assert _until(guarded, 10) == 10
        else:
            with pytest.raises(errors.DeviceStuck, match=r"the run has taken 100\.0 s; the limit is 5\.0 s"):
                _until(guarded, 10)


def test_other_deadlines_hold_from_then_on(guard, clock):
    guarded, _ = guard(forever([1], 1))
    guarded.start_tproc()
    guarded.set_patience(Patience(progress_s=60.0))
    with pytest.raises(errors.DeviceStuck, match=r"its shot counter has not moved for 61\.0 s"):
        _until(guarded, 4)


def test_what_is_expected_holds_for_one_program_only(guard):
    guarded, _ = guard(range(1, 1000))
    guarded.expect_duration(0.1)
    guarded.load_bin_program({"pmem": []})
    guarded.start_tproc()
    with pytest.raises(errors.DeviceStuck, match=r"the run has taken 7\.0 s; the limit is 6\.0 s"):
        _until(guarded, 900)
    guarded.load_bin_program({"pmem": []})
    guarded.start_tproc()
    assert _until(guarded, 900) == 900


@pytest.mark.parametrize("opcode", [0x31, 0x52, 0x54])
def test_a_program_whose_length_its_words_do_not_tell_may_take_its_time(guard, opcode):
    guarded, _ = guard(range(1, 1000))
    guarded.load_bin_program([opcode << 56, 0x3F << 56])
    guarded.start_tproc()
    assert _until(guarded, 900) == 900


def test_a_loop_whose_count_is_not_written_has_no_length():
    loopnz = (0x30 << 56) | (14 << 41)
    assert count_ticks([0x14 << 56 | 10, loopnz]) is None
    assert count_ticks([loopnz | 1, 0x3F << 56]) is None


def test_an_external_start_is_named_as_what_is_missing(guard):
    guarded, _ = guard(forever([], 0))
    guarded.start_src("external")
    guarded.start_tproc()
    with pytest.raises(errors.DeviceStuck, match="external trigger"):
        _until(guarded, 1)


def test_the_total_of_an_external_start_runs_from_its_first_shot(guard):
    guarded, _ = guard([0, 0, 0, 0, 1, 2, 3])
    guarded.start_src("external")
    guarded.expect_duration(0.0)
    guarded.load_bin_program({})
    guarded.start_tproc()
    assert _until(guarded, 3) == 3


def test_the_stream_is_never_waited_for_without_end(guard, clock):
    guarded, board = guard(forever([3], 3))
    guarded.start_readout(10, 1, [0], [1])
    with pytest.raises(errors.DeviceStuck, match="after 3 shots"):
        while True:
            assert guarded.poll_data() == []
    assert None not in board.asked


def test_a_slow_stream_is_not_stuck_while_the_counter_moves(guard, clock):
    guarded, board = guard(range(1, 100))
    board.stream = [[]] * 20 + [[(20, ([], None))]]
    guarded.start_readout(20, 1, [0], [1])
    found = []
    while not found:
        found = guarded.poll_data()
    assert found[0][0] == 20
    assert clock.now == 41.0


@pytest.mark.parametrize(
    ("cause", "raised"), [(ConnectionResetError, errors.DeviceGone), (KeyError, RuntimeError)]
)
def test_a_board_lost_in_the_thread_that_reads_its_stream_is_reported_as_lost(guard, cause, raised):
    guarded, board = guard(forever([1], 1))

    def failed(totaltime, timeout):
        raise RuntimeError("exception in readout loop") from cause("in the thread")

    board.poll_data = failed
    guarded.start_readout(10, 1, [0], [1])
    with pytest.raises(raised, match="in the thread" if raised is errors.DeviceGone else "readout loop"):
        guarded.poll_data()


def test_a_lost_board_is_named_with_how_far_it_was(guard):
    guarded, board = guard(forever([1], 2))

    def gone(addr):
        raise ConnectionResetError("reset by peer")

    guarded.start_tproc()
    assert guarded.get_tproc_counter(1) == 1
    board.get_tproc_counter = gone
    fresh, _ = guard([])
    fresh.unguarded.get_tproc_counter = gone
    with pytest.raises(
        errors.DeviceGone, match=r"board-7.*get_tproc_counter before the first run.*reset by peer"
    ):
        fresh.get_tproc_counter(1)


def test_the_guard_is_the_soccfg_too(guard):
    from qick import QickConfig

    from lightning import LightningControl

    guarded, board = guard([])
    assert isinstance(guarded, QickConfig)
    assert guarded["gens"] == board.soccfg["gens"]
    assert guarded.us2cycles(1.0) == board.soccfg.us2cycles(1.0)
    assert LightningControl(guarded, Configuration()).words == (0, 0, 0, 0)


def test_what_a_soc_has_not_the_guard_has_not(guard):
    guarded, _ = guard([])
    with pytest.raises(AttributeError):
        _ = guarded.no_such_thing


def test_runs_are_counted(clock):
    progress = Progress("x", Patience(), clock)
    assert progress.progress_text == "before the first run"
    for _ in range(3):
        progress.begin(None)
    progress.note_count(2)
    assert progress.progress_text == "in run 3, after 2 shots"


def test_a_call_that_never_returns_is_given_up_and_the_next_gets_through():
    worker = Worker()
    held = threading.Event()
    hangs = worker.limit_time(held.wait, 0.02)
    with pytest.raises(TimeoutError, match=r"did not return within 0\.02 s"):
        hangs()
    assert worker.limit_time(lambda a, b: a + b, 10.0)(1, b=2) == 3
    held.set()


@pytest.mark.slow
def test_the_thread_ends_with_its_worker():
    worker = Worker()
    thread = worker.limit_time(threading.current_thread, 10.0)()
    assert thread.is_alive()
    del worker
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()


def test_a_bare_soc_gets_deadlines_for_its_own_hardware(clock):
    pytest.importorskip("qick", reason="the guard is a QickConfig: pip install 'lightbed[kit]'")
    from lightning.kit.devices.guard import guard_soc

    guard = guard_soc(Board(clock, [5], 0.0))
    assert guard_soc(guard) is guard
    assert guard.get_tproc_counter(1) == 5
    held = threading.Event()
    guard.unguarded.get_decimated = held.wait
    guard.set_patience(Patience(call_s=0.02))
    with pytest.raises(
        errors.DeviceGone, match=r"no answer to get_decimated .*did not return within 0\.02 s"
    ):
        guard.get_decimated()
    held.set()


def test_errors_of_a_call_come_back_as_they_are():
    def fails():
        raise KeyError("readouts")

    with pytest.raises(KeyError, match="readouts"):
        Worker().limit_time(fails, 10.0)()


def test_compiled_length_of_qicks_own_program():
    qick = pytest.importorskip("qick", reason="compiles programs: pip install 'lightbed[kit]'")

    class Nested(qick.RAveragerProgram):
        def initialize(self):
            self.synci(200)

        def body(self):
            self.synci(1000)

        def update(self):
            self.synci(7)

    config = {"reps": 3, "expts": 5, "start": 0, "step": 1}
    program = Nested(profiles.load("lightning-zcu111").make_soccfg(), config)
    assert count_ticks(program.binprog) == 200 + 5 * (3 * 1000 + 7)
    # Before the loops: synci, regwi, regwi; each experiment: regwi, shots of synci, mathi, memwi, loopnz, then synci,
    # loopnz; at last end.
    assert (
        count_ticks(program.binprog, ticks_per_instruction=1) - count_ticks(program.binprog)
        == 3 + 5 * (1 + 3 * 4 + 2) + 1
    )
