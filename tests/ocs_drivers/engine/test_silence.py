"""The limit on how long a device may say nothing, and what is told meanwhile; on a clock that the test holds."""

from __future__ import annotations

import logging

import pytest

from ocs_drivers import CrossConnects, Step
from ocs_drivers.engine.progress import EVERY_S, Progress
from ocs_drivers.timing import Silence, answer_deadline, answered

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
    with silence.watched():
        assert answer_deadline(5.0, clock).remaining_s() == 5.0
        clock.sleep(5.0)
        assert answer_deadline(5.0, clock).remaining_s() == 3.0
        clock.sleep(3.0)
        assert answer_deadline(5.0, clock).remaining_s() == 0.0
        answered()
        assert answer_deadline(5.0, clock).remaining_s() == 5.0
    assert answer_deadline(5.0, clock).remaining_s() == 5.0


def test_a_question_that_may_take_long_by_itself_is_given_its_time(clock):
    with Silence(8.0, clock).watched():
        assert answer_deadline(15.0, clock).remaining_s() == 15.0


def test_an_outage_counts_from_the_last_answer_and_is_given_a_short_while(clock):
    silence = Silence(8.0, clock)
    clock.sleep(5.0)  # a pause between two reads
    silence.asked()
    assert silence.remaining_of_outage_s(2.0) == 3.0
    clock.sleep(3.0)
    assert silence.remaining_of_outage_s(2.0) == 0.0
    silence.heard()
    clock.sleep(20.0)
    silence.asked()
    assert silence.remaining_of_outage_s(2.0) == 2.0


def test_progress_is_told_now_and_then_with_queue_and_silence(clock, caplog):
    caplog.set_level(logging.INFO, "ocs_drivers.progress")
    silence = Silence(8.0, clock)
    progress = Progress(STEP, "rome+cli://h", clock, silence)
    for _ in range(int(3 * EVERY_S)):
        clock.sleep(1.0)
        if clock.now_s == 113.0:
            silence.asked()
        progress.tell(2)
    assert [record.getMessage() for record in caplog.records] == [
        "rome+cli://h: connect 1->10: 5 s so far; 2 moves in the device's queue",
        "rome+cli://h: connect 1->10: 10 s so far; 2 moves in the device's queue",
        "rome+cli://h: connect 1->10: 15 s so far; no answer for 2 s, asking again",
    ]
