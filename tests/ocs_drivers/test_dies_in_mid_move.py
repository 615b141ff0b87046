"""A device that dies or hangs in mid-move: a named error soon, with the pair that is unknown."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from libraries import skip_without
from schemes import BANKS, SCHEMES

from ocs_drivers import CrossConnects, open_switch
from ocs_drivers.engine import driver as engine
from ocs_drivers.errors import PartialApply, TransportError
from ocs_drivers.model import Status

skip_without("pyvisa_py")
skip_without("asyncssh")
skip_without("h11")

ROBOTS = {"telescent", "rome", "afm"}


def commanded_bytes(twin) -> int:
    """Count what has come in, whatever the language."""
    entries = twin.do("transcript")["entries"]
    return sum(len(entry["data"]) for entry in entries if entry["direction"] == "in")


def received(twin, family, before: int) -> bool:
    """Return True when the command has come in; a robot's, when it is in the queue."""
    return bool(twin.do("robot")["queue"]) if family in ROBOTS else commanded_bytes(twin) > before


class Move(threading.Thread):
    """An apply that runs while the test ends the device; `at_sending` is called before the first byte.

    `error` and `ended_s` tell how it ended.
    """

    def __init__(self, switch, pair, at_sending=lambda: None) -> None:
        super().__init__(daemon=True)
        self.switch, self.pair, self.at_sending = switch, pair, at_sending
        self.sending = threading.Event()
        self.error: BaseException | None = None
        self.sent_s = self.ended_s = 0.0

    def guard(self) -> None:
        if not self.sending.is_set():
            self.at_sending()
            self.sent_s = time.monotonic()
        self.sending.set()

    def run(self) -> None:
        try:
            self.switch.apply(CrossConnects([self.pair]), scope=[self.pair[0]], guard=self.guard)
        except BaseException as error:  # noqa: BLE001  looked at by the test
            self.error = error
        self.ended_s = time.monotonic()


def killed_in_mid_move(start_twin, scheme) -> tuple[Move, float]:
    """Kill a twin that has received the command and moves slowly; return the move, and how long it took to end.

    A bank reports its new channel at once, so its twin is stopped before it reads the command.
    """
    family, front = SCHEMES[scheme]
    slow = () if family in ROBOTS | {"manual"} else ("--switch-time-ms=60000",)
    size = "2x8" if scheme in BANKS else "8x8"
    twin = start_twin(family, f"--size={size}", *slow)
    with open_switch(twin.urls[front], timeout_s=0.8 if family not in ROBOTS else 2.0) as switch:
        held = switch.read().connections
        first = switch.capabilities.inputs + 1
        output = first if held.get(1) != first else first + 1
        before: list[int] = []
        move = Move(
            switch,
            (1, output),
            twin.stop if scheme in BANKS else lambda: before.append(commanded_bytes(twin)),
        )
        move.start()
        assert move.sending.wait(20), move.error
        while scheme not in BANKS and not received(twin, family, *before):
            assert not move.ended_s, move.error
        twin.kill()
        killed_s = time.monotonic()
        move.join(60)
        assert not move.is_alive()
    return move, move.ended_s - killed_s


def check_unknown_is_named(move: Move) -> None:
    assert isinstance(move.error, PartialApply), repr(move.error)
    assert (move.error.code, move.error.who) == ("ocs.partial", "unknown")
    assert move.error.report.pairs[move.pair] is Status.UNKNOWN
    assert "unknown: " in str(move.error)
    assert f"{move.pair[0]}->{move.pair[1]}" in str(move.error)
    assert "because: " in str(move.error)
    assert isinstance(move.error.__cause__, TransportError)


OF_EACH_WIRE = ("polatis+tl1", "polatis+scpi", "polatis+rest", "rome+telnet", "sonic-ocs")
"""One driver of each language and wire; all at once, since they only wait."""


def at_once(do, schemes=OF_EACH_WIRE) -> list[tuple[Move, float]]:
    with ThreadPoolExecutor(len(schemes)) as pool:
        return list(pool.map(do, schemes))


@pytest.mark.long
def test_the_end_of_a_device_in_mid_move_is_told_on_each_wire(start_twin, monkeypatch):
    monkeypatch.setattr(engine, "MIN_SILENCE_LIMIT_S", 1.0)

    for move, _ in at_once(lambda scheme: killed_in_mid_move(start_twin, scheme)):
        check_unknown_is_named(move)


@pytest.mark.long
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_end_of_a_device_in_mid_move_is_told(start_twin, scheme, monkeypatch):
    monkeypatch.setattr(engine, "MIN_SILENCE_LIMIT_S", 1.0)

    move, _ = killed_in_mid_move(start_twin, scheme)

    check_unknown_is_named(move)


@pytest.mark.long
def test_a_robot_is_not_given_up_at_once(start_twin):
    move, took_s = killed_in_mid_move(start_twin, "rome+telnet")

    check_unknown_is_named(move)
    assert took_s >= engine.MIN_SILENCE_LIMIT_S - 1


def hung(start_twin, scheme, options="", **opened) -> tuple[Move, float]:
    """Stop a twin in the guard, as the command is sent; return the move, and how long it took to end."""
    family, front = SCHEMES[scheme]
    twin = start_twin(family, f"--size={'2x8' if scheme in BANKS else '8x8'}")
    try:
        with open_switch(twin.urls[front] + options, **opened) as switch:
            held = switch.read().connections
            first = switch.capabilities.inputs + 1
            move = Move(switch, (1, first if held.get(1) != first else first + 1), twin.stop)
            move.start()
            move.join(60)
            assert not move.is_alive()
    finally:
        twin.kill()
    return move, move.ended_s - move.sent_s


@pytest.mark.long
def test_a_device_that_hangs_as_the_command_is_sent_is_told_on_each_wire(start_twin, monkeypatch):
    monkeypatch.setattr(engine, "MIN_SILENCE_LIMIT_S", 1.0)

    for move, _ in at_once(lambda scheme: hung(start_twin, scheme, timeout_s=1.0)):
        check_unknown_is_named(move)


@pytest.mark.long
@pytest.mark.parametrize("scheme", sorted(set(SCHEMES) - {"manual"}))  # a person has an hour for each cord
def test_a_device_that_hangs_as_the_command_is_sent_is_told(start_twin, scheme, monkeypatch):
    """Answers are given 2 s each and a silence 3 s in all; a change over REST is given its time for the mirrors."""
    monkeypatch.setattr(engine, "MIN_SILENCE_LIMIT_S", 3.0)
    options = "?activation_s=1" if scheme == "calient+rest" else ""

    move, took_s = hung(start_twin, scheme, options, timeout_s=2.0)

    check_unknown_is_named(move)
    assert took_s > 2.0


@pytest.mark.long
def test_devices_that_hang_are_given_up_after_eight_seconds(start_twin):
    """One driver of each wire, with the times of a user."""
    for move, took_s in at_once(lambda scheme: hung(start_twin, scheme)):
        check_unknown_is_named(move)
        assert "no answer for 8 s" in str(move.error)
        assert took_s > 5.0
