"""SCPI over a serial line: the port itself on pseudo terminals, then a Polatis behind one."""

from __future__ import annotations

import os
import sys
import threading
import tty
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from unittest import mock

import pytest
from libraries import skip_without
from needs import needs

skip_without("serial")

from ocs_drivers import CrossConnects, open_switch
from ocs_drivers.errors import ConnectError, ConnectionLost, OcsError, PartialApply, Timeout, Unsupported
from ocs_drivers.model import Status
from ocs_drivers.testing import SwitchContract
from ocs_drivers.timing import Deadline
from ocs_drivers.transports.serial_port import SerialTransport


class Terminal:
    """A pseudo terminal: what a driver opens, and the device's end of it."""

    def __init__(self) -> None:
        self.master, self._slave = os.openpty()
        tty.setraw(self._slave)
        self.path = os.ttyname(self._slave)

    def vanish(self) -> None:
        for end in (self.master, self._slave):
            if end >= 0:
                os.close(end)
        self.master = self._slave = -1


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.vanish()


@pytest.fixture
def line(terminal) -> Iterator[SerialTransport]:
    made = SerialTransport(terminal.path, baud=38400, device="polatis+serial:///dev/ttyUSB0")
    made.open(1)
    yield made
    made.close()


# -- the port


def test_bytes_go_both_ways_unchanged(terminal, line):
    every_byte = bytes(range(256))
    line.send(every_byte, Deadline(5))
    received = b""
    while len(received) < 256:
        received += os.read(terminal.master, 4096)
    assert received == every_byte
    os.write(terminal.master, every_byte)
    answer = b""
    while len(answer) < 256:
        answer += line.receive(Deadline(5))
    assert answer == every_byte


def test_silence_ends_at_the_deadline(line):
    with pytest.raises(Timeout, match=r"within 0\.05 s"):
        line.receive(Deadline(0.05))


def test_has_input_tells_what_waits(terminal, line):
    assert not line.has_input()
    os.write(terminal.master, b"x")
    until = Deadline(5)
    while not line.has_input():
        assert not until.is_over
    assert line.receive(Deadline(0)) == b"x"
    assert not line.has_input()


def test_what_came_before_opening_is_thrown_away(terminal, line):
    line.close()
    os.write(terminal.master, b"late answer")
    line.open(1)
    assert not line.has_input()


def test_a_line_that_nobody_drains_is_a_timeout(line):
    with pytest.raises(Timeout):
        line.send(b"x" * 1_000_000, Deadline(0.1))


def test_a_long_command_waits_for_room(terminal, line):
    received = bytearray()

    def drain() -> None:
        while len(received) < 200_000:
            received.extend(os.read(terminal.master, 65536))

    reader = threading.Thread(target=drain, daemon=True)
    reader.start()
    line.send(b"y" * 200_000, Deadline(20))
    reader.join(60)
    assert received == b"y" * 200_000


@pytest.mark.parametrize(
    "act", [lambda line: line.receive(Deadline(5)), lambda line: line.send(b"x", Deadline(5))]
)
def test_a_line_that_vanishes_is_lost(terminal, line, act):
    terminal.vanish()
    assert line.has_input()  # something is to be found out
    with pytest.raises(ConnectionLost):
        act(line)


def test_a_line_is_opened_by_one_at_a_time(terminal, line):
    second = SerialTransport(terminal.path, baud=38400, device="d")
    with pytest.raises(ConnectError, match="lock"):
        second.open(1)
    assert not second.is_open
    line.close()
    second.open(1)
    second.close()


def test_a_line_that_is_not_there_is_a_connect_error():
    with pytest.raises(ConnectError, match="No such file"):
        open_switch("polatis+serial:/dev/no-such-adapter")


def test_a_closed_line_says_so(line):
    line.close()
    line.close()
    assert not line.is_open
    with pytest.raises(ConnectionLost, match="it is closed"):
        line.has_input()


@pytest.mark.parametrize("ending", [b"\r", b"\n", b"\r\n"])
def test_replies_end_as_the_device_likes(terminal, ending, lines):
    """A CRLF whose LF comes late belongs to the reply before it, and the line stays open."""
    answers = {
        b"*IDN?": b"Polatis,I-OST-24x24-LU1-DMHNS,002414,6.5.2.18",
        b"*CLS;:oxc:swit:size?;:syst:err?": b'24,24;0, "No error"',
        b":oxc:swit:conn:stat?": b"(@1),(@25)",
        b":syst:err?": b'0, "No error"',
    }
    asked: list[bytes] = []

    def serve() -> None:
        waiting = b""
        with suppress(OSError):  # until the terminal is closed
            while True:
                waiting += os.read(terminal.master, 4096)
                *commands, waiting = waiting.split(b"\n")
                for command in commands:
                    asked.append(command)
                    answer = answers.get(command, b'-113, "Undefined header"')
                    os.write(terminal.master, answer + ending[:1])
                    os.write(terminal.master, ending[1:])

    device = threading.Thread(target=serve, daemon=True)
    device.start()
    with open_switch(f"polatis+serial:{terminal.path}", timeout_s=5) as switch:
        for _ in range(5):
            assert switch.read().connections == CrossConnects({1: 25})
    assert asked.count(b"*IDN?") == 1


