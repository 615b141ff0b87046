"""A session at a prompt, against a device that says exactly what the test has it say."""

from __future__ import annotations

import re
from collections import deque

import pytest

from ocs_drivers.credentials import Credentials
from ocs_drivers.errors import (
    ConnectError,
    ConnectionLost,
    DeviceError,
    LoginFailed,
    ProtocolDesync,
    Timeout,
)
from ocs_drivers.protocols.cli_session import CliSession, Login
from ocs_drivers.transports.transport import make_connect_error, make_connection_lost, make_timeout

PROMPT = re.compile(r"ocs>")
NOTE = re.compile(r"\d\d:\d\d (?P<kind>[A-Z]+)")


class Clock:
    def __init__(self) -> None:
        self.time_s = 0.0

    def now(self) -> float:
        return self.time_s

    def sleep(self, seconds: float) -> None:
        self.time_s += seconds


class Screen:
    """A transport whose device greets, and answers what is typed by a table; None closes the connection."""

    def __init__(self, answers, greeting=(b"ocs> ",)) -> None:
        self.answers = answers
        self.greetings = deque(greeting)
        self.typed = []
        self.opened = 0
        self.is_open = False
        self.waiting = deque()

    def open(self, timeout_s):
        if not self.greetings:
            raise make_connect_error("cli://ocs", "nobody there")
        self.opened += 1
        self.is_open = True
        self.waiting = deque([self.greetings[0] if len(self.greetings) == 1 else self.greetings.popleft()])

    def close(self):
        self.is_open = False

    def has_input(self):
        return bool(self.waiting)

    def send(self, data, deadline):
        self.typed.append(data)
        answer = self.answers.get(data.rstrip(b"\r"), b"")
        self.waiting.extend(answer if isinstance(answer, list) else [answer])

    def receive(self, deadline):
        while self.waiting:
            data = self.waiting.popleft()
            if data is None:
                raise make_connection_lost("cli://ocs", "the device closed the connection")
            if data:
                return data
        raise make_timeout("cli://ocs", deadline)


def session(screen, clock=None, **options):
    made = CliSession(
        screen, device="cli://ocs", timeout_s=1, prompt=PROMPT, clock=clock or Clock(), **options
    )
    made.open()
    return made


def texts(events):
    return [event.lines[0] for event in events]


def test_a_reply_is_what_stands_between_the_echo_and_the_prompt():
    screen = Screen({b"show": b"show\r\nrow 1\r\nrow 2\r\nocs> "})
    assert session(screen).ask("show", tuple) == ("row 1", "row 2")
    assert screen.typed == [b"show\r"]


def test_a_device_without_echo():
    screen = Screen({b"show": b"\r\nrow 1\r\nocs> "})
    assert session(screen, has_echo=False).ask("show", tuple) == ("row 1",)


def test_banners_are_events():
    screen = Screen({}, [b"Welcome\r\nto it\r\nocs> "])
    assert texts(session(screen).events(0)) == ["Welcome", "to it"]


def test_unsolicited_lines_are_events_wherever_they_come():
    screen = Screen(
        {
            b"show": [
                b"12:00 MOVING\r\n",
                b"ocs> sh",
                b"ow\r\nrow 1\r\n12:01 DO",
                b"NE\r\nrow 2\r\nocs> 12:02 IDLE\r\n",
            ]
        }
    )
    ours = session(screen, unsolicited_pattern=NOTE)
    assert ours.ask("show", tuple) == ("row 1", "row 2")
    assert [(event.number, event.kind, event.lines) for event in ours.events(0)] == [
        (1, "MOVING", ("12:00 MOVING",)),
        (2, "DONE", ("12:01 DONE",)),
        (3, "IDLE", ("12:02 IDLE",)),
    ]
    assert texts(ours.events(2)) == ["12:02 IDLE"]


def test_lines_after_the_prompt_belong_to_no_reply():
    screen = Screen({b"show": [b"show\r\nrow 1\r\nocs> ", b"late\r\nocs> "]})
    ours = session(screen)
    assert ours.ask("show", tuple) == ("row 1",)
    assert ours.ask("show", tuple) == ("row 1",)
    assert texts(ours.events(0)) == ["late", "late"]


def test_pages_are_turned():
    screen = Screen(
        {b"show": b"show\r\nrow 1\r\n--More--", b" ": b"\b" * 8 + b" " * 8 + b"\b" * 8 + b"row 2\r\nocs> "}
    )
    assert session(screen, pager_prompt=re.compile("--More--")).ask("show", tuple) == ("row 1", "row 2")


def test_no_answer_is_a_timeout_and_closes_the_line():
    screen = Screen({b"show": b"show\r\nrow 1\r\n"})
    with pytest.raises(Timeout) as caught:
        session(screen).ask("show", tuple)
    assert (screen.is_open, caught.value.sent) == (False, "show")


