"""The mOSW driver: the published monitor, the forms an answer may have, refusals, light, and faults over TCP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from needs import needs

from ocs_drivers import CrossConnects, OcsError, Status, open_switch
from ocs_drivers.address import parse_address
from ocs_drivers.errors import AddressError, DeviceError
from ocs_drivers.model import Power
from ocs_drivers.vendors.banks.codec import decode_channel, decode_power
from ocs_drivers.vendors.mosw import COMMANDS, tcp_switch

SIZE = {"banks": "2", "channels": "8"}


def test_published_monitor():
    assert COMMANDS.format_power_query(1) == ":ROUTe:MONitor? 1"
    assert decode_power("0, -8.000") == Power(-8.0)


def test_commands_that_are_assumed():
    assert COMMANDS.format_select(1, 5) == ":ROUTe:CLOSe 1,1,5"
    assert COMMANDS.format_query(1) == ":ROUTe:CLOSe? 1"
    assert COMMANDS.error_query == ":SYSTem:ERRor?"
    assert [decode_channel(reply, 1, 8) for reply in ("5", "1, 5", "1,1,5")] == [5, 5, 5]


def test_addresses():
    assert (
        tcp_switch(parse_address("mosw+scpi://host?channels=8")).address == "mosw+scpi://host:8100?channels=8"
    )
    with pytest.raises(AddressError):
        tcp_switch(parse_address("mosw+scpi://host"))
    with pytest.raises(AddressError):
        tcp_switch(parse_address("mosw+scpi://host?channels=8&baud=9600"))


# -- in memory


def armed_once(made: Any, **fault: Any) -> Callable[[], None]:
    """Return a guard that sets a fault before the first write."""
    armed: list[Any] = []
    return lambda: armed or armed.append(made.do("set_fault", **fault))


@pytest.mark.parametrize("form", ["channel", "pair", "triple"])
def test_a_selection_is_read_back_in_each_form(world, open_in_memory, form):
    made = world("mosw", size=(2, 16), close_reply=form)
    switch = open_in_memory(made, "mosw+scpi", "scpi", **SIZE)
    assert switch.apply(CrossConnects({1: 2 + 5, 2: 2 + 8 + 6})).complete
    assert made.truth() == {1: 7, 2: 16}
    switch.close()


def test_common_ports_have_monitors(world, open_in_memory):
    made = world("mosw", size=(2, 16))
    switch = open_in_memory(made, "mosw+scpi", "scpi", **SIZE)
    made.do("set_fault", fault="dark_input", port=2)
    assert switch.capabilities.power_monitor
    assert [number for number, port in switch.ports().items() if port.has_power_monitor] == [1, 2]
    assert switch.power([1, 2, 3]) == {1: Power(-0.3), 2: Power(-100.0, below_floor=True), 3: None}
    switch.close()


@pytest.mark.parametrize(("fault", "code"), [("fail_port", "-240"), ("lock_port", "-221")])
def test_a_refusal_comes_from_the_error_queue(world, open_in_memory, fault, code):
    made = world("mosw", size=(2, 16))
    switch = open_in_memory(made, "mosw+scpi", "scpi", **SIZE)
    made.do("set_fault", fault=fault, port=7)
    before_s = made.clock.now()
    with pytest.raises(DeviceError) as caught:
        switch.connect({1: 7})
    assert caught.value.device_code == code
    assert caught.value.sent == ":ROUTe:CLOSe 1,1,5"
    assert made.clock.now() - before_s < 0.1  # told at once, not waited for
    switch.close()


# -- over TCP


@pytest.fixture
@needs("process", "socket")
def twin(shared_twin) -> Any:
    pytest.importorskip("pyvisa_py")
    twin = shared_twin("mosw", "--size=2x16", "--speed=5")
    twin.do("operator", connect=[[1, 3], [2, 11]])
    return twin


FAULTS = [
    ({"fault": "drop_command"}, Status.FAILED),
    ({"fault": "stuck", "pair": [1, 7]}, Status.FAILED),
    ({"fault": "fail_port", "port": 7}, Status.FAILED),
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
def test_what_is_reported_of_a_selection_is_so(twin, fault, status):
    with open_switch(twin.urls["scpi"], timeout_s=1.5) as switch:
        try:
            report = switch.apply(CrossConnects({1: 7}), scope=[1], guard=armed_once(twin, **fault))
        except OcsError as error:
            report = error.report
        assert report.pairs == {(1, 7): status}
        assert status is Status.UNKNOWN or (status is Status.DONE) == ((1, 7) in twin.truth().items())
        twin.do("clear_fault", fault="all")
        assert dict(switch.read().connections) == twin.truth()


def test_two_connections_share_the_device(twin):
    with open_switch(twin.urls["scpi"]) as one, open_switch(twin.urls["scpi"]) as other:
        one.connect({2: 18})
        assert other.read().connections == CrossConnects({1: 3, 2: 18})
