"""The limit on how long a device may say nothing, and what is told meanwhile; on a clock that the test holds."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocs_drivers import CrossConnects, Step
from ocs_drivers.engine.step_execution import LOG_INTERVAL_S, ProgressLog
from ocs_drivers.errors import ConnectError, Timeout
from ocs_drivers.protocols.session import TransportSession
from ocs_drivers.timing import READ_MARGIN_S, Deadline, Silence, make_answer_deadline, record_answer
from ocs_drivers.transports.recording import record_sessions
from ocs_drivers.transports.transport import make_connect_error, make_timeout

STEP = Step("add", CrossConnects({1: 10}), CrossConnects(), CrossConnects({1: 10}), 0.0)


class StillClock:
    now_s = 100.0

    def now(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock():
    return StillClock()


def test_questions_share_the_time_of_a_silence(clock):
    silence = Silence(8.0, clock)
    with silence.limit_waits():
        assert make_answer_deadline(5.0, clock).remaining_s() == 5.0
        clock.sleep(5.0)
        assert make_answer_deadline(5.0, clock).remaining_s() == 3.0
        clock.sleep(3.0)
        assert make_answer_deadline(5.0, clock).remaining_s() == 0.0
        record_answer()
        assert make_answer_deadline(5.0, clock).remaining_s() == 5.0
    assert make_answer_deadline(5.0, clock).remaining_s() == 5.0


def test_a_question_that_may_take_long_by_itself_is_given_its_time_and_little_is_left_after_it(clock):
    with Silence(8.0, clock).limit_waits():
        assert make_answer_deadline(15.0, clock).remaining_s() == 15.0
        clock.sleep(15.0)
        assert make_answer_deadline(5.0, clock).remaining_s() == READ_MARGIN_S
        record_answer()
        assert make_answer_deadline(5.0, clock).remaining_s() == 5.0


def test_a_pause_before_the_question_counts_as_far_as_the_question_has_its_time(clock):
    with Silence(8.0, clock).limit_waits():
        clock.sleep(2.0)
        assert make_answer_deadline(5.0, clock).remaining_s() == 5.0
        clock.sleep(5.0)
        assert make_answer_deadline(5.0, clock).remaining_s() == 1.0  # 8 s after the last answer
        record_answer()
        clock.sleep(30.0)
        assert make_answer_deadline(5.0, clock).remaining_s() == 5.0
        clock.sleep(5.0)
        assert make_answer_deadline(5.0, clock).remaining_s() == 0.0


def test_the_end_of_a_silence_says_how_long_it_was_and_not_to_raise_a_timeout(clock):
    with Silence(8.0, clock).limit_waits():
        assert "no answer within 5 s" in str(make_timeout("ocs", make_answer_deadline(5.0, clock)))
        clock.sleep(5.0)
        error = make_timeout("ocs", make_answer_deadline(5.0, clock))
    assert "no answer for 8 s" in str(error)
    assert "Raise" not in str(error)


class Unreachable:
    """A transport that nobody answers on; notes how long it was given."""

    is_open = False

    def __init__(self, clock: StillClock) -> None:
        self.clock, self.given_s = clock, []

    def open(self, timeout_s: float) -> None:
        self.given_s.append(timeout_s)
        self.clock.sleep(timeout_s)
        raise make_connect_error("ocs", f"no shell within {timeout_s:.3g} s")

    def close(self) -> None:
        pass


class Session(TransportSession):
    def _start(self) -> None:
        raise AssertionError


def test_connecting_to_a_silent_device_says_how_long_it_was_silent_and_does_not_try_for_no_time(clock):
    line = Unreachable(clock)
    session = Session(line, device="ocs", timeout_s=5.0, clock=clock)
    with Silence(8.0, clock).limit_waits():
        with pytest.raises(ConnectError, match="no shell within 5 s"):
            session.open()
        for _ in range(2):
            with pytest.raises(Timeout, match="no answer for 8 s"):
                session.open()
    assert line.given_s == [5.0, 3.0]


def test_an_outage_counts_from_the_last_answer_and_is_given_a_short_while(clock):
    silence = Silence(8.0, clock)
    clock.sleep(5.0)  # a pause between two reads
    silence.record_query()
    assert silence.outage_remaining_s(2.0) == 3.0
    clock.sleep(3.0)
    assert silence.outage_remaining_s(2.0) == 0.0
    silence.record_answer()
    clock.sleep(20.0)
    silence.record_query()
    assert silence.outage_remaining_s(2.0) == 2.0


class Slow:
    """A transport whose answer takes `takes_s`."""

    is_open = True

    def __init__(self, clock: StillClock, takes_s: float) -> None:
        self.clock, self.answers_s = clock, clock.now() + takes_s

    def receive(self, deadline: Deadline) -> bytes:
        left_s = min(self.answers_s - self.clock.now(), deadline.remaining_s())
        self.clock.sleep(left_s)
        if self.clock.now() < self.answers_s:
            raise make_timeout("ocs", deadline)
        return b"done"


@pytest.mark.parametrize(("takes_s", "told"), [(4.9, 0), (5.1, 1), (17.3, 3), (24.9, 4)])
def test_progress_is_told_while_one_answer_is_awaited(clock, caplog, takes_s, told):
    caplog.set_level(logging.INFO, "ocs_drivers.progress")
    silence = Silence(8.0, clock)
    progress = ProgressLog(STEP, "calient+rest://h", clock, silence)
    session = Session(Slow(clock, takes_s), device="ocs", timeout_s=5.0, clock=clock)
    with silence.limit_waits(progress.log_query):
        assert session._receive(make_answer_deadline(25.0, clock)) == b"done"
    assert [record.getMessage() for record in caplog.records] == [
        f"calient+rest://h: connect 1->10: {5 * each} s so far; no answer yet" for each in range(1, told + 1)
    ]


def test_a_calient_that_answers_late_over_rest_is_told_of_and_recorded_as_one_answer(
    world, open_in_memory, caplog, tmp_path
):
    caplog.set_level(logging.INFO, "ocs_drivers.progress")
    twin = world("calient", settings={"switch_time_s": 12.0})
    with record_sessions(tmp_path / "wire"):
        switch = open_in_memory(twin, "calient+rest", "rest", activation_s="20")
        assert switch.connect({1: 10}).complete
        switch.close()
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        "connect 1->10: 5 s so far; no answer yet",
        "connect 1->10: 10 s so far; no answer yet",
    ]
    recorded = (tmp_path / "wire").read_text()
    assert ('"lost"' in recorded, recorded.count("received") > 3) == (False, True)


def test_an_answer_that_never_comes_ends_at_its_deadline_and_not_at_a_line_of_progress(clock):
    silence = Silence(8.0, clock)
    progress = ProgressLog(STEP, "calient+rest://h", clock, silence)
    session = Session(Slow(clock, 100.0), device="ocs", timeout_s=5.0, clock=clock)
    began_s = clock.now()
    with silence.limit_waits(progress.log_query), pytest.raises(Timeout, match="no answer within 25 s"):
        session._receive(make_answer_deadline(25.0, clock))
    assert clock.now() - began_s == 25.0


@given(st.lists(st.floats(0.01, 12.0), min_size=1, max_size=20))
def test_lines_come_every_five_seconds_whatever_the_pauses(pauses_s):
    clock, told_s = StillClock(), []
    progress = ProgressLog(STEP, "rome+cli://h", clock, Silence(8.0, clock))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "ocs_drivers.engine.step_execution.logger.info", lambda *_: told_s.append(clock.now() - 100.0)
        )
        for pause_s in pauses_s:
            progress.sleep(pause_s)
    assert clock.now() == pytest.approx(100.0 + sum(pauses_s))
    assert told_s == pytest.approx([LOG_INTERVAL_S * (each + 1) for each in range(len(told_s))], abs=0.1)
    assert len(told_s) == pytest.approx(sum(pauses_s) // LOG_INTERVAL_S, abs=1)


def test_progress_is_told_now_and_then_with_queue_and_silence(clock, caplog):
    caplog.set_level(logging.INFO, "ocs_drivers.progress")
    silence = Silence(8.0, clock)
    progress = ProgressLog(STEP, "rome+cli://h", clock, silence)
    for _ in range(int(3 * LOG_INTERVAL_S)):
        clock.sleep(1.0)
        if clock.now_s == 113.0:
            silence.record_query()
        progress.log_wait(2)
    assert [record.getMessage() for record in caplog.records] == [
        "rome+cli://h: connect 1->10: 5 s so far; 2 moves in the device's queue",
        "rome+cli://h: connect 1->10: 10 s so far; 2 moves in the device's queue",
        "rome+cli://h: connect 1->10: 15 s so far; no answer for 2 s, asking again",
    ]