def test_a_disconnect_is_repaired_for_reads_only():
    screen = Screen({b"show": None})
    ours = session(screen)
    with pytest.raises(ConnectionLost):
        ours.ask("show", tuple)
    assert screen.opened == 1
    with pytest.raises(ConnectionLost):
        ours.ask_with_retry("show", tuple)
    assert (screen.opened, screen.typed) == (3, [b"show\r"] * 3)


def test_a_disconnect_between_exchanges_is_noticed_before_the_next():
    screen = Screen({b"show": [b"show\r\nocs> ", None]})
    ours = session(screen)
    assert ours.ask("show", tuple) == ()
    assert ours.ask("show", tuple) == ()
    assert screen.opened == 2


def test_an_idle_connection_is_replaced():
    clock, screen = Clock(), Screen({b"show": b"show\r\nocs> "})
    ours = session(screen, clock, idle_limit_s=150)
    for pause_s, opened in [(149, 1), (149, 1), (150, 2)]:
        clock.sleep(pause_s)
        ours.ask("show", tuple)
        assert screen.opened == opened


def test_a_refusal_keeps_the_line_and_nonsense_closes_it():
    def refuse(lines):
        raise DeviceError("refused")

    def despair(lines):
        raise ProtocolDesync("no table")

    screen = Screen({b"show": b"show\r\nocs> "})
    ours = session(screen)
    with pytest.raises(DeviceError, match="cli://ocs: refused; sent 'show'"):
        ours.ask("show", refuse)
    assert screen.is_open
    with pytest.raises(ProtocolDesync, match="cli://ocs: no table; sent 'show'"):
        ours.ask("show", despair)
    assert not screen.is_open
    assert ours.ask("show", tuple) == ()


def test_an_unexpected_failure_closes_the_line():
    screen = Screen({b"show": b"show\r\nocs> "})
    with pytest.raises(ZeroDivisionError):
        session(screen).ask("show", lambda _: 1 / 0)
    assert not screen.is_open


def test_no_command_can_hold_another():
    screen = Screen({})
    with pytest.raises(ValueError, match="cannot be sent"):
        session(screen).ask("show\rreboot", tuple)
    assert (screen.typed, screen.is_open) == ([], True)


def test_closed_is_closed():
    screen = Screen({b"exit": b""})
    ours = session(screen, logout_command="exit")
    ours.close()
    assert (ours.is_in_use, screen.is_open, screen.typed) == (False, False, [b"exit\r"])
    with pytest.raises(ConnectionLost, match="it is closed"):
        ours.ask("show", tuple)


def test_disconnect_is_repaired_by_the_next_exchange():
    screen = Screen({b"show": b"show\r\nocs> "})
    ours = session(screen)
    ours.disconnect()
    assert ours.ask("show", tuple) == ()
    assert screen.opened == 2


def test_a_prompt_of_before_ends_no_reply():
    screen = Screen({b"show": [b"12:00 NOTE\r\nocs> ", b"show\r\nrow 1\r\nocs> "]})
    assert session(screen).ask("show", tuple) == ("row 1",)


class TestLogin:
    credentials = Credentials("admin", "root")

    def screen(self):
        answers = {
            b"admin": b"admin\r\nPassword: ",
            b"root": b"\r\nLast login: Mon\r\nocs> ",
            b"wrong": b"\r\nLogin incorrect\r\nlogin: ",
            b"show": b"show\r\nocs> ",
        }
        return Screen(answers, [b"Debian\r\nocs1 login: "])

    def test_is_answered_on_the_line(self):
        screen = self.screen()
        ours = session(screen, login=Login(self.credentials))
        assert screen.typed == [b"admin\r", b"root\r"]
        assert texts(ours.events(0)) == ["Debian", "Last login: Mon"]

    def test_a_second_question_is_a_refusal(self):
        screen = self.screen()
        with pytest.raises(LoginFailed, match="'admin'") as caught:
            session(screen, login=Login(Credentials("admin", "wrong")))
        assert not screen.is_open
        assert "wrong" not in str(caught.value)

    def test_a_disconnect_on_the_way_is_a_failed_connection(self):
        screen = self.screen()
        screen.answers[b"root"] = None
        with pytest.raises(ConnectError, match="before it was ready"):
            session(screen, login=Login(self.credentials))

    def test_a_device_that_forgot_us_is_asked_on_a_new_connection(self):
        screen = self.screen()
        ours = session(screen, login=Login(self.credentials))
        screen.answers[b"show"] = b"show\r\nlogin: "
        with pytest.raises(ConnectionLost, match="asks for a login again"):
            ours.ask("show", tuple)
        screen.answers[b"show"] = b"show\r\nocs> "
        assert ours.ask("show", tuple) == ()
        assert screen.opened == 2

    def test_a_password_that_cannot_be_typed(self):
        with pytest.raises(LoginFailed, match="cannot be typed"):
            Login(Credentials("admin", "a\rb"))

    def test_the_password_is_in_no_log(self, caplog):
        caplog.set_level("DEBUG", "ocs_drivers.wire")
        session(self.screen(), login=Login(self.credentials))
        assert "root" not in caplog.text
        assert "> admin" in caplog.text
