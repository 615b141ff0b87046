"""The DiCon driver: published commands, its addresses, and every fault over TCP and over a serial line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from needs import needs

from ocs_drivers import CrossConnects, OcsError, Status, open_switch
from ocs_drivers.address import parse_address
from ocs_drivers.errors import AddressError, ConnectionLost, VerifyMismatch
from ocs_drivers.vendors.banks.codec import decode_channel
from ocs_drivers.vendors.banks.driver import BankSwitch
from ocs_drivers.vendors.dicon import COMMANDS, OPEN_STATE, serial_switch, tcp_switch

BANKS, CHANNELS = 2, 8


def output(bank: int, channel: int) -> int:
    return BANKS + (bank - 1) * CHANNELS + channel


# -- published


def test_published_commands():
    assert COMMANDS.format_select(6, 2) == "ROUT6:SCAN 2"
    assert COMMANDS.format_query(6) == "ROUT6:SCAN?"
    assert decode_channel("2", 6, 8) == 2
    assert COMMANDS.terminator == b"\r"
    assert OPEN_STATE.format(bank=2) == "ROUTE2:OPEN:STATE?"


# -- addresses


def test_addresses():
    tcp = tcp_switch(parse_address("dicon+scpi://host?banks=2&channels=8"))
    assert tcp.address == "dicon+scpi://host:5025?banks=2&channels=8"
    line = serial_switch(parse_address("dicon+serial:/dev/ttyUSB0?channels=8&baud=115200"))
    assert line.address == "dicon+serial:///dev/ttyUSB0?channels=8&baud=115200"


@pytest.mark.parametrize(
    "options", ["", "?channels=8&open_state=yes", "?channels=8&identity=2", "?channels=8&x=1"]
)
def test_addresses_without_sense(options):
    with pytest.raises(AddressError):
        tcp_switch(parse_address(f"dicon+scpi://host{options}"))


@pytest.mark.parametrize("baud", ["fast", "0", "-1", ""])
def test_a_rate_that_is_none(baud):
    with pytest.raises(AddressError, match="is not a valid rate"):
        serial_switch(parse_address(f"dicon+serial:/dev/ttyUSB0?channels=8&baud={baud}"))


# -- in memory


def test_each_question_is_a_whole_line(world, open_in_memory):
    made = world("dicon", size=(BANKS, BANKS * CHANNELS))
    switch = open_in_memory(made, "dicon+scpi", "scpi", banks="2", channels="8")
    made.do("transcript", clear=True)
    switch.connect({2: output(2, 5)})
    entries = made.do("transcript")["entries"]
    assert [entry["data"] for entry in entries if entry["direction"] == "in"] == [
        "ROUT1:SCAN?\r",
        "ROUT2:SCAN?\r",
        "ROUT2:SCAN 5\r",
        "ROUT1:SCAN?\r",
        "ROUT2:SCAN?\r",
    ]
    switch.close()


@pytest.mark.parametrize("front", ["scpi", "serial"])
def test_a_bank_that_is_open_has_no_circuit(world, open_in_memory, front):
    made = world("dicon", size=(BANKS, BANKS * CHANNELS))
    switch = open_in_memory(made, f"dicon+{front}", front, banks="2", channels="8", open_state="1")
    made.do("operator", disconnect=[1])
    assert switch.read().connections == CrossConnects({2: output(2, 1)})
    assert switch.connect({1: output(1, 3)}).complete
    switch.close()


def test_a_device_that_does_not_say_who_it_is(world, open_in_memory):
    made = world("dicon", size=(BANKS, BANKS * CHANNELS), identity="no")
    switch = open_in_memory(made, "dicon+scpi", "scpi", banks="2", channels="8", identity="0")
    assert switch.identity().vendor == "DiCon"
    assert switch.connect({1: output(1, 3)}).complete
    switch.close()


# -- over TCP and over a serial line


@pytest.fixture(params=["scpi", "serial"])
def front(request) -> str:
    pytest.importorskip("pyvisa_py" if request.param == "scpi" else "serial")
    return request.param


@pytest.fixture
@needs("process", "socket")
def twin(shared_twin) -> Any:
    twin = shared_twin("dicon", f"--size={BANKS}x{BANKS * CHANNELS}", "--speed=5", "--option=baud=115200")
    twin.do("operator", connect=[[bank, output(bank, 1)] for bank in range(1, BANKS + 1)])
    return twin


@pytest.fixture
@needs("socket")
def switch(twin, front) -> Any:
    with open_switch(twin.urls[front], timeout_s=1.5) as switch:
        yield switch


def armed_once(twin: Any, **fault: Any) -> Callable[[], None]:
    """Return a guard that sets a fault before the first write."""
    armed: list[Any] = []
    return lambda: armed or armed.append(twin.do("set_fault", **fault))


def test_who_it_is_and_what_it_holds(switch: BankSwitch, twin):
    assert switch.identity().model == "MXS-9100"
    assert switch.identity().serial.startswith("SIM")
    assert dict(switch.read().connections) == twin.truth()


def test_all_banks_are_sent(switch: BankSwitch, twin):
    target = CrossConnects({bank: output(bank, 8) for bank in range(1, BANKS + 1)})
    assert switch.apply(target).complete
    assert twin.truth() == dict(target)
    assert not switch.apply(target).changed


FAULTS = [
    ({"fault": "drop_command"}, Status.FAILED),
    ({"fault": "stuck", "pair": [1, output(1, 4)]}, Status.FAILED),
    ({"fault": "fail_port", "port": output(1, 4)}, Status.FAILED),
    ({"fault": "lock_port", "port": output(1, 4)}, Status.FAILED),
    ({"fault": "disable_port", "port": output(1, 4)}, Status.FAILED),
    ({"fault": "garbage"}, Status.DONE),
    ({"fault": "wrong_reply"}, Status.DONE),
    ({"fault": "delay_reply", "seconds": 0.5}, Status.DONE),
    ({"fault": "close_connection", "after_commands": 1, "executed": True}, Status.DONE),
    ({"fault": "close_connection", "after_commands": 1, "executed": False}, Status.FAILED),
    ({"fault": "close_connection", "after_bytes": 1}, Status.DONE),
    ({"fault": "half_open"}, Status.UNKNOWN),
]


@pytest.mark.long
@pytest.mark.parametrize(("fault", "status"), FAULTS, ids=lambda value: str(value)[:70])
def test_what_is_reported_of_a_selection_is_so(switch, twin, fault, status):
    pair = (1, output(1, 4))
    try:
        report = switch.apply(CrossConnects([pair]), scope=[1], guard=armed_once(twin, **fault))
    except OcsError as error:
        report = error.report
    assert report.pairs == {pair: status}
    assert status is Status.UNKNOWN or (status is Status.DONE) == (pair in twin.truth().items())
    twin.do("clear_fault", fault="all")
    assert dict(switch.read().connections) == twin.truth()


def test_another_operator_is_seen(switch, twin):
    switch.connect({1: output(1, 3)})
    twin.do("operator", connect=[[1, output(1, 7)]])
    assert switch.read().connections[1] == output(1, 7)


def test_a_line_that_vanishes_is_lost_and_found_again(switch, twin):
    twin.do("set_fault", fault="close_connection")
    assert dict(switch.read().connections) == twin.truth()
    switch.close()
    with pytest.raises(ConnectionLost):
        switch.read()


def test_a_power_cycle(switch, twin):
    switch.connect({1: output(1, 3)})
    twin.do("power_cycle")
    assert switch.read().connections[1] == output(1, 1)


def test_an_ignored_command_is_a_mismatch(switch, twin):
    with pytest.raises(VerifyMismatch) as caught:
        switch.apply(
            CrossConnects({1: output(1, 4)}), scope=[1], guard=armed_once(twin, fault="drop_command")
        )
    assert caught.value.missing == {1: output(1, 4)}