# -- a Polatis on it


@pytest.fixture
@needs("process", "socket")
def twin(shared_twin) -> Any:
    return shared_twin("polatis", "--size=8x8", "--switch-time-ms=1", "--option=baud=921600")


class TestPolatisSerial(SwitchContract):
    @pytest.fixture
    def switch(self, twin):
        with open_switch(twin.urls["serial"], timeout_s=5) as switch:
            yield switch


def test_several_open_it_in_turn(twin):
    for output in (9, 10, 11):
        with open_switch(twin.urls["serial"], timeout_s=5) as switch:
            switch.apply(CrossConnects({1: output}))
    assert twin.truth() == {1: 11}


def test_a_second_driver_is_refused_while_one_is_open(twin):
    with open_switch(twin.urls["serial"], timeout_s=5), pytest.raises(ConnectError):
        open_switch(twin.urls["serial"], timeout_s=5)


def test_an_adapter_that_was_unplugged_and_plugged_in_again_is_reopened(twin):
    with open_switch(twin.urls["serial"], timeout_s=5) as switch:
        switch.apply(CrossConnects({1: 9}))
        twin.do("set_fault", fault="close_connection")
        assert switch.read().connections == CrossConnects({1: 9})
        twin.do("set_fault", fault="close_connection")
        assert switch.apply(CrossConnects({2: 10})).complete


def test_an_adapter_that_stays_away_is_a_connect_error(twin):
    with open_switch(twin.urls["serial"], timeout_s=1) as switch:
        twin.do("set_fault", fault="refuse")
        twin.do("set_fault", fault="close_connection")
        with pytest.raises(ConnectError):
            switch.read()
        twin.do("clear_fault", fault="all")
        assert switch.read().connections == CrossConnects()


REAL_FAULTS: dict[str, dict[str, Any]] = {
    "close_connection": {"after_bytes": 1},
    "drop_command": {},
    "garbage": {},
    "fail_port": {"port": 9},
}


@pytest.mark.long
@pytest.mark.parametrize("fault", REAL_FAULTS)
def test_every_fault_ends_in_the_target_or_a_true_report(twin, fault):
    def arm() -> None:
        twin.do("set_fault", fault=fault, **REAL_FAULTS[fault])

    with open_switch(twin.urls["serial"], timeout_s=1) as switch:
        try:
            report = switch.apply(CrossConnects({1: 9}), guard=arm)
        except OcsError as error:
            report = error.report
    assert (report.pairs[1, 9] is Status.DONE) == (twin.truth() == {1: 9})
    assert report.pairs[1, 9] is not Status.UNKNOWN


def test_in_memory_it_is_the_same_driver(world, open_in_memory):
    made = world("polatis", size=(8, 8))
    switch = open_in_memory(made, "polatis+serial", "serial")
    switch.apply(CrossConnects({1: 9}))
    assert made.truth() == {1: 9}
    out = [entry["data"] for entry in made.do("transcript")["entries"] if entry["direction"] == "out"]
    assert all(data.endswith("\r") and "\n" not in data for data in out)
    with pytest.raises(PartialApply):
        switch.apply(CrossConnects({2: 10}), guard=lambda: made.do("set_fault", fault="half_open") and None)


def test_an_answer_that_comes_late_on_a_line_without_connections_meets_nobody(twin):
    """Closing a serial line ends nothing: what comes late comes to whoever opens the line next."""
    with open_switch(twin.urls["serial"], timeout_s=20) as switch:
        switch.apply(CrossConnects({1: 9}))
        twin.do("set_fault", fault="delay_reply", seconds=0.4)
        with mock.patch.object(switch._session, "_timeout_s", 0.3), pytest.raises(OcsError):
            switch.read()
        twin.do("clear_fault", fault="all")
        twin.do("operator", connect=[[2, 10]])
        for _ in range(3):
            try:
                found = switch.read().connections
            except OcsError:
                continue
            assert found == CrossConnects({1: 9, 2: 10})
            break
        else:
            pytest.fail("the line never came to rest")


def test_without_pyserial_the_hint_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "serial", None)
    with pytest.raises(Unsupported, match=r"install the extra \[visa\] of lightbed"):
        open_switch(f"polatis+serial:{tmp_path}/port")
