"""Ctrl-C in every driver: nothing stays half open or held, and no late answer meets the next question."""

from __future__ import annotations

import contextlib
import threading

import pytest

from ocs_drivers.engine.driver import SwitchDriver
from ocs_drivers.model import Capabilities, CrossConnects, Identity, Snapshot, Status

TARGET = CrossConnects({1: 3})


class Line:
    """A session without a wire; `happenings` come up one each time it is opened."""

    event_count = connection_count = 0

    def __init__(self, *happenings: BaseException) -> None:
        self.happenings = list(happenings)
        self.connected = self.is_in_use = False

    def open(self) -> None:
        self.connected = True
        if self.happenings:
            raise self.happenings.pop(0)
        self.is_in_use = True

    def close(self) -> None:
        self.connected = self.is_in_use = False

    def disconnect(self) -> None:
        self.connected = False

    def make_ready(self) -> None:
        self.connected = True

    def lock(self):
        return contextlib.nullcontext()


class Switch(SwitchDriver):
    """A switch of two ports a side, to which things happen while it is asked who it is, or moves."""

    def __init__(self, line: Line, *, while_asked=(), while_moving=()) -> None:
        self.line = line
        self.while_asked, self.while_moving = list(while_asked), list(while_moving)
        self.held = CrossConnects()
        self.moves = 0
        super().__init__("nothing://switch", line, timeout_s=1.0)

    def _discover(self):
        if self.while_asked:
            raise self.while_asked.pop(0)
        return Identity("", "", "", ""), Capabilities(2, 2)

    def _read(self) -> Snapshot:
        return Snapshot(self.held, 0.0)

    def ports(self):
        return {}

    def _perform(self, step, guard) -> None:
        self.moves += 1
        self.held = step.after
        if self.while_moving:
            raise self.while_moving.pop(0)


@pytest.mark.parametrize("happening", [KeyboardInterrupt(), MemoryError()])
@pytest.mark.parametrize("when", ["connecting", "asking"])
def test_a_switch_that_was_interrupted_while_it_was_opened_is_closed_and_can_be_opened_again(when, happening):
    happenings = [happening]
    switch = Switch(Line(*happenings)) if when == "connecting" else Switch(Line(), while_asked=happenings)
    with pytest.raises(type(happening)):
        switch.open()
    assert not switch.line.connected
    assert not switch.line.is_in_use
    switch.open()
    assert switch.capabilities == Capabilities(2, 2)


def test_an_interrupt_in_the_middle_of_a_step_leaves_the_switch_to_whoever_comes_next():
    interrupted, other = Switch(Line(), while_moving=[KeyboardInterrupt()]), Switch(Line())
    outcomes = []
    with interrupted, other:
        with pytest.raises(KeyboardInterrupt):
            interrupted.apply(TARGET)
        assert interrupted.moves == 1
        worker = threading.Thread(target=lambda: outcomes.append(other.apply(TARGET)), daemon=True)
        worker.start()
        worker.join(60)
    assert [report.pairs for report in outcomes] == [{(1, 3): Status.DONE}]


class Interruptible:
    """A line in memory on which the person presses Ctrl-C when he waits for an answer, once it was `armed`."""

    armed = False

    def __init__(self, line) -> None:
        self._line = line

    def __getattr__(self, name):
        return getattr(self._line, name)

    def receive(self, deadline) -> bytes:
        if Interruptible.armed:
            Interruptible.armed = False
            raise KeyboardInterrupt
        return self._line.receive(deadline)


SCHEMES = {
    "polatis+scpi": ("polatis", "scpi"),
    "polatis+tl1": ("polatis", "tl1"),
    "polatis+rest": ("polatis", "rest"),
    "calient+tl1": ("calient", "tl1"),
    "calient+rest": ("calient", "rest"),
    "glimmerglass+tl1": ("glimmerglass", "tl1"),
    "telescent+cli": ("telescent", "cli"),
    "rome+cli": ("rome", "cli"),
    "afm+telnet": ("afm", "telnet"),
    "sonic-ocs": ("sonic", "cli"),
    "manual": ("manual", "operator"),
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_answer_to_an_interrupted_command_meets_nobody(scheme, world, open_in_memory, monkeypatch):
    for library in ("pyvisa_py", "asyncssh", "h11"):
        pytest.importorskip(library)
    family, front = SCHEMES[scheme]
    made = world(family, settings={"switch_time_s": 0.0})
    wire = made.transport
    monkeypatch.setattr(made, "transport", lambda front: Interruptible(wire(front)))
    monkeypatch.setattr(Interruptible, "armed", False)
    switch = open_in_memory(made, scheme, front)
    made.do("set_fault", fault="delay_reply", seconds=1.0)  # it is on its way when the next question is asked

    def guard() -> None:
        Interruptible.armed = True

    with pytest.raises(KeyboardInterrupt):
        switch.apply(CrossConnects({1: 9}), guard=guard)
    assert not Interruptible.armed
    assert dict(switch.read().connections) == made.truth()
    switch.apply(CrossConnects({1: 10}))
    assert made.truth() == {1: 10}
    switch.close()
