"""A device that dies in mid-move, as a process that is killed: a named error soon, with the pair that is unknown."""

from __future__ import annotations

import threading
import time

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
BAR_S = 10.0


def commanded_bytes(twin) -> int:
    """Count what has come in, whatever the language."""
    entries = twin.do("transcript")["entries"]
    return sum(len(entry["data"]) for entry in entries if entry["direction"] == "in")


class Move(threading.Thread):
    """An apply that runs while the test kills the device; `error` and `ended_s` tell how it ended."""

    def __init__(self, switch, pair) -> None:
        super().__init__(daemon=True)
        self.switch, self.pair = switch, pair
        self.sending = threading.Event()
        self.error: BaseException | None = None
        self.ended_s = 0.0

    def run(self) -> None:
        try:
            self.switch.apply(CrossConnects([self.pair]), scope=[self.pair[0]], guard=self.sending.set)
        except BaseException as error:  # noqa: BLE001  looked at by the test
            self.error = error
        self.ended_s = time.monotonic()


def killed_in_mid_move(start_twin, scheme) -> tuple[Move, float]:
    """Kill a twin that has received the command and moves slowly; return the move, and how long it took to end."""
    family, front = SCHEMES[scheme]
    slow = () if family in ROBOTS | {"manual"} else ("--switch-time-ms=60000",)
    size = "2x8" if scheme in BANKS else "8x8"
    twin = start_twin(family, f"--size={size}", *slow)
    with open_switch(twin.urls[front], timeout_s=0.8 if family not in ROBOTS else 2.0) as switch:
        held = switch.read().connections
        first = switch.capabilities.inputs + 1
        output = first if held.get(1) != first else first + 1
        before = commanded_bytes(twin)
        move = Move(switch, (1, output))
        move.start()
        assert move.sending.wait(20), move.error
        while family not in ROBOTS and commanded_bytes(twin) == before:
            assert not move.ended_s, move.error
        while family in ROBOTS and not twin.do("robot")["queue"]:
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


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_end_of_a_device_in_mid_move_is_told(start_twin, scheme, monkeypatch):
    monkeypatch.setattr(engine, "SILENCE_S", 1.0)

    move, took_s = killed_in_mid_move(start_twin, scheme)

    check_unknown_is_named(move)
    assert took_s < 6.0


def test_a_robot_is_given_up_within_ten_seconds_and_not_at_once(start_twin):
    move, took_s = killed_in_mid_move(start_twin, "rome+telnet")

    check_unknown_is_named(move)
    assert engine.SILENCE_S <= took_s < BAR_S
