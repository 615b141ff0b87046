"""The ROME and AFM driver over real SSH and real telnet, with the robot's minutes shortened to milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from needs import needs

from ocs_drivers import CrossConnects, OcsError, Status, open_switch
from ocs_drivers.errors import DeviceError, LoginFailed, PartialApply, PortLocked, RobotFault, VerifyMismatch
from ocs_drivers.testing import SwitchContract
from ocs_drivers.vendors.rome import RomeCli

FAST = "poll_s=0.01&move_s=0.04&longest_s=1.5&grace_s=0.2&idle_s=60&homing_s=10"
WAYS = [("rome", "cli"), ("rome", "telnet"), ("afm", "cli"), ("afm", "telnet")]
every_way = pytest.mark.parametrize(("family", "front"), WAYS, ids=["+".join(way) for way in WAYS])

Opened = tuple[RomeCli, Any]


@pytest.fixture
def reach(shared_twin) -> Iterator[Callable[..., Opened]]:
    """Make an open switch on a real connection, and its twin in a process of its own."""
    opened: list[RomeCli] = []

    def open_one(family: str, front: str, **options: str) -> Opened:
        if front == "cli":
            pytest.importorskip("asyncssh")
        given = [f"--option={name}={value}" for name, value in {"idle_s": "1e9", **options}.items()]
        twin = shared_twin(family, "--size=6x6", "--speed=4000", *given)
        switch = open_switch(f"{twin.urls[front]}?{FAST}")
        assert isinstance(switch, RomeCli)
        opened.append(switch)
        return switch, twin

    yield open_one
    for switch in opened:
        switch.close()


@pytest.mark.long
class TestContractOfRomeOverSsh(SwitchContract):
    @pytest.fixture
    @needs("process", "socket")
    def switch(self, reach: Callable[..., Opened]) -> RomeCli:
        return reach("rome", "cli")[0]


class TestContractOfAfmOverTelnet(SwitchContract):
    @pytest.fixture
    @needs("process", "socket")
    def switch(self, reach: Callable[..., Opened]) -> RomeCli:
        return reach("afm", "telnet")[0]


@pytest.mark.long
@every_way
def test_circuits_are_made_moved_and_taken_down(reach, family, front):
    switch, twin = reach(family, front)
    assert switch.apply(CrossConnects({1: 7, 2: 8})).complete
    assert switch.apply(CrossConnects({1: 8, 2: 7, 6: 12})).complete
    assert twin.truth() == {1: 8, 2: 7, 6: 12}
    assert switch.disconnect([1, 2, 6]).complete
    assert twin.truth() == {}


@every_way
def test_a_wrong_password_is_refused(reach, family, front):
    _, twin = reach(family, front)
    with pytest.raises(LoginFailed):
        open_switch(twin.urls[front], credentials=("admin", "guess"))


def test_a_session_on_each_wire_sees_the_same(reach):
    over_ssh, _ = reach("rome", "cli")
    over_telnet, _ = reach("rome", "telnet")
    over_ssh.connect({1: 7})
    assert over_telnet.read().connections == CrossConnects({1: 7})
    over_telnet.disconnect([1])
    assert over_ssh.read().connections == CrossConnects()
    assert "CONNECTION OPERATION SUCCEEDED" in {event.kind for event in over_ssh.events()}


@pytest.mark.long
@pytest.mark.parametrize(("family", "front"), [("rome", "cli"), ("afm", "telnet")])
@pytest.mark.parametrize(
    ("fault", "error", "status"),
    [
        ({"fault": "jam", "count": 0}, RobotFault, Status.FAILED),
        ({"fault": "stuck", "pair": [1, 7]}, VerifyMismatch, Status.FAILED),
        ({"fault": "fail_port", "port": 7}, DeviceError, Status.FAILED),
        ({"fault": "lock_port", "port": 7}, PortLocked, Status.FAILED),
        ({"fault": "drop_command"}, VerifyMismatch, Status.FAILED),
        ({"fault": "close_connection", "after_commands": 1}, None, Status.DONE),
        ({"fault": "close_connection", "after_commands": 1, "executed": False}, PartialApply, Status.UNKNOWN),
        ({"fault": "close_connection", "after_bytes": 9}, None, Status.DONE),
        ({"fault": "noise"}, None, Status.DONE),
        ({"fault": "truncate_table"}, None, Status.DONE),
        ({"fault": "break_table"}, None, Status.DONE),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_faults_on_a_real_wire(reach, family, front, fault, error, status):
    switch, twin = reach(family, front)
    raised: OcsError | None = None
    try:
        report = switch.apply(CrossConnects({1: 7}), guard=lambda: twin.do("set_fault", **fault))
    except OcsError as problem:
        raised, report = problem, problem.report
    assert (type(raised) if raised else None) is error
    assert report.pairs == {(1, 7): status}
    assert (twin.truth() == {1: 7}) == (status is Status.DONE)


@every_way
def test_sessions_that_were_ended_are_opened_again(reach, family, front):
    switch, twin = reach(family, front)
    twin.do("set_fault", fault="expire_session")
    assert switch.connect({1: 7}).complete


@every_way
def test_a_homing_run_after_a_jam(reach, family, front):
    switch, twin = reach(family, front)
    twin.do("set_fault", fault="jam", count=0)
    with pytest.raises(RobotFault):
        switch.connect({1: 7})
    switch.homing_run()
    assert switch.connect({1: 7}).complete


def test_a_silent_jam(reach):
    switch, twin = reach("rome", "telnet", jam="silent")
    twin.do("set_fault", fault="jam", count=0)
    with pytest.raises(RobotFault, match="homing run"):
        switch.connect({1: 7})


def test_the_moves_of_another_user_come_first(reach):
    switch, twin = reach("rome", "cli")
    for number in (4, 5, 6):
        twin.do("queue_job", kind="connect", pair=[number, 6 + number], user="gui", source="WEB")
    assert switch.connect({1: 7}).complete
    assert twin.truth() == {1: 7, 4: 10, 5: 11, 6: 12}
