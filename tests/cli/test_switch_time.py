"""The limit on the time of a whole command: what it says holds wherever the alarm comes."""

from __future__ import annotations

import signal
from types import SimpleNamespace

import pytest

from testbed.commands.devices import session
from testbed.commands.devices.session import limit_time, report_change
from testbed.errors import MoveTimedOut, TimedOut

SWITCH = SimpleNamespace(address="rome+cli://h")


def test_an_alarm_between_the_last_line_and_the_end_of_the_limit_is_a_timeout_like_any_other(monkeypatch):
    set_timer = signal.setitimer

    def alarm_first(which: int, seconds: float) -> None:
        if not seconds:
            signal.raise_signal(signal.SIGALRM)
        set_timer(which, seconds)

    before = signal.getsignal(signal.SIGALRM)
    monkeypatch.setattr(signal, "setitimer", alarm_first)
    with pytest.raises(TimedOut, match="not done within 60 s"), limit_time(60.0, SWITCH.address):
        pass
    monkeypatch.undo()
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert signal.getsignal(signal.SIGALRM) is before


def test_what_has_moved_is_reported_whatever_time_that_takes():
    with limit_time(60.0, SWITCH.address):
        with report_change(SWITCH, {1: 9}):
            assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_a_slow_device_is_told_as_slow_at_longer_and_longer_intervals(monkeypatch, capsys):
    waits = iter([False, False, False, True])
    done = SimpleNamespace(wait=lambda seconds: paused.append(seconds) or next(waits), set=lambda: None)
    paused: list[float] = []
    monkeypatch.setattr(session, "Event", lambda: done)
    with session.announce_slowness("rome+telnet://lab:secret@h"):
        pass
    assert paused == [5.0, 5.0, 10.0, 20.0]
    assert capsys.readouterr().err.splitlines() == [
        f"   rome+telnet://h is slow: {seconds} s so far" for seconds in (5, 10, 20)
    ]


def test_an_alarm_in_a_move_says_that_its_pairs_are_unknown():
    with (
        pytest.raises(MoveTimedOut, match="unknown: 1->9"),
        limit_time(60.0, SWITCH.address),
        report_change(SWITCH, {1: 9}),
    ):
        signal.raise_signal(signal.SIGALRM)
